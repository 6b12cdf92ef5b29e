# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What each device does in a round, in order: pure data.

The engine executes it, the simulator prices it, ``--show`` prints it, properties check it.
All lanes pass a stage before the next stage; a slot that several blocks share is filled
with the next one after the last lane has used the one before.  In the last stage of a round
the next block of a slot is the first of the next round, so that reading hides behind
everything else, the round's end included.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from intradp_ros.systems.language.segment_plan import SegmentPlan


@dataclass(frozen=True, slots=True)
class Embed:
    """(Head) Make the hidden states of a lane's tokens."""

    lane: int

    def __str__(self) -> str:
        return f'E{self.lane}'


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for a lane's hidden states of another device, before a stage."""

    stage: int
    lane: int
    device: str

    def __str__(self) -> str:
        return f'A{self.stage}.{self.lane}<{self.device}'


@dataclass(frozen=True, slots=True)
class Ready:
    """Wait until a block is in its slot: time spent here is load that nothing hid."""

    block: int
    slot: int

    def __str__(self) -> str:
        return f'W{self.block}@{self.slot}'


@dataclass(frozen=True, slots=True)
class Run:
    """Compute a block for a lane."""

    block: int
    lane: int

    def __str__(self) -> str:
        return f'R{self.block}.{self.lane}'


@dataclass(frozen=True, slots=True)
class Load:
    """Begin to read a block into a slot; does not wait."""

    block: int
    slot: int

    def __str__(self) -> str:
        return f'L{self.block}>{self.slot}'


@dataclass(frozen=True, slots=True)
class Send:
    """Send a lane's hidden states to the device of a stage (the head, after the last)."""

    stage: int
    lane: int
    device: str

    def __str__(self) -> str:
        return f'S{self.stage}.{self.lane}>{self.device}'


@dataclass(frozen=True, slots=True)
class Sample:
    """(Head) Draw the next tokens of a lane."""

    lane: int

    def __str__(self) -> str:
        return f'D{self.lane}'


Action = Embed | Await | Ready | Run | Load | Send | Sample


def first_loads(plan: SegmentPlan, device: str) -> list[Load]:
    """Return what a device reads before the first round: the first block of each slot."""
    return [Load(slot[0], number) for number, slot in enumerate(plan.slots.get(device, ()))]


def actions(plan: SegmentPlan, lanes: int, device: str, ended: int = 0) -> Iterator[Action]:
    """
    Yield what a device does in a round of some lanes.

    On the head a round begins with the end of the one before, of `ended` lanes: each lane
    is sampled and goes into the new round at once, while the others are still in flight.
    """
    last = len(plan.stages)
    turn = {block: (number, slot[(place + 1) % len(slot)])
            for number, slot in enumerate(plan.slots.get(device, ()))
            for place, block in enumerate(slot)}
    sender = plan.stages[-1].device
    if device == plan.head:
        for lane in range(max(lanes, ended)):
            if lane < ended:
                if sender != device:
                    yield Await(last, lane, sender)
                yield Sample(lane)
            if lane < lanes:
                yield Embed(lane)
                yield from _pass(plan, 0, lane, lanes, device, turn)
    for number, stage in enumerate(plan.stages):
        if stage.device != device or number == 0 and device == plan.head:
            continue
        for lane in range(lanes):
            yield Await(number, lane, plan.stages[number - 1].device if number else plan.head)
            yield from _pass(plan, number, lane, lanes, device, turn)


def _pass(plan: SegmentPlan, number: int, lane: int, lanes: int, device: str,
          turn: dict[int, tuple[int, int]]) -> Iterator[Action]:
    """Yield what a device does with the hidden states of a lane that are there for a stage."""
    if plan.stages[number].device != device:  # the head, which has no part in the first stage
        yield Send(number, lane, plan.stages[number].device)
        return
    for block in plan.stages[number].blocks:
        slot, following = turn[block]
        if lane == 0:
            yield Ready(block, slot)
        yield Run(block, lane)
        if lane == lanes - 1 and following != block:
            yield Load(following, slot)
    after = plan.stages[number + 1].device if number + 1 < len(plan.stages) else plan.head
    if after != device:
        yield Send(number + 1, lane, after)
