# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What each device does in a round, in order: pure data.

The engine executes it, the simulator prices it, ``--show`` prints it, properties check it.
All lanes pass a stage before the next stage (and a part of it, where a slot turns over within a
stage); a slot that several blocks share is filled
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
    sender = plan.stages[-1].device
    if device == plan.head:
        for lane in range(max(lanes, ended)):
            if lane < ended:
                if sender != device:
                    yield Await(last, lane, sender)
                yield Sample(lane)
            if lane < lanes:
                yield Embed(lane)
                if plan.stages[0].device != device:
                    yield Send(0, lane, plan.stages[0].device)
                else:
                    yield from _run(plan, 0, turns(plan, 0)[0], lane, lanes)
    for number, stage in enumerate(plan.stages):
        if stage.device != device:
            continue
        for turn, blocks in enumerate(turns(plan, number)):
            if number == turn == 0 and device == plan.head:
                continue  # above
            for lane in range(lanes):
                if turn == 0:
                    yield Await(number, lane,
                                plan.stages[number - 1].device if number else plan.head)
                yield from _run(plan, number, blocks, lane, lanes)


def turns(plan: SegmentPlan, number: int) -> list[list[int]]:
    """
    Return the blocks of a stage, cut where a slot comes a second time.

    All lanes pass one turn before the next one, as the slot can turn over only then.
    """
    found: list[list[int]] = [[]]
    used: set[tuple[str, int]] = set()
    for block in plan.stages[number].blocks:
        slot = plan.place[block]
        if slot in used:
            found.append([])
            used.clear()
        used.add(slot)
        found[-1].append(block)
    return found


def _run(plan: SegmentPlan, number: int, blocks: list[int], lane: int, lanes: int,
         ) -> Iterator[Action]:
    """Yield the computing of a turn for a lane, and what follows from it."""
    stage = plan.stages[number]
    for block in blocks:
        _, slot = plan.place[block]
        following = plan.following[block]
        if lane == 0:
            yield Ready(block, slot)
        yield Run(block, lane)
        if lane == lanes - 1 and following != block:
            yield Load(following, slot)
    after = plan.stages[number + 1].device if number + 1 < len(plan.stages) else plan.head
    if blocks[-1] == stage.stop - 1 and after != stage.device:
        yield Send(number + 1, lane, after)
