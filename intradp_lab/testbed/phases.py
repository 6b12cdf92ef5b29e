# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a robot does to let one system after another infer, whatever link it is on."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
import time

import torch

from intradp_lab.emulation.emulated_device import DeviceClock, emulated
from intradp_lab.testbed.devices import COPIES
from intradp_lab.testbed.representative_timeline import Typical
from intradp_lab.testbed.trial import Phase, Seen, Trial
from intradp_ros.profiling.machine import settle_process
from intradp_ros.report.spans import length
from intradp_ros.runtime.models.catalogue import example_inputs, ModelSpec
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.session.robot import RobotClient

READY_TIMEOUT = 120.0  # seconds for a session, and for a first measurement of the link
WARM_UP = 2
#: Seconds to wait for the server's report of an inference, before the next one begins.
REPORT_TIMEOUT = 0.05


def load(trial: Trial, side: str) -> SharedModel:
    """Return the model on this side's emulated device."""
    model = ModelSpec.parse(trial.model).load(trial.axis)
    profile = trial.profile(side)
    if profile.digest != model.digest:
        raise ValueError(f'{trial.profiles[side]} is the profile of another model')
    tables = [timing.table(op.rows) * profile.scale
              for timing, op in zip(profile.timings, model.split.operators)]
    return emulated(model, tables, DeviceClock(), copies=profile.joining.byte or COPIES[side])


def prepare_phase(client: RobotClient, phase: Phase) -> Sequence[torch.Tensor]:
    """Make a system ready: both sides have its book, and it has run on the returned inputs."""
    inputs = example_inputs(client.model)
    client.use_book(ScheduleBook.load(Path(phase.book)))
    wait_ready(client)
    for _ in range(WARM_UP):
        client.infer(inputs, strategy=phase.strategy)
    settle_process()
    return inputs


def play_phase(client: RobotClient, phase: Phase, inputs: Sequence[torch.Tensor]) -> Seen:
    """Let a system that is ready infer, frame after frame."""
    seen, typical, begin = Seen(phase.system), Typical(), time.monotonic()
    while time.monotonic() - begin < phase.seconds or len(seen.at) < phase.frames:
        at, rate = time.monotonic() - begin, client.predicted_rate
        outcome = client.infer(inputs, strategy=phase.strategy)
        events = client.timeline(outcome, REPORT_TIMEOUT)
        note(seen, at, rate * 8e-6, outcome)
        seen.transmission.append(transmission(outcome, events))
        typical.add(outcome.stats.latency, events)
    seen.typical, seen.timeline = typical.nearest()
    return seen


def wait_ready(client: RobotClient) -> None:
    """Wait until both sides have the newest book and the link was measured."""
    end, connection = time.monotonic() + READY_TIMEOUT, client.connection
    while not (connection.wait_ready(0.0) and connection.answers and client.predicted_rate > 0):
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
