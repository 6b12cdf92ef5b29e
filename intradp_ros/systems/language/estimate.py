# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a plan takes: the devices' actions, played with the seconds of their costs."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from intradp_ros.systems.language.actions import (
    Action,
    actions,
    Await,
    Embed,
    first_loads,
    Load,
    Ready,
    Run,
    Sample,
    Send,
)
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.expert_reads import part_read, turns_of
from intradp_ros.systems.language.segment_plan import SegmentPlan

#: Rounds that are played: the first ones are not like the others, as nothing was read before.
ROUNDS = 4


class StuckError(RuntimeError):
    """Devices wait for each other; a table of actions that does so is wrong."""


@dataclass(frozen=True, slots=True)
class Span:
    """An action, and when it began and ended (s)."""

    device: str
    action: Action
    start: float
    stop: float


@dataclass(frozen=True)
class Played:
    """
    Rounds as they were played.

    `seconds` is a round's, of late; `disk` and `waiting` say, for each device, how long it
    waited in it for its disk and for others.
    """

    seconds: float
    spans: tuple[Span, ...]
    disk: dict[str, float]
    waiting: dict[str, float]


@dataclass
class _Device:
    steps: Iterator[tuple[int, Action]]
    step: tuple[int, Action] | None = None
    free: float = 0.0
    disk_free: float = 0.0
    ready: dict[int, tuple[int, float]] = field(default_factory=dict)  # slot: block, when


def play(plan: SegmentPlan, costs: LanguageCosts, lanes: int = 1, rounds: int = ROUNDS,
         factors: Sequence[float] = ()) -> Played:
    """
    Play some rounds; `factors` say how many times a block's seconds each lane takes.

    :raises StuckError: if devices wait for each other.
    """
    names = plan.participants
    devices = {name: _Device(_steps(plan, name, lanes, rounds)) for name in names}
    media = dict.fromkeys((m.name for m in costs.topology.media), 0.0)
    arrived: dict[tuple[int, int, int], float] = {}
    spans: list[Span] = []
    samples: list[float] = []
    for name, device in devices.items():
        for load in first_loads(plan, name):
            _load(costs, name, device, load, 0.0, spans)
            device.ready[load.slot] = load.block, 0.0
        device.disk_free = 0.0  # a fleet that is ready has read the first blocks
        device.step = next(device.steps, None)
    spans.clear()
    while any(device.step for device in devices.values()):
        begin, name = min(((_begin(device, arrived, len(plan.stages)), name)
                           for name, device in devices.items() if device.step),
                          default=(None, ''))
        if begin is None or begin == _NEVER:
            raise StuckError('; '.join(f'{name} waits at {device.step[1]}'
                                       for name, device in devices.items() if device.step))
        device = devices[name]
        assert device.step
        number, action = device.step
        end = begin
        if isinstance(action, Run):
            end += costs.block(name, action.block) * (factors[action.lane] if factors else 1.0)
            end += _read_experts(costs, plan, device, action, begin, lanes)
        elif isinstance(action, Sample | Embed):
            end += costs.head_seconds(name) if isinstance(action, Sample) else 0.0
        elif isinstance(action, Load):
            _load(costs, name, device, action, begin, spans)
        elif isinstance(action, Send):
            there = begin
            for medium in costs.topology.path(name, action.device):
                media[medium] = max(media[medium], there) + costs.manifest.hidden_bytes \
                    / costs.topology.medium(medium).bytes_per_second
                there = media[medium]
            arrived[number, action.stage, action.lane] = \
                there + costs.topology.delay(name, action.device) + costs.hop
        if isinstance(action, Ready | Await):
            spans.append(Span(name, action, device.free, end))
        elif not isinstance(action, Load):
            spans.append(Span(name, action, begin, end))
        if isinstance(action, Sample) and action.lane == 0:
            samples.append(end)
        device.free = end
        device.step = next(device.steps, None)
    seconds = (samples[-1] - samples[0]) / (len(samples) - 1) if len(samples) > 1 else samples[0]
    seconds = max(seconds, *(sum(costs.load(name, block) for block in plan.streamed(name))
                             for name in names))  # no round of many is shorter
    return Played(seconds, tuple(spans), _waits(names, spans, Ready, rounds),
                  _waits(names, spans, Await, rounds))


_NEVER = float('inf')


def _steps(plan: SegmentPlan, name: str, lanes: int, rounds: int) -> Iterator[tuple[int, Action]]:
    for number in range(rounds):
        for action in actions(plan, lanes, name, lanes if number else 0):
            yield number, action
    if name == plan.head:
        for action in actions(plan, 0, name, lanes):
            yield rounds, action


def _begin(device: _Device, arrived: dict[tuple[int, int, int], float], last: int) -> float:
    """Return when the next action of a device can begin."""
    assert device.step
    number, action = device.step
    if isinstance(action, Await):
        of = number - (action.stage == last)
        return max(device.free, arrived.get((of, action.stage, action.lane), _NEVER))
    if isinstance(action, Ready):
        block, when = device.ready[action.slot]
        return max(device.free, when) if block == action.block else _NEVER
    return device.free


def _load(costs: LanguageCosts, name: str, device: _Device, load: Load, now: float,
          spans: list[Span]) -> None:
    begin = max(device.disk_free, now)
    device.disk_free = begin + costs.load(name, load.block)
    device.ready[load.slot] = load.block, device.disk_free
    spans.append(Span(name, load, begin, device.disk_free))


def _read_experts(costs: LanguageCosts, plan: SegmentPlan, device: _Device, run: Run, now: float,
                  lanes: int) -> float:
    """
    Return how long a lane waits for experts that are read as it has chosen them.

    All of them are read ahead while the disk has nothing else to do.
    """
    name, number = plan.place[run.block]
    slot, whole = plan.slots[name][number], costs.experts(name, run.block)
    if not whole or len(slot) < 2:
        return 0.0
    ahead = min(whole, max(0.0, now - device.disk_free))
    device.disk_free += ahead
    seconds = (whole - ahead) * part_read(
        costs.manifest, turns_of(costs.manifest, slot), run.lane, lanes)
    if seconds:
        device.disk_free = max(device.disk_free, now) + seconds
        device.ready = {place: (block, when + seconds * (when > now))
                        for place, (block, when) in device.ready.items()}
    return seconds


def _waits(names: tuple[str, ...], spans: list[Span], kind: type, rounds: int,
           ) -> dict[str, float]:
    return {name: sum(s.stop - s.start for s in spans
                      if s.device == name and isinstance(s.action, kind)) / rounds
            for name in names}
