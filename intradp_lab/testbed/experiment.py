# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Running a trial: link, replay, and both sides as processes that end for certain."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
import os
from pathlib import Path

from intradp_lab.emulation.network import shaped_link, ShapedLink
from intradp_lab.emulation.processes import Child, starter
from intradp_lab.emulation.replay import replaying
from intradp_lab.emulation.settings import LinkSettings
from intradp_lab.emulation.trace import LinkTrace
from intradp_lab.emulation.transport_choice import AUTO, usable_environment
from intradp_lab.testbed.in_process import IN_PROCESS, MARK, run_in_process
from intradp_lab.testbed.trial import load_seen, Seen, Trial
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.dds.transport_profile import VARIABLE

START_TIMEOUT, PHASE_TIMEOUT = 300.0, 900.0
_PLAIN = LinkSettings()
Notify = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """Where trials run: a shaped link, and how processes are started at its ends."""

    link: ShapedLink
    start: Callable[[Command], Child]
    environment: Mapping[str, str]
    transport: str

    def side(self, side: str, path: Path) -> Child:
        """Start one side of a trial on a core of its own, if there are several."""
        cores = sorted(os.sched_getaffinity(0))
        mine = cores[:1] if side == 'robot' else cores[1:] or cores
        arguments = module_arguments('intradp_lab.testbed.side', side, str(path))
        return self.start(Command(side, arguments, self.link.exec_prefix(side), mine,
                                  self.environment))


@contextmanager
def place(folder: Path, transport: str = AUTO, link: LinkSettings = _PLAIN) -> Iterator[Place]:
    """
    Provide link and starter; whatever runs at the end is ended.

    The link's rate is set by each trial.

    :raises NetworkError: if this machine lets us shape no link (it needs Linux and root).
    """
    variables, _ = usable_environment(transport)
    environment = {'RMW_IMPLEMENTATION': 'rmw_fastrtps_cpp', **variables}
    with shaped_link(link, 'intradp-bench') as shaped, starter(folder / 'logs') as start:
        yield Place(shaped, start, environment, variables[VARIABLE])


def run_trial(where: Place, trial: Trial, path: Path, trace: LinkTrace, notify: Notify,
              ) -> list[Seen]:
    """
    Run all phases of a trial, each from the beginning of the trace.

    :raises ChildError: if a side ends early or does not come to its end in time.
    """
    trial.save(path)
    where.link.set_rate(trace.rate_at(0.0) or 1.0)
    server = where.side('server', path)
    robot = where.side('robot', path)
    try:
        server.wait_for_line('^phase serving$', START_TIMEOUT)
        for phase in trial.phases:
            robot.wait_for_line(f'^phase begin {phase.system}$', START_TIMEOUT,
                                others=[server])
            notify(phase.system)
            with replaying(where.link, trace):
                robot.wait_for_line(f'^phase end {phase.system}$', PHASE_TIMEOUT,
                                    others=[server])
            where.link.set_rate(trace.rate_at(0.0) or 1.0)
        robot.wait_for_line('^phase done$', START_TIMEOUT)
    finally:
        for child in (robot, server):
            child.stop()
    return load_seen(Path(trial.output))


def run_on(transport: str, link: LinkSettings, folder: Path, trial: Trial, trace: LinkTrace,
           notify: Notify) -> tuple[list[Seen], str]:
    """
    Run a trial in a folder, over DDS or (`IN_PROCESS`) without; return also what carried it.

    :raises NetworkError, ChildError: if this machine cannot provide the link, or a process fails.
    :raises ValueError: if a link in memory cannot be like that.
    """
    path = folder / 'trial.json'
    if transport == IN_PROCESS:
        trial.save(path)
        return run_in_process(trial, trace, link, notify), MARK
    with place(folder, transport, link) as where:
        return run_trial(where, trial, path, trace, notify), where.transport
