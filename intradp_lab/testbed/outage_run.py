# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A run of sharing alone, on a link of one rate that fails several times."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from intradp_lab.report.statements import OURS
from intradp_lab.testbed.case import CaseRun, REPORT, SEEN, TRACE
from intradp_lab.testbed.experiment import Notify, run_on
from intradp_lab.testbed.outages import outage_figures, with_outages
from intradp_lab.testbed.pages import OUTAGES
from intradp_lab.testbed.traces import spread, write_trace
from intradp_lab.testbed.trial import Phase
from intradp_ros.report.result_tables import write_json
from intradp_ros.schedule.schedule import ROBOT
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.strategies import (
    SHARED,
)

#: Seconds of link before, between and after outages; more for a robot that takes long.
BETWEEN, FRAMES_BETWEEN = 3.0, 10
#: Seconds of an outage: the rate of a link changes at such steps; and of all together.
SHORTEST, LONGEST = 0.1, 300.0


def check_outages(seconds: Sequence[float]) -> None:
    """Raise ValueError unless a link can fail for these times in one run."""
    if not all(s >= SHORTEST for s in seconds) or sum(seconds) > LONGEST:
        raise ValueError(f'outages must last {SHORTEST:g} to {LONGEST:g} seconds, and all '
                         f'together not longer, got {" ".join(f"{s:g}" for s in seconds)}')


def run_outages(case: CaseRun, report: dict[str, Any], book: Path, seconds: Sequence[float],
                transport: str, notify: Notify) -> dict[str, Any]:
    """
    Let `shared` run while the link fails for some times, and return the report with the figures.

    The link has the mean rate of the case's trace.  The robot is as patient
    as a node is by default, unlike in a comparison (`trial.UNHURRIED`).

    :raises ValueError: if an outage is too short or too long.
    :raises NetworkError, ChildError: if this machine cannot provide the link, or a process fails;
        an inference without a result is such a failure.
    """
    check_outages(seconds)
    folder, patience = case.folder / OUTAGES, PatiencePolicy()
    folder.mkdir(parents=True, exist_ok=True)
    alone = case.trial.profile(ROBOT).whole_seconds
    trace = with_outages(spread(case.trace)[0], [round(s, 1) for s in seconds],
                         max(BETWEEN, float(round(FRAMES_BETWEEN * alone))))
    write_trace(trace, folder / TRACE)
    phase = Phase(OURS, str(book.resolve()), SHARED, trace.times[-1])
    trial = replace(case.trial, phases=(phase,), output=str((folder / SEEN).resolve()),
                    patience={})
    (seen,), name = run_on(transport, case.link, folder, trial, trace, notify)
    extended = {**report, OUTAGES: {
        'transport': name, **outage_figures(seen, trace, alone, patience.silence)}}
    write_json(case.folder / REPORT, extended)
    return extended
