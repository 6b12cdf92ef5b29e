# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The paper's evaluation: every workload, with every kind of input, on every trace, by all systems.

What was run is kept with what it depends on, so that a run that was broken
off goes on where it was.
"""
from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
import hashlib
import json
from pathlib import Path
import platform
from typing import Any

import torch

from intradp_lab.emulation.trace import LinkTrace
from intradp_lab.report.statements import FRUGAL, OURS
from intradp_lab.testbed.case import CaseRun, SEEN
from intradp_lab.testbed.evaluation_results import Case, INPUTS, INTRA_DP, Results, SENSOR
from intradp_lab.testbed.experiment import Notify
from intradp_lab.testbed.outcomes import energy_outcomes, outcomes
from intradp_lab.testbed.paper_page import INDEX
from intradp_lab.testbed.paper_tables import tables
from intradp_lab.testbed.preparation import MODEL, name_of, Planning, Prepared, prepared
from intradp_lab.testbed.systems import phases, SYSTEMS
from intradp_lab.testbed.traces import (
    mean_over,
    shipped_trace,
    spread,
    TRACES,
    typical_stretch,
)
from intradp_lab.testbed.trial import load_seen, Trial
from intradp_lab.testbed.workloads import SMOKE, Workload, WORKLOADS
from intradp_ros import __version__
from intradp_ros.core.cache_folder import code_digest
from intradp_ros.link.delay import ASSUMED_OVERHEAD, OWN_DELAY
from intradp_ros.profiling.machine import device_name
from intradp_ros.report.result_tables import write_json
from intradp_ros.schedule.schedule import ROBOT, SIDES
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    OFFLOAD,
)

PLANS, PAPER, CASE = 'plans', 'paper.json', 'case.json'
#: Packages that decide what a case measures; the testbed's own also page and tables.
_MEASURED = ('core', 'dds', 'graph', 'lab/emulation', 'link', 'runtime', 'schedule', 'split',
             'systems/sharing', 'wire')
#: Seconds around the systems of a case: processes start, sessions begin, books are agreed on.
AROUND = 20.0
#: Of fewer inferences the mean is one of the link's ups and downs.
LEAST_INFERENCES = 12


@dataclass(frozen=True)
class Evaluation:
    """
    What is run.

    `seconds` is how long each system runs, or for `LEAST_INFERENCES` of the
    robot alone if that is longer; `check` for how long each case is checked
    for exactness afterwards.
    """

    workloads: tuple[Workload, ...] = tuple(WORKLOADS.values())
    inputs: tuple[str, ...] = INPUTS
    traces: tuple[str, ...] = tuple(TRACES)
    systems: tuple[str, ...] = tuple(SYSTEMS)
    seconds: float = 5.0
    check: float = 5.0
    points: int = 12
    transport: str = 'auto'

    def seconds_for(self, ready: Prepared) -> float:
        """Return how long each system runs in the cases of a workload."""
        return max(self.seconds, round(LEAST_INFERENCES * 1e-3 * ready.whole_ms[ROBOT], 1))

    @cached_property
    def planning(self) -> Planning:
        """For which links plans are made: all rates of all recordings, whichever are replayed."""
        rates = [mbps for name in TRACES for mbps in shipped_trace(name).mbps]
        return Planning(0.7 * min(rates), max(rates), self.points, OWN_DELAY,
                        ASSUMED_OVERHEAD)

    @property
    def wanted(self) -> tuple[tuple[Workload, str], ...]:
        """Workloads with kinds of input."""
        return tuple((w, inputs) for w in self.workloads for inputs in self.inputs)

    @property
    def cases(self) -> tuple[tuple[Workload, str, str], ...]:
        """Workloads with kinds of input and traces, in the order in which they run."""
        return tuple((*pair, trace) for pair in self.wanted for trace in self.traces)


def smoke(seconds: float = 2.0) -> Evaluation:
    """Return a quick look whether all works: one small network, one trace, five systems."""
    systems = (LOCAL, OFFLOAD, INTRA_DP, OURS, FRUGAL)
    return Evaluation((SMOKE,), (SENSOR,), ('indoors',), systems, seconds, points=3)


def seconds_of(evaluation: Evaluation, cases: int) -> float:
    """Return about how long so many cases take."""
    each = sum(p.seconds for p in phases(evaluation.systems, SENSOR, Path(),
                                         evaluation.seconds))
    return cases * (each + AROUND + evaluation.check)


def finished(evaluation: Evaluation, folder: Path, workload: Workload, inputs: str, trace: str,
             ) -> Case | None:
    """Return a case that was run in a folder before, None if there is none or it is of old."""
    ready = prepared(workload, inputs, folder / PLANS, evaluation.planning)
    try:
        data = json.loads((folder / _place(workload, inputs, trace) / CASE).read_text())
        if ready is None or data['key'] != _key(evaluation, ready, trace):
            return None
        return Case.from_dict(data['case'])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _place(workload: Workload, inputs: str, trace: str) -> str:
    return f'{name_of(workload, inputs)}-{trace}'


@lru_cache
def _replayed(trace: str, seconds: float) -> LinkTrace:
    """Return the stretch of a trace that is replayed."""
    return typical_stretch(shipped_trace(trace), seconds)


def _key(evaluation: Evaluation, ready: Prepared, trace: str) -> str:
    """Return what a case depends on, as a short name."""
    seconds = evaluation.seconds_for(ready)
    text = repr((code_digest(*_MEASURED), ready.digest, trace, _replayed(trace, seconds),
                 evaluation.systems, seconds, evaluation.check, evaluation.transport))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_case(evaluation: Evaluation, folder: Path, workload: Workload, inputs: str, trace: str,
             notify: Notify) -> Case:
    """
    Run a case, whose workload must have been prepared in the folder, and keep it there.

    `notify` gets the name of each system as it begins, and ``check``.

    :raises NetworkError, ChildError: if this machine cannot provide the link, or a process fails.
    :raises ValueError: if the workload was not prepared for this evaluation.
    """
    ready = prepared(workload, inputs, folder / PLANS, evaluation.planning)
    if ready is None:
        raise ValueError(f'{name_of(workload, inputs)} is not prepared in {folder / PLANS}: '
                         'call prepare_all first')
    run = _case_run(evaluation, folder / _place(workload, inputs, trace), workload, inputs, ready,
                    trace)
    report = run.measure(evaluation.transport, notify)
    if evaluation.check > 0:
        notify('check')
        report = run.check(report, load_seen(run.folder / SEEN), evaluation.check)
    case = _case(workload, inputs, trace, ready, run, report)
    run.page(f'../{INDEX}')
    write_json(run.folder / CASE, {'key': _key(evaluation, ready, trace), 'case': asdict(case)})
    return case


def _case_run(evaluation: Evaluation, folder: Path, workload: Workload, inputs: str,
              ready: Prepared, trace: str) -> CaseRun:
    seconds = evaluation.seconds_for(ready)
    trial = Trial(
        str((ready.folder / MODEL).resolve()), ready.axis,
        {side: str(ready.profile(side).resolve()) for side in SIDES},
        phases(evaluation.systems, inputs, ready.folder, seconds),
        str((folder / SEEN).resolve()))
    return CaseRun(folder, f'{workload.title}, {trace}', trial,
                   _replayed(trace, seconds), seconds, ready.book.bounds)


def _case(workload: Workload, inputs: str, trace: str, ready: Prepared, run: CaseRun,
          report: dict[str, Any]) -> Case:
    mean, deviation = spread(run.trace)
    book = ready.book
    bounds = tuple((mbps, 1e3 * bound) for mbps, bound in book.bounds)
    return Case(
        workload.key, workload.title, workload.dense, inputs, workload.input_text(inputs), trace,
        run.seconds, ready.devices, bool(workload.recording), ready.whole_ms,
        {'delay_ms': 1e3 * book.delay, 'overhead_ms': 1e3 * book.overhead, 'mean_mbps': mean,
         'std_mbps': deviation, 'transport': report['transport']},
        report['systems'], bounds, mean_over(run.trace, bounds), run.folder.name)


def results_of(cases: list[Case]) -> Results:
    """Return tables and outcomes of cases."""
    return Results(tuple(cases), tables(cases), outcomes(cases), {
        'processor': device_name(), 'system': f'{platform.system()} {platform.release()}',
        'python': platform.python_version(), 'torch': torch.__version__,
        'intradp_ros': __version__}, energy_outcomes(cases))
