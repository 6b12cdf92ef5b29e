# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a run of the whole evaluation found: plain data that goes through ``paper.json``.

A case is one workload with one kind of input on one trace; all systems ran in
it on the same devices, link and transport.  Its folder, next to ``paper.json``,
holds ``report.json``, ``seen.json`` (every inference), ``trace.csv`` (the part
of the trace that was replayed) and ``trace.png``; books are in ``plans``.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
import json
from pathlib import Path
from typing import Any

from intradp_ros.report.result_tables import write_json

#: Kinds of input: as in the paper, and what a sensor gives (bytes, bits).
FLOAT32, SENSOR = 'float32', 'sensor'
INPUTS = (FLOAT32, SENSOR)
#: Intra-DP as published; the names of ours are in `report.statements`.
INTRA_DP = 'intra-dp'


@dataclass(frozen=True)
class Case:
    """
    One workload with one kind of input on one trace.

    `systems` holds the figures of `testbed.figures.figures` by system.
    `devices` says by side what is emulated, `whole_ms` how long it takes
    alone.  `bounds_ms` are pairs of Mbit/s and ms that no schedule can be
    below; `bound_ms` is their mean over the replayed trace, as often as whole
    inferences would fit.  `link` has ``delay_ms``, ``overhead_ms``,
    ``mean_mbps``, ``std_mbps`` and ``transport``.
    """

    workload: str
    title: str
    dense: bool
    inputs: str
    input_text: str
    trace: str
    seconds: float
    devices: Mapping[str, str]
    recorded: bool
    whole_ms: Mapping[str, float]
    link: Mapping[str, Any]
    systems: Mapping[str, Mapping[str, Any]]
    bounds_ms: tuple[tuple[float, float], ...]
    bound_ms: float
    folder: str

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Case:
        """Read a case from its data."""
        bounds = tuple((float(mbps), float(ms)) for mbps, ms in data['bounds_ms'])
        return cls(**{**data, 'bounds_ms': bounds})


@dataclass(frozen=True)
class Results:
    """
    All cases of a run.

    `tables` are those of the paper by name (``'4'`` to ``'7'``), each a list
    of rows: ``workload``, ``system``, ``trace``, ``inputs``, and for each
    quantity a mapping of ``here``, ``printed`` and ``logged`` to numbers (None
    where there is none).  `outcomes` say where targets of latency are met or
    missed, `energy` those of energy (see `testbed.outcomes`).  `machine` says
    on what and with which versions.
    """

    cases: tuple[Case, ...]
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    outcomes: tuple[Mapping[str, Any], ...] = ()
    machine: Mapping[str, str] = field(default_factory=dict)
    energy: tuple[Mapping[str, Any], ...] = ()

    def case(self, workload: str, inputs: str, trace: str) -> Case | None:
        """Return a case, None if it did not run."""
        wanted = (workload, inputs, trace)
        return next((c for c in self.cases if (c.workload, c.inputs, c.trace) == wanted), None)

    def save(self, path: Path) -> None:
        """Write the results to a file."""
        write_json(path, asdict(self))


def load_results(path: Path) -> Results:
    """
    Read what `Results.save` wrote.

    :raises ValueError: if the file holds no such results.
    """
    try:
        data = json.loads(path.read_text())
        return Results(tuple(Case.from_dict(case) for case in data['cases']), data['tables'],
                       tuple(data['outcomes']), data['machine'], tuple(data['energy']))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f'{path} holds no results of `intradp bench paper`: {error!r}') from error
