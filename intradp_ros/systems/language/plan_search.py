# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Owners of layers and slots of blocks, looked for by the clock that plays plans.

From given owners slots are found by trying how many blocks of each kind a device reads and in
how many turns, then single blocks and layers change places while that is better.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from intradp_ros.core.numba_compile import machine_code
from intradp_ros.systems.language import plan_kernels
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.expert_reads import part_read
from intradp_ros.systems.language.lanes import PAGE
from intradp_ros.systems.language.memory import SLOT_MARGIN
from intradp_ros.systems.language.plan_kernels import Floats, Ints, NEVER, Tables, Work
from intradp_ros.systems.language.segment_plan import SegmentPlan

#: The device of each layer, by its number.
Owners = tuple[int, ...]
#: Most ways to give layers to devices of which all are looked at: compiled, and without numba.
_ALL, _ALL_PLAIN = 4096, 128
#: Plans that are changed further; looks at changed slots and owners for each.
_CHANGED, _LOOKS, _OWNERS = 12, 20_000, 400
#: The same of models so small that all owners are looked at.
_CHANGED_SMALL = 96
_CHANGED_PLAIN, _LOOKS_PLAIN, _OWNERS_PLAIN = 1, 400, 6


class Search:
    """Plans for some devices of a topology; `head` has embedding and requests."""

    def __init__(self, costs: LanguageCosts, head: str, names: tuple[str, ...]) -> None:
        self.costs, self.head = costs, head
        self.names = names if head in names else (*names, head)
        self._usable = len(names)
        self.tables = _tables(costs, head, self.names)
        self._blocks, devices = len(costs.manifest.blocks), len(self.names)
        self._work = Work._make((*np.zeros((4, self._blocks), np.int64),
                                 *np.zeros((2, self._blocks)), *np.zeros((2, devices))))
        self._spare = np.zeros(2 * self._blocks, np.int64)
        self._least, self._fill, self._slots, self._owners, self._sets = _compiled()[0]
        self._is_compiled = _compiled()[1]

    @property
    def head_has_room(self) -> bool:
        """Return whether embedding, head and one chunk fit on the head."""
        return bool(self.tables.room[self.tables.head] >= 0)

    def best(self, starts: Iterable[Owners]) -> tuple[float, SegmentPlan] | None:
        """
        Return the best plan, and its seconds, from owners to begin with; None if none fits.

        The first ones should be good: those whose computing alone takes longer are left out.
        """
        layers, found = self._blocks // 2, list[tuple[float, Owners, Ints]]()
        best = NEVER
        every: Iterable[Owners] = ()
        if self._usable ** layers <= (_ALL if self._is_compiled else _ALL_PLAIN):
            every = sorted(product(range(self._usable), repeat=layers), key=self._computing)
        for owners in dict.fromkeys((*starts, *every)):
            if self._computing(owners) >= best:
                continue
            slots = np.zeros(self._blocks, np.int64)
            seconds = self._fill(self.tables, _by_block(owners), slots, self._work, self._spare)
            if seconds < NEVER:
                found.append((seconds, owners, slots))
                best = min(best, seconds)
        found.sort(key=lambda each: each[:2])
        changed = _CHANGED_PLAIN if not self._is_compiled else \
            _CHANGED_SMALL if every else _CHANGED
        ends: list[tuple[float, Ints, Ints]] = []
        for seconds, owners, slots in found[:changed]:
            if self._computing(owners) < best * (1 - 1e-9) or not ends:
                ends.append(self._changed(seconds, owners, slots))
                best = min(best, ends[-1][0])
        if not ends:
            return None
        seconds, owner, slots = min(ends, key=lambda each: (each[0], tuple(each[1])))
        return seconds, self._plan(owner, slots)

    def with_room(self, plan: SegmentPlan) -> SegmentPlan:
        """Return a plan with the same owners, for what these costs leave of memory."""
        numbers = {name: number for number, name in enumerate(self.names)}
        owner = np.array([numbers[name] for name in plan.owner], np.int64)
        slots = np.zeros(self._blocks, np.int64)
        seconds = self._fill(self.tables, owner, slots, self._work, self._spare)
        self._slots(self.tables, owner, slots, seconds, self._looks, self._work)
        return self._plan(owner, slots)

    @property
    def _looks(self) -> int:
        return _LOOKS if self._is_compiled else _LOOKS_PLAIN

    def _computing(self, owners: Owners) -> float:
        return float(self._least(self.tables, _by_block(owners)))

    def _changed(self, seconds: float, owners: Owners, slots: Ints,
                 ) -> tuple[float, Ints, Ints]:
        """Return a plan to which no small change is better."""
        owner, budget = _by_block(owners), _OWNERS if self._is_compiled else _OWNERS_PLAIN
        seconds = self._other_slots(seconds, owner, slots)
        if self._usable == len(self.names):
            before = seconds
            seconds = self._owners(self.tables, owner, slots, seconds, budget, self._work,
                                   self._spare)
            if seconds < before:
                seconds = self._other_slots(seconds, owner, slots)
        return seconds, owner, slots

    def _other_slots(self, seconds: float, owner: Ints, slots: Ints) -> float:
        """Change slots for the better; return the seconds."""
        if self._is_compiled:
            seconds = self._sets(self.tables, owner, slots, seconds, self._work, self._spare)
        return float(self._slots(self.tables, owner, slots, seconds, self._looks, self._work))

    def _plan(self, owner: Ints, slots: Ints) -> SegmentPlan:
        """Return the plan that owners and slots describe; devices in the order of their turn."""
        given: dict[str, dict[int, list[int]]] = {}
        for block, (device, slot) in enumerate(zip(owner.tolist(), slots.tolist())):
            given.setdefault(self.names[device], {}).setdefault(slot, []).append(block)
        order = sorted(given, key=lambda name: name != self.head)
        return SegmentPlan(
            self.costs.manifest.digest, self.head, self._blocks, {
                name: tuple(sorted(map(tuple, given[name].values()),
                                   key=lambda slot: (len(slot) > 1, slot)))
                for name in order}, -(-self.costs.tokens // PAGE))


def fixed_bytes(costs: LanguageCosts, head: str, name: str) -> int:
    """Return what a device needs whatever it computes."""
    empty = SegmentPlan('-', head, 1, {name: ((0,),)}, 1)
    need = costs.need(empty, name)
    return need.activations + need.head


def _by_block(owners: Owners) -> Ints:
    return np.repeat(np.array(owners, np.int64), 2)


def _tables(costs: LanguageCosts, head: str, names: tuple[str, ...]) -> Tables:
    blocks = range(len(costs.manifest.blocks))
    room: Floats = np.array([min(1e18, costs.topology.device(n).memory_bytes)
                             - fixed_bytes(costs, head, n) for n in names])
    return Tables(
        np.array([[costs.block(n, b) for b in blocks] for n in names]),
        np.array([[min(NEVER, costs.load(n, b)) for b in blocks] for n in names]),
        np.array([[costs.experts(n, b) for b in blocks] for n in names]),
        np.array([part_read(costs.manifest, turns) for turns in range(len(blocks) + 1)]),
        np.array([[costs.hop_seconds(a, b) for b in names] for a in names]),
        np.array([block.nbytes + SLOT_MARGIN for block in costs.manifest.blocks], float),
        room, float(-(-costs.tokens // PAGE) * PAGE * costs.manifest.kv_bytes),
        names.index(head), costs.head_seconds(head))


def _least(tables: Tables, owner: Ints) -> float:
    return plan_kernels.least_seconds(tables, owner)


def _fill(tables: Tables, owner: Ints, slots: Ints, work: Work, spare: Ints) -> float:
    return plan_kernels.fill_slots(tables, owner, slots, work, spare)


def _change_slots(tables: Tables, owner: Ints, slots: Ints, best: float, budget: int,
                  work: Work) -> float:
    return plan_kernels.change_slots(tables, owner, slots, best, budget, work)


def _change_owners(tables: Tables, owner: Ints, slots: Ints, best: float, budget: int,
                   work: Work, spare: Ints) -> float:
    return plan_kernels.change_owners(tables, owner, slots, best, budget, work, spare)


def _change_sets(tables: Tables, owner: Ints, slots: Ints, best: float, work: Work,
                 spare: Ints) -> float:
    return plan_kernels.change_sets(tables, owner, slots, best, work, spare)


@cache
def _compiled() -> tuple[tuple[Callable[..., Any], ...], bool]:
    """Return the functions of a search, and whether they are machine code."""
    entries = (_least, _fill, _change_slots, _change_owners, _change_sets)
    found = machine_code((plan_kernels,), entries, inline=False)
    return (found, True) if found else (entries, False)
