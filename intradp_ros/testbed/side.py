# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
One side of a trial as a process: ``python -m intradp_ros.testbed.side robot TRIAL.json``.

Lines that begin with ``phase`` on standard output tell the process that runs
the trial where it is.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
import signal
import sys
import threading
import time

from intradp_ros.dds.standalone import standalone_channel
from intradp_ros.emulation.device import DeviceClock, emulated
from intradp_ros.execution.catalogue import example_inputs, ModelSpec
from intradp_ros.execution.channel import Channel
from intradp_ros.execution.model import SharedModel
from intradp_ros.execution.outcome import Outcome
from intradp_ros.execution.patience import PatiencePolicy
from intradp_ros.execution.robot import RobotClient
from intradp_ros.execution.server import OffloadServer
from intradp_ros.execution.timeline import Event
from intradp_ros.link.predictor import make_predictor
from intradp_ros.planning.book import ScheduleBook
from intradp_ros.profiling.device import prepare_process, settle_process
from intradp_ros.profiling.profile import Profile
from intradp_ros.report.spans import length
from intradp_ros.testbed.trial import Phase, save_seen, Seen, Trial
from intradp_ros.testbed.typical import Typical
from intradp_ros.testbed.witness import arrived_path, WitnessChannel

READY_TIMEOUT = 120.0  # seconds for a session, and for a first measurement of the link
WARM_UP = 2
#: Seconds to wait for the server's report of an inference, before the next one begins.
REPORT_TIMEOUT = 0.05


def say(text: str) -> None:
    """Tell whoever runs the trial."""
    print(f'phase {text}', flush=True)


def load(trial: Trial, side: str) -> SharedModel:
    """Return the model on this side's emulated device."""
    model = ModelSpec.parse(trial.model).load(trial.axis)
    profile = Profile.from_json(Path(trial.profiles[side]).read_text())
    if profile.digest != model.digest:
        raise ValueError(f'{trial.profiles[side]} is the profile of another model')
    tables = [timing.table(op.rows) * profile.scale
              for timing, op in zip(profile.timings, model.split.operators)]
    return emulated(model, tables, DeviceClock())


@contextmanager
def channel(trial: Trial, side: str) -> Iterator[WitnessChannel]:
    """Open this side's channel; what was seen of arriving bytes is written at the end."""
    with standalone_channel(trial.name, side, trial.chunk_bytes) as carrying:
        opened = WitnessChannel(carrying)
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
                             patience=PatiencePolicy(**trial.patience))
        try:
            seen = [run_phase(client, phase) for phase in trial.phases]
        finally:
            client.close()
    save_seen(seen, Path(trial.output))
    say('done')


def run_phase(client: RobotClient, phase: Phase) -> Seen:
    """Let one system infer, frame after frame, from when the link begins its trace."""
    inputs = example_inputs(client.model)
    client.use_book(ScheduleBook.load(Path(phase.book)))
    wait_ready(client)
    for _ in range(WARM_UP):
        client.infer(inputs, strategy=phase.strategy)
    settle_process()
    say(f'begin {phase.system}')
    seen, typical, begin = Seen(phase.system), Typical(), time.monotonic()
    while time.monotonic() - begin < phase.seconds or len(seen.at) < phase.frames:
        at, rate = time.monotonic() - begin, client.predicted_rate
        outcome = client.infer(inputs, strategy=phase.strategy)
        events = client.timeline(outcome, REPORT_TIMEOUT)
        note(seen, at, rate * 8e-6, outcome)
        seen.transmission.append(transmission(outcome, events))
        typical.add(outcome.stats.latency, events)
    say(f'end {phase.system}')
    seen.typical, seen.timeline = typical.nearest()
    return seen


def wait_ready(client: RobotClient) -> None:
    """Wait until both sides have the book and the link was measured."""
    end = time.monotonic() + READY_TIMEOUT
    while not (client.connection.alive and client.predicted_rate > 0):
        if time.monotonic() > end:
            raise TimeoutError('robot and server do not come together: '
                               f'{client.connection.state.value} {client.connection.refusal}')
        time.sleep(0.02)


def note(seen: Seen, at: float, rate: float, outcome: Outcome) -> None:
    """Add one inference to what was seen."""
    stats = outcome.stats
    seen.at.append(at)
    seen.rate.append(rate)
    for name in ('latency', 'predicted', 'schedule', 'shared', 'recovered', 'compute', 'waiting',
                 'bytes_up', 'bytes_down', 'energy'):
        getattr(seen, name).append(getattr(stats, name))


def transmission(outcome: Outcome, events: Sequence[Event]) -> float | None:
    """Return the seconds in which rows were on their way; None if the server's part lacks."""
    stats = outcome.stats
    if stats.bytes_up and not any(e.lane == 'uplink' and e.kind == 'transfer' for e in events):
        return None
    return length((max(0.0, e.start), min(e.stop, stats.latency)) for e in events
                  if e.kind == 'transfer')


def main() -> None:
    """Run the side that the command line names."""
    side, path = sys.argv[1:]
    prepare_process()
    trial = Trial.load(Path(path))
    {'robot': play, 'server': serve}[side](trial)


if __name__ == '__main__':
    main()
