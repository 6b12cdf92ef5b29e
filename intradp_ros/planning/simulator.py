# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The judge of every plan: executes a schedule on devices and a link in model time.

Each device runs its program in order; each direction of the link carries
transfers one after another in the order they were sent; compute and
transfers overlap as they do in the runtime.
"""
from __future__ import annotations

from dataclasses import dataclass

from intradp_ros.operators.local_operator import SplitGraph
from intradp_ros.planning.cost import CostModel, LinkModel, WireCost
from intradp_ros.planning.schedule import Compute, ROBOT, Schedule, Send, Step


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took from `start` to `stop` (seconds from the inference's start)."""

    lane: str
    kind: str
    name: str
    start: float
    stop: float


@dataclass(frozen=True)
class Simulation:
    """What a schedule takes on a link: seconds, bytes, and (if asked for) every span."""

    latency: float
    busy: dict[str, float]
    bytes_up: int
    bytes_down: int
    spans: tuple[Span, ...] = ()


class DeadlockError(RuntimeError):
    """Programs that wait for each other: the schedule is wrong."""


def simulate(schedule: Schedule, cost: CostModel, link: LinkModel, *,
             trace: bool = False) -> Simulation:
    """
    Play a schedule and return when the robot's program ends.

    Raises
    ------
    DeadlockError
        If the programs wait for each other for ever.

    """
    run = _Run(schedule, cost, link, trace)
    waiting = dict.fromkeys(schedule.programs, 0)
    while any(waiting[d] < len(schedule.programs[d]) for d in waiting):
        advanced = False
        for device in waiting:
            position = run.advance(device, waiting[device])
            advanced |= position > waiting[device]
            waiting[device] = position
        if not advanced:
            raise DeadlockError(f'no device can go on; steps done: {waiting}')
    return Simulation(run.clock[ROBOT], run.busy, run.bytes[ROBOT],
                      sum(run.bytes.values()) - run.bytes[ROBOT], tuple(run.spans))


class _Run:
    """The state of one simulation."""

    def __init__(self, schedule: Schedule, cost: CostModel, link: LinkModel, trace: bool) -> None:
        self.schedule, self.cost, self.link, self.trace = schedule, cost, link, trace
        self.clock = dict.fromkeys(schedule.programs, 0.0)
        self.busy = dict.fromkeys(schedule.programs, 0.0)
        self.bytes = dict.fromkeys(schedule.programs, 0)
        self.link_free = dict.fromkeys(schedule.programs, 0.0)
        self.arrival: dict[int, float] = {}
        self.spans: list[Span] = []

    def advance(self, device: str, position: int) -> int:
        """Run a device from `position` until it must wait for rows not yet sent."""
        program = self.schedule.programs[device]
        while position < len(program):
            if not self.step(device, program[position]):
                break
            position += 1
        return position

    def step(self, device: str, step: Step) -> bool:
        if isinstance(step, Compute):
            self.compute(device, step)
        elif isinstance(step, Send):
            self.send(device, step.transfer)
        else:
            arrival = self.arrival.get(step.transfer)
            if arrival is None:
                return False
            self.clock[device] = max(self.clock[device], arrival)
        return True

    def compute(self, device: str, step: Compute) -> None:
        seconds = float(self.cost.seconds[device][step.operator][step.region.rows])
        start = self.clock[device]
        self.clock[device] = start + seconds
        self.busy[device] += seconds
        if self.trace:
            name = self.cost.split.operators[step.operator].operator.name
            self.spans.append(Span(device, 'compute', name, start, start + seconds))

    def send(self, device: str, index: int) -> None:
        transfer = self.schedule.transfers[index]
        plain = self.cost.split.nbytes(transfer.value, transfer.region.rows)
        wire = self.cost.wire.get((transfer.value, transfer.encoding), WireCost())
        nbytes = round(plain * wire.ratio)
        rate = self.link.up if device == ROBOT else self.link.down
        encoded = self.clock[device] + plain * wire.encode.get(device, 0.0)
        start = max(self.link_free[device], encoded)
        stop = start + self.link.overhead + nbytes / rate
        self.link_free[device] = stop
        self.bytes[device] += nbytes
        self.arrival[index] = (stop + self.link.delay
                               + plain * wire.decode.get(transfer.target, 0.0))
        if self.trace:
            name = self.cost.split.graph.values[transfer.value].name
            lane = 'uplink' if device == ROBOT else 'downlink'
            self.spans.append(Span(lane, 'transfer', name, start, self.arrival[index]))


def transfer_bytes(split: SplitGraph, schedule: Schedule, source: str) -> int:
    """Bytes that a device sends in one inference."""
    return sum(split.nbytes(t.value, t.region.rows)
               for t in schedule.transfers if t.source == source)
