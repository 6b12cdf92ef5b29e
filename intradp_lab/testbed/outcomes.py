# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Where our system wins and loses, held against what it was meant to reach.

The targets are fixed beforehand; nothing here knows how a figure came about.
Where one is missed, the lower bound says whether any schedule could have
reached it.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from intradp_lab.report.statements import best_other, FRUGAL, OURS, SAME
from intradp_lab.testbed.evaluation_results import Case, FLOAT32, SENSOR
from intradp_ros.systems.sharing.strategies import (
    DEADLINE,
    LOCAL,
    OFFLOAD,
)

#: By how much of their latency the baselines with float32 inputs should be undercut.
PUBLISHED = 0.40
#: The same against baselines that have our inputs: dense outputs, and others that are close.
DENSE, CLOSE = 0.30, 0.10
#: Others count where local and offload are within this factor of each other.
NEAR = 2.0
_DEADLINE_MS = 1e3 * DEADLINE


@dataclass(frozen=True)
class Outcome:
    """
    One target for one workload on one trace.

    `gain` is the part of the latency of `other`, the fastest of the other
    systems, that ours saves; `wanted` what it should be; `possible` what it
    would be if ours reached the lower bound.
    """

    target: str
    workload: str
    trace: str
    inputs: str
    ours_ms: float
    other: str
    other_ms: float
    gain: float
    wanted: float
    met: bool
    bound_ms: float
    possible: float
    text: str


def outcomes(cases: Iterable[Case]) -> tuple[Mapping[str, Any], ...]:
    """Return an `Outcome` as plain data for each target of each workload and trace that ran."""
    known = {(c.workload, c.trace, c.inputs): c for c in cases if OURS in c.systems}
    found: list[Outcome] = []
    for (workload, trace, inputs), case in known.items():
        found += _same_inputs(case)
        published = known.get((workload, trace, FLOAT32))
        if inputs == SENSOR and published:
            found += _against('baselines with float32 inputs', case, published, PUBLISHED)
    return tuple(asdict(outcome) for outcome in found)


@dataclass(frozen=True)
class EnergyOutcome:
    """
    Whether ours, planned for the least energy, spends no more than the most frugal other system.

    Those count that keep the deadline which ours is planned for, in the mean;
    all of them if none does.  Joules of an inference, modelled; `gain` is the
    part of `other_j` that is saved.
    """

    workload: str
    trace: str
    inputs: str
    ours_j: float
    other: str
    other_j: float
    gain: float
    met: bool
    text: str


def energy_outcomes(cases: Iterable[Case]) -> tuple[Mapping[str, Any], ...]:
    """Return an `EnergyOutcome` as plain data for each case that ran ours for energy."""
    return tuple(asdict(_frugal(case)) for case in cases
                 if FRUGAL in case.systems and best_other(case.systems))


def _frugal(case: Case) -> EnergyOutcome:
    in_time = {name: row for name, row in case.systems.items() if row['mean_ms'] <= _DEADLINE_MS}
    least = best_other(case.systems, 'energy_j')
    other = best_other(in_time, 'energy_j') or least
    assert other is not None and least is not None
    ours, theirs = (float(case.systems[name]['energy_j']) for name in (FRUGAL, other))
    gain = 1 - ours / theirs
    text = (f'{case.title}, {case.trace}: {ours:.2f} J, {abs(gain):.0%} '
            f'{"less" if gain >= 0 else "more"} than {other} ({theirs:.2f} J).')
    if least != other:
        late = case.systems[least]
        text += (f' {least} takes {late["energy_j"]:.2f} J, but {late["mean_ms"]:.0f} ms, past '
                 f'the deadline of {_DEADLINE_MS:.0f} ms.')
    return EnergyOutcome(case.workload, case.trace, case.inputs, ours, other, theirs, gain,
                         gain >= -SAME, text)


def _same_inputs(case: Case) -> Iterator[Outcome]:
    """Yield how a case stands against baselines with the same inputs."""
    yield from _against('never slower with the same inputs', case, case, -SAME)
    if case.dense:
        yield from _against('dense outputs, same inputs', case, case, DENSE)
    elif _near(case):
        yield from _against('local and offload close, same inputs', case, case, CLOSE)


def _near(case: Case) -> bool:
    if not {LOCAL, OFFLOAD} <= case.systems.keys():
        return False
    times = [case.systems[name]['mean_ms'] for name in (LOCAL, OFFLOAD)]
    return bool(max(times) <= NEAR * min(times))


def _against(target: str, case: Case, baselines: Case, wanted: float) -> Iterator[Outcome]:
    other = best_other(baselines.systems)
    if other is None:
        return
    ours, theirs = (float(c.systems[name]['mean_ms'])
                    for c, name in ((case, OURS), (baselines, other)))
    gain, possible = 1 - ours / theirs, 1 - case.bound_ms / theirs
    met = gain >= wanted
    yield Outcome(target, case.workload, case.trace, case.inputs, ours, other, theirs,
                  gain, wanted, met, case.bound_ms, possible,
                  _text(case, other, theirs, gain, wanted, possible, met))


def _text(case: Case, other: str, other_ms: float, gain: float, wanted: float, possible: float,
          met: bool) -> str:
    ours = float(case.systems[OURS]['mean_ms'])
    begin = (f'{case.title}, {case.trace}: {ours:.1f} ms, {abs(gain):.0%} '
             f'{"less" if gain >= 0 else "more"} than {other} ({other_ms:.1f} ms)')
    if met:
        return f'{begin}.'
    bound = f'the lower bound on any schedule is {case.bound_ms:.1f} ms'
    if possible < wanted:
        return f'{begin}; {bound}, so the target cannot be reached at all.'
    return (f'{begin}; {bound} ({possible:.0%} less): '
            f'ours is {ours / case.bound_ms:.2f} times that.')
