# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
One side of a trial as a process: ``python -m intradp_lab.testbed.side robot TRIAL.json``.

Lines that begin with ``phase`` on standard output inform the process that runs
the trial where it is.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
import signal
import sys
import threading

from intradp_lab.testbed.checking_channel import arrived_path, CheckingChannel
from intradp_lab.testbed.phases import load, play_phase, prepare_phase
from intradp_lab.testbed.trial import Phase, save_seen, Seen, Trial
from intradp_ros.dds.standalone import standalone_channel
from intradp_ros.link.predictor import make_predictor
from intradp_ros.profiling.machine import prepare_process, settle_process
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.channel import Channel
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.server import OffloadServer


def say(text: str) -> None:
    """Inform who runs the trial."""
    print(f'phase {text}', flush=True)


@contextmanager
def channel(trial: Trial, side: str) -> Iterator[CheckingChannel]:
    """Open this side's channel; what was seen of arriving bytes is written at the end."""
    with standalone_channel(trial.name, side) as carrying:
        opened = CheckingChannel(carrying)
        try:
            yield opened
        finally:
            opened.close()
            opened.arrived.save(arrived_path(Path(trial.output), side))


def serve(trial: Trial) -> None:
    """Serve until a signal ends the process."""
    model = load(trial, 'server')
    with channel(trial, 'server') as opened:
        serve_on(opened, model)


def serve_on(opened: Channel, model: SharedModel) -> None:
    """Serve a model on a channel until a signal ends the process."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = OffloadServer(opened, {model.digest: model}, print)
    settle_process()
    say('serving')
    ended.wait()
    server.close()


def play(trial: Trial) -> None:
    """Run all phases and write what was seen."""
    model = load(trial, 'robot')
    with channel(trial, 'robot') as opened:
        client = RobotClient(model, opened, make_predictor(trial.predictor), print,
                             patience=PatiencePolicy(**trial.patience),
                             power=trial.profile('robot').power)
        try:
            seen = [run_phase(client, phase) for phase in trial.phases]
        finally:
            client.close()
    save_seen(seen, Path(trial.output))
    say('done')


def run_phase(client: RobotClient, phase: Phase) -> Seen:
    """Let one system infer, from when the link begins its trace."""
    inputs = prepare_phase(client, phase)
    say(f'begin {phase.system}')
    seen = play_phase(client, phase, inputs)
    say(f'end {phase.system}')
    return seen


def main() -> None:
    """Run the side that the command line names."""
    side, path = sys.argv[1:]
    prepare_process()
    trial = Trial.load(Path(path))
    {'robot': play, 'server': serve}[side](trial)


if __name__ == '__main__':
    main()
