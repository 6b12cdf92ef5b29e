# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which device holds which blocks, and which of them take turns in a slot of its memory.

A device has slots; each has the blocks that take turns in it, in order.  A block that is
alone in its slot is resident.  Where the owner changes from one block to the next, hidden
states cross: what lies between is a *stage*; a *segment* is a pass over all devices.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from intradp_ros.cluster.plan_id import PlanError
from intradp_ros.core.limits import MAX_PEERS
from intradp_ros.systems.language.lanes import MAX_PAGES
from intradp_ros.systems.language.manifest import MAX_LAYERS

FORMAT = 'segments/1'
MAX_NAME, MAX_STEPS = 64, 16


@dataclass(frozen=True, slots=True)
class Stage:
    """Consecutive blocks ``first .. stop-1`` on one device."""

    device: str
    first: int
    stop: int

    @property
    def blocks(self) -> range:
        """Return its blocks."""
        return range(self.first, self.stop)


Slots = Mapping[str, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class Step:
    """Room for more pages of keys and values, and the slots that leave it."""

    pages: int
    slots: Slots


@dataclass(frozen=True)
class SegmentPlan:
    """
    A plan for a model of `blocks` blocks; `head` owns embedding, head, sampling and requests.

    `slots` are those of each device in the order of the ring; `pages` is the number of
    pages of keys and values that every device has room for.  The head may go on to a later one
    of `steps` when requests need more: each leaves all blocks with their devices, and reads more
    of them from disk.

    `cache` names keys and values; where a plan `keeps` them, those of an earlier plan of the same
    name go on, and those of layers that have another device now are moved there.  It is `exact`
    where all devices compute the same bits.

    :raises PlanError: if a block is nowhere or twice, or there is nothing to compute.
    """

    model: str
    head: str
    blocks: int
    slots: Slots
    pages: int
    steps: tuple[Step, ...] = ()
    cache: str = ''
    keeps: bool = False
    exact: bool = True

    def __post_init__(self) -> None:
        """Look whether each block is somewhere, once, and stays there in all steps."""
        pages = self.pages
        for step in self.steps:
            if {n: sorted(b for slot in own for b in slot) for n, own in step.slots.items()} != \
                    {n: sorted(b for slot in own for b in slot) for n, own in self.slots.items()}:
                raise PlanError('a step gives blocks to other devices')
            if step.pages <= pages:
                raise PlanError('steps must have ever more pages')
            pages = step.pages
            self._check_order(step.slots)
        placed = sorted(block for slots in self.slots.values() for slot in slots for block in slot)
        if not placed or placed != list(range(self.blocks)):
            raise PlanError(f'the {self.blocks} blocks of the model are not each placed once')
        if self.pages < 1:
            raise PlanError('a plan without room for keys and values')
        self._check_order(self.slots)

    @staticmethod
    def _check_order(slots: Slots) -> None:
        if any(not slot or list(slot) != sorted(slot) for own in slots.values() for slot in own):
            raise PlanError('blocks of a slot must be in the order in which they are computed')

    def at(self, step: int) -> SegmentPlan:
        """Return the plan as it is after so many steps, without any further."""
        found = Step(self.pages, self.slots) if step == 0 else self.steps[step - 1]
        return replace(self, pages=found.pages, slots=found.slots, steps=())

    def step_for(self, pages: int) -> int:
        """Return the first step with room for so many pages; the last if none has."""
        all_ = (self.pages, *(step.pages for step in self.steps))
        return next((k for k, room in enumerate(all_) if room >= pages), len(all_) - 1)

    @property
    def most_pages(self) -> int:
        """Return the pages of the last step."""
        return self.steps[-1].pages if self.steps else self.pages

    @property
    def participants(self) -> tuple[str, ...]:
        """Return all devices that have a part, the head first."""
        return self.head, *(name for name in self.slots if name != self.head)

    @cached_property
    def owner(self) -> tuple[str, ...]:
        """Return the device of each block."""
        return tuple(name for name, _ in self.place)

    @cached_property
    def place(self) -> tuple[tuple[str, int], ...]:
        """Return the device and the slot of each block."""
        places = {block: (name, number) for name, slots in self.slots.items()
                  for number, slot in enumerate(slots) for block in slot}
        return tuple(places[block] for block in range(self.blocks))

    @cached_property
    def following(self) -> tuple[int, ...]:
        """Return the block that comes into the slot of each block after it; itself if alone."""
        after = {block: slot[(at + 1) % len(slot)] for slots in self.slots.values()
                 for slot in slots for at, block in enumerate(slot)}
        return tuple(after[block] for block in range(self.blocks))

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Return the stages in order."""
        found: list[Stage] = []
        for block, name in enumerate(self.owner):
            if found and found[-1].device == name:
                found[-1] = Stage(name, found[-1].first, block + 1)
            else:
                found.append(Stage(name, block, block + 1))
        return tuple(found)

    @property
    def hops(self) -> int:
        """Return how often a hidden state crosses in a round, to the head and back included."""
        ends = self.head, *(stage.device for stage in self.stages), self.head
        return sum(a != b for a, b in zip(ends, ends[1:]))

    def blocks_of(self, device: str) -> tuple[int, ...]:
        """Return the blocks of a device in order."""
        return tuple(sorted(block for slot in self.slots.get(device, ()) for block in slot))

    def streamed(self, device: str) -> tuple[int, ...]:
        """Return the blocks that a device reads from its disk in every round."""
        return tuple(sorted(block for slot in self.slots.get(device, ()) if len(slot) > 1
                            for block in slot))

    def layers(self, device: str) -> tuple[int, ...]:
        """Return the layers whose keys and values a device has."""
        return tuple(block // 2 for block in self.blocks_of(device) if block % 2 == 0)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return {'format': FORMAT, 'model': self.model, 'head': self.head, 'blocks': self.blocks,
                'pages': self.pages, 'slots': _plain(self.slots), 'cache': self.cache,
                'keeps': self.keeps, 'exact': self.exact, 'steps': [
                    {'pages': step.pages, 'slots': _plain(step.slots)} for step in self.steps]}


def parse_plan(data: Any) -> SegmentPlan:
    """Return the plan that plain data describe; PlanError if they describe none."""
    try:
        if data['format'] != FORMAT:
            raise PlanError(f'a plan of format {str(data["format"])[:40]!r}, not {FORMAT}')
        blocks = _count(data['blocks'], 2 * MAX_LAYERS)
        steps = data.get('steps', [])
        if not isinstance(steps, list) or len(steps) > MAX_STEPS:
            raise PlanError(f'steps that are not a list of at most {MAX_STEPS}')
        cache, keeps = data.get('cache', ''), data.get('keeps', False)
        return SegmentPlan(
            _name(data['model']), _name(data['head']), blocks, _slots(data['slots'], blocks),
            _count(data['pages'], MAX_PAGES), tuple(
                Step(_count(step['pages'], MAX_PAGES), _slots(step['slots'], blocks))
                for step in steps), cache and _name(cache), keeps is True,
            data.get('exact', True) is True)
    except (KeyError, TypeError, AttributeError) as error:
        raise PlanError(f'no plan of segments: {type(error).__name__} {str(error)[:80]}') \
            from None


def _plain(slots: Slots) -> dict[str, list[list[int]]]:
    return {name: [list(slot) for slot in own] for name, own in slots.items()}


def _slots(data: Any, blocks: int) -> Slots:
    if not isinstance(data, dict) or len(data) > MAX_PEERS:
        raise PlanError(f'slots that are not a table of at most {MAX_PEERS} devices')
    if sum(len(slot) for own in data.values() for slot in own) != blocks:
        raise PlanError(f'the {blocks} blocks of the model are not each placed once')
    return {_name(name): tuple(tuple(_count(block, blocks - 1, 0) for block in slot)
                               for slot in own) for name, own in data.items()}


def _name(item: Any) -> str:
    if not isinstance(item, str) or not 1 <= len(item) <= MAX_NAME:
        raise PlanError(f'{str(item)[:40]!r} is not a name')
    return item


def _count(item: Any, most: int, least: int = 1) -> int:
    if type(item) is not int or not least <= item <= most:
        raise PlanError(f'{str(item)[:40]!r} is not a whole number in {least}..{most}')
    return item
