# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A trial in one process, on a link in memory: where nobody may make network namespaces.

Robot and server are threads that hand each other frames at the rate of the
trace.  There is no DDS, no protocol below it and no packets, so figures are
not those of a link, and everything that shows them says so.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from intradp_lab.emulation.replay import replaying
from intradp_lab.emulation.settings import LinkSettings
from intradp_lab.emulation.trace import LinkTrace
from intradp_lab.testbed.checking_channel import arrived_path, CheckingChannel
from intradp_lab.testbed.phases import load, play_phase, prepare_phase
from intradp_lab.testbed.trial import Phase, save_seen, Seen, Trial
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES
from intradp_ros.link.predictor import make_predictor
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.runtime.transport.memory_channel import memory_pair, MemoryChannel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.server import OffloadServer

#: The name that stands for DDS transports, and what is said wherever its figures are shown.
IN_PROCESS = 'in-process'
MARK = 'in-process link (no DDS, no root)'
_BYTES = 125e3  # per second, for each Mbit/s


@dataclass(frozen=True)
class InProcessLink:
    """The link between the ends of a `memory_pair`, for a `Replay`."""

    end: MemoryChannel

    def set_rate(self, mbit: float) -> None:
        """Set the rate of both ways in 1e6 bits of tensor data per second."""
        self.end.set_rate(mbit * _BYTES)

    def cut(self) -> None:
        """Lose whatever arrives until `restore`."""
        self.end.cut()

    def restore(self) -> None:
        """Join both ends again."""
        self.end.restore()


def check_in_process(link: LinkSettings) -> None:
    """Raise ValueError if a link in memory cannot be like that."""
    plain = LinkSettings(link.mbit, link.delay_ms)
    if link != plain:
        raise ValueError(f'the {MARK} has a rate and a delay, but no packets: leave out jitter, '
                         'loss, medium and bottleneck, or use a shaped link (as root)')


def run_in_process(trial: Trial, trace: LinkTrace, link: LinkSettings,
                   notify: Callable[[str], None]) -> list[Seen]:
    """
    Run all phases of a trial in this process, each from the beginning of the trace.

    :raises ValueError: if a link in memory cannot be like that.
    """
    check_in_process(link)
    prepare_process(torch.get_num_threads())
    start = (trace.rate_at(0.0) or 1.0)
    ends = memory_pair(LEAST_CHUNK_BYTES, start * _BYTES, link.delay_ms / 1e3)
    memory = InProcessLink(ends[0])
    near, far = map(CheckingChannel, ends)
    with _served(trial, far), closing(_robot(trial, near)) as client:
        seen = [_run_phase(client, phase, memory, trace, notify) for phase in trial.phases]
    output = Path(trial.output)
    for side, end in ((ROBOT, near), (SERVER, far)):
        end.arrived.save(arrived_path(output, side))
    save_seen(seen, output)
    return seen


@contextmanager
def _served(trial: Trial, end: CheckingChannel) -> Iterator[None]:
    model = load(trial, SERVER)
    with closing(OffloadServer(end, {model.digest: model}, _ignore)):
        yield


def _robot(trial: Trial, end: CheckingChannel) -> RobotClient:
    return RobotClient(load(trial, ROBOT), end, make_predictor(trial.predictor), _ignore,
                       patience=PatiencePolicy(**trial.patience), power=trial.profile(ROBOT).power)


def _run_phase(client: RobotClient, phase: Phase, link: InProcessLink, trace: LinkTrace,
               notify: Callable[[str], None]) -> Seen:
    inputs = prepare_phase(client, phase)
    notify(phase.system)
    with ExitStack() as after:
        after.callback(link.set_rate, trace.rate_at(0.0) or 1.0)
        after.enter_context(replaying(link, trace))
        return play_phase(client, phase, inputs)


def _ignore(_text: str) -> None:
    """Say nothing: the terminal shows progress."""
