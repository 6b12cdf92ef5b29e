# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which devices hold which layers, and what each of them reads from its disk in every round.

All layers of a model are alike, so a plan is chosen by numbers: of segments S, and for each
device i of layers x, of which n_A attention blocks and n_M MLPs are streamed through
``ceil(n / min(S, x))`` slots each.  A round takes (Eq. 1 of the paper, made consistent)::

    T = max( sum_i x_i c_i + head + hops,  max_i L_i )      L_i = sum of (load + run) of what
                                                                  is streamed on device i

since what is streamed runs first in its segment, and is read while all else goes on.  For given
devices and S, L_i grows with x_i alone: so for a bound on L_i each device has a most x_i, the
fastest are filled first, and the best bound is found by bisection over the values that L_i
can have.  Subsets of devices and numbers of segments are tried one by one: the answer is exact.
From the best of these, and layers given out by memory, `plan_search` goes on by the clock of
`play`.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
import math

from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.estimate import play
from intradp_ros.systems.language.expert_reads import part_read
from intradp_ros.systems.language.lanes import PAGE
from intradp_ros.systems.language.memory import SLOT_MARGIN
from intradp_ros.systems.language.plan_search import fixed_bytes, Owners, Search
from intradp_ros.systems.language.segment_plan import SegmentPlan, Step

#: Most plans of different subsets and numbers of segments that are played, the best by `T` first;
#: none of which `T` is so many times the least.
PLAYED, HOPELESS = 64, 1.25
MOST_DEVICES = 8
#: Segments in which layers are given out by memory.
BY_MEMORY = 4
#: Tokens that the first step of a plan has room for, in keys and values.
FIRST_TOKENS = 256


class NoPlanError(ValueError):
    """The model does not fit; the text says what is short."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a device gets: layers, and how many of its attention blocks and MLPs are streamed."""

    layers: int
    attention: int = 0
    mlp: int = 0
    seconds: float = 0.0  # L_i


@dataclass(frozen=True)
class Choice:
    """A plan by numbers, with its `T` (s)."""

    seconds: float
    segments: int
    shares: dict[str, Share]


@dataclass(frozen=True)
class Planned:
    """A plan, its predicted seconds a token in its last step, and the answer in words."""

    plan: SegmentPlan
    seconds: float
    answer: str


def plan_language(costs: LanguageCosts, head: str, devices: Collection[str] = (),
                  ) -> Planned:
    """
    Return the plan of the least predicted seconds a token.

    `devices` are those that may take part; all of the topology by default.

    :raises NoPlanError: if the model does not fit.
    """
    names = tuple(name for name in costs.topology.names if name in devices or not devices)
    names = _fastest(costs, names)
    choices = sorted(choose(costs, head, names), key=lambda choice: choice.seconds)
    built = [build(costs, head, choice) for choice in choices[:PLAYED]
             if choice.seconds <= HOPELESS * choices[0].seconds]
    with suppress(NoPlanError):
        built.append(plain_pipeline(costs, head, names))
    search = Search(costs, head, names)
    if not search.head_has_room:
        raise NoPlanError(_short(costs, head, names))
    numbers = {name: number for number, name in enumerate(names)}
    starts = [tuple(numbers[name] for name in plan.owner[::2]) for plan in built]
    # as they are among the candidates, so that none of them is better
    played = [(play(plan, costs).seconds, plan) for plan in built]
    if found := search.best([*starts, *_by_memory(costs, head, names)]):
        played.insert(0, found)
    if not played:
        raise NoPlanError(_short(costs, head, names))
    seconds, plan = min(played, key=lambda each: each[0] * (1 - 1e-9 * (each is played[0])))
    plan = with_steps(costs, head, plan)
    rounds = max(sum(stage.device == name for stage in plan.stages) for name in plan.slots)
    how = f'{rounds} segments' if rounds > 1 else 'one stage each'
    dropped = [name for name in names if name not in plan.slots and name != head]
    answer = f'alone on {next(iter(plan.slots))}' if len(plan.slots) == 1 else \
        f'{how} over {", ".join(plan.slots)}'
    lack, largest = min((_lacking(costs, head, name), name) for name in names)
    if len(plan.slots) > 1 and lack > 0:
        answer += f'; to hold all, {largest} lacks {math.ceil(lack / 1e6)} MB'
    if dropped:
        answer += f'; drop {", ".join(dropped)}: without them it is faster'
    return Planned(plan, seconds, answer)


def choose(costs: LanguageCosts, head: str, names: tuple[str, ...]) -> Iterator[Choice]:
    """Yield the best numbers for each subset of devices and each number of segments."""
    names = _fastest(costs, names)
    layers = costs.manifest.layers
    if costs.topology.device(head).memory_bytes < fixed_bytes(costs, head, head):
        return  # it has embedding and head, also where it computes nothing
    head_seconds = costs.head_seconds(head)
    tables: dict[tuple[str, int], list[Share | None]] = {}
    for segments in range(1, layers + 1):
        for name in names:
            tables[name, segments] = [None, *(
                share(costs, head, name, x, segments) for x in range(1, layers + 1))]
    for size in range(1, len(names) + 1):
        for subset in combinations(names, size):
            ring = ring_order(subset, head)
            for segments in range(1, -(-layers // size) + 1):
                fixed = head_seconds + hop_seconds(costs, head, ring, segments)
                found = _fill(costs, {n: tables[n, segments] for n in ring}, layers, fixed)
                if found:
                    yield Choice(found[0], segments, found[1])


def _fastest(costs: LanguageCosts, names: tuple[str, ...]) -> tuple[str, ...]:
    return names if len(names) <= MOST_DEVICES else tuple(
        sorted(names, key=lambda n: -costs.topology.device(n).speed)[:MOST_DEVICES])


def _by_memory(costs: LanguageCosts, head: str, names: tuple[str, ...]) -> Iterator[Owners]:
    """Yield owners of layers in few segments: as many layers as each device has memory for."""
    layers = costs.manifest.layers
    numbers = {name: number for number, name in enumerate(names)}
    for size in range(1, len(names) + 1):
        for subset in combinations(names, size):
            ring = ring_order(subset, head)
            room = [max(1.0, min(1e15, costs.topology.device(n).memory_bytes)
                        - fixed_bytes(costs, head, n)) for n in ring]
            for segments in range(1, min(BY_MEMORY, -(-layers // size)) + 1):
                each = _even_by(layers, [r / sum(room) for r in room])
                yield tuple(numbers[name] for segment in range(segments)
                            for name, count in zip(ring, each)
                            for _ in range(_even(count, segments)[segment]))


def share(costs: LanguageCosts, head: str, name: str, layers: int, segments: int) -> Share | None:
    """Return what a device with so many layers streams, at the least `L_i`; None: no room."""
    manifest, device = costs.manifest, costs.topology.device(name)
    attention, mlp = (block.nbytes + SLOT_MARGIN for block in manifest.blocks[:2])
    room = device.memory_bytes - fixed_bytes(costs, head, name) \
        - layers * _pages(costs) * PAGE * manifest.kv_bytes
    lacking = layers * (attention + mlp) - room
    if lacking <= 0:
        return Share(layers)
    turns = min(segments, layers)
    if turns < 2 or not costs.disk(name):
        return None
    each_a = costs.load(name, 0) + costs.block(name, 0)
    each_m = costs.load(name, 1) + costs.block(name, 1) \
        + costs.experts(name, 1) * part_read(manifest, 0)
    best: Share | None = None
    for streamed_a in range(layers + 1):
        saved = (streamed_a - -(-streamed_a // turns)) * attention
        wanted = max(0, math.ceil((lacking - saved) / mlp - 1e-9))
        streamed_m = wanted + -(-wanted // (turns - 1))
        if streamed_m <= layers:
            seconds = streamed_a * each_a + streamed_m * each_m
            if best is None or seconds < best.seconds:
                best = Share(layers, streamed_a, streamed_m, seconds)
    return best


def ring_order(names: Collection[str], head: str) -> tuple[str, ...]:
    """Return devices in the order of the ring: the head first, if it computes."""
    return tuple(sorted(names, key=lambda name: name != head))


def hop_seconds(costs: LanguageCosts, head: str, ring: tuple[str, ...], segments: int) -> float:
    """Return the seconds of all hops of a round: the ring, so often, from the head and back."""
    if ring == (head,):
        return 0.0
    order = ring * segments if len(ring) > 1 else ring
    ends = (head, *order, head)
    return sum(costs.hop_seconds(a, b) for a, b in zip(ends, ends[1:]) if a != b)


def build(costs: LanguageCosts, head: str, choice: Choice) -> SegmentPlan:
    """Return the plan that numbers describe."""
    ring = ring_order(choice.shares, head)
    slots: dict[str, list[list[int]]] = {}
    turn: dict[tuple[str, int], list[list[int]]] = {}
    counts = {name: _even(choice.shares[name].layers, choice.segments) for name in ring}
    dynamic = {}
    for name in ring:
        own = choice.shares[name]
        for kind, streamed in ((0, own.attention), (1, own.mlp)):
            dynamic[name, kind] = _within(streamed, counts[name])
            turn[name, kind] = [[] for _ in range(max(dynamic[name, kind], default=0))]
        slots[name] = []
    layer = 0
    for segment in range(choice.segments):
        for name in ring:
            for place in range(counts[name][segment]):
                for kind in (0, 1):
                    block = 2 * layer + kind
                    if place < dynamic[name, kind][segment]:
                        turn[name, kind][place].append(block)
                    else:
                        slots[name].append([block])
                layer += 1
    return SegmentPlan(
        costs.manifest.digest, head, len(costs.manifest.blocks),
        {name: tuple(map(tuple, slots[name] + turn[name, 0] + turn[name, 1])) for name in ring},
        _pages(costs))


def with_steps(costs: LanguageCosts, head: str, plan: SegmentPlan) -> SegmentPlan:
    """
    Return a plan that begins with few pages and more resident blocks, and steps up to all.

    The layers stay with their devices: so a step is taken without computing anything anew.
    """
    names = tuple(plan.slots)
    found: list[SegmentPlan] = []
    tokens = FIRST_TOKENS
    while tokens < costs.tokens:
        found.append(Search(replace(costs, tokens=tokens), head, names).with_room(plan))
        tokens *= 2
    found = [made for made, after in zip(found, [*found[1:], plan])
             if _streamed_bytes(costs, made) < _streamed_bytes(costs, after)]
    if not found:
        return plan
    first, *others = *found, plan
    return replace(first, steps=tuple(Step(p.pages, p.slots) for p in others))


def _lacking(costs: LanguageCosts, head: str, name: str) -> float:
    """Return the bytes that a device lacks to compute all by itself; below 0 what is left."""
    blocks = len(costs.manifest.blocks)
    alone = SegmentPlan('-', head, blocks, {name: tuple((b,) for b in range(blocks))},
                        _pages(costs))
    return costs.need(alone, name).total - costs.topology.device(name).memory_bytes


def _streamed_bytes(costs: LanguageCosts, plan: SegmentPlan) -> int:
    return sum(costs.manifest.blocks[b].nbytes for n in plan.slots for b in plan.streamed(n))


def plain_pipeline(costs: LanguageCosts, head: str, devices: Collection[str] = ()) -> SegmentPlan:
    """
    Return a pipeline with offloading, to compare with: one stage for each device.

    Layers go by memory; what does not fit is read through one slot, layer by layer.

    :raises NoPlanError: if the model does not fit.
    """
    names = ring_order([n for n in costs.topology.names if n in devices or not devices], head)
    manifest = costs.manifest
    attention, mlp = (block.nbytes + SLOT_MARGIN for block in manifest.blocks[:2])
    each = attention + mlp + _pages(costs) * PAGE * manifest.kv_bytes
    room = {n: min(float(each * manifest.layers), max(0.0, costs.topology.device(
        n).memory_bytes - fixed_bytes(costs, head, n))) for n in names}
    total = sum(room.values())
    if not total:
        raise NoPlanError(_short(costs, head, names))
    shares = _even_by(manifest.layers, [room[n] / total for n in names])
    slots: dict[str, tuple[tuple[int, ...], ...]] = {}
    first = 0
    for name, count in zip(names, shares):
        own = range(first, first + count)
        kept = int(room[name] // each)
        if kept < count:  # one slot for all that is read
            space = room[name] - count * (each - attention - mlp)
            kept = int(space // (attention + mlp)) - 1
            if kept < 0 or not costs.disk(name):
                raise NoPlanError(_short(costs, head, names))
        read, stay = own[:count - kept] if kept < count else (), own[max(0, count - kept):]
        slots[name] = tuple((2 * layer + kind,) for layer in stay for kind in (0, 1)) + (
            (tuple(2 * layer for layer in read), tuple(2 * layer + 1 for layer in read))
            if read else ())
        first += count
    return SegmentPlan(manifest.digest, head, len(manifest.blocks),
                       {n: s for n, s in slots.items() if s}, _pages(costs))


def _fill(costs: LanguageCosts, tables: dict[str, list[Share | None]], layers: int,
          fixed: float) -> tuple[float, dict[str, Share]] | None:
    """Return the least `T`, and the shares that reach it; None if the layers do not fit."""
    order = sorted(tables, key=lambda name: (costs.block(name, 0) + costs.block(name, 1)))
    bounds = sorted({s.seconds for table in tables.values() for s in table if s})

    def filled(bound: float) -> tuple[float, dict[str, Share]] | None:
        most = {name: max((s.layers for s in tables[name] if s and s.seconds <= bound), default=0)
                for name in order}
        if not all(most.values()) or sum(most.values()) < layers:
            return None
        left, taken = layers - len(order), dict.fromkeys(order, 1)
        for name in order:
            more = min(left, most[name] - 1)
            taken[name], left = taken[name] + more, left - more
        if left:
            return None
        shares = {name: tables[name][count] for name, count in taken.items()}
        if not all(shares.values()):
            return None
        computing = fixed + sum(
            count * (costs.block(name, 0) + costs.block(name, 1)) for name, count in taken.items())
        return max(computing, max(s.seconds for s in shares.values() if s)), \
            {name: s for name, s in shares.items() if s}

    low, high, best = 0, len(bounds) - 1, None
    while low <= high:  # T falls with the bound until the bound itself is T
        middle = (low + high) // 2
        found = filled(bounds[middle])
        if found and (best is None or found[0] < best[0]):
            best = found
        if found and found[0] <= bounds[middle] + 1e-15 or low == high and found:
            high = middle - 1
        elif found and found[0] > bounds[middle]:
            low = middle + 1
        else:
            low = middle + 1
    return best


def _pages(costs: LanguageCosts) -> int:
    return -(-costs.tokens // PAGE)


def _even(count: int, parts: int) -> list[int]:
    return [(k + 1) * count // parts - k * count // parts for k in range(parts)]


def _even_by(count: int, weights: list[float]) -> list[int]:
    ends = [0]
    for k in range(len(weights)):
        ends.append(round(count * sum(weights[:k + 1]) / sum(weights)))
    return [b - a for a, b in zip(ends, ends[1:])]


def _within(count: int, rooms: list[int]) -> list[int]:
    """Divide a count over places as evenly as their rooms let."""
    out = [0] * len(rooms)
    for _ in range(count):
        k = min((k for k in range(len(rooms)) if out[k] < rooms[k]), key=lambda k: out[k])
        out[k] += 1
    return out


def _short(costs: LanguageCosts, head: str, names: tuple[str, ...]) -> str:
    """Say how much memory is short: the same more on every device lets a plan exist."""
    low, high = 0.0, float(costs.manifest.nbytes) + 1e9
    while high - low > 1e5:
        more = (low + high) / 2
        topology = replace(costs.topology, devices=tuple(
            replace(d, memory_bytes=d.memory_bytes + more) for d in costs.topology.devices))
        fits = next(choose(replace(costs, topology=topology), head, names), None) is not None
        low, high = (low, more) if fits else (more, high)
    return (f'{costs.manifest.name} does not fit: each of {", ".join(names)} is '
            f'{math.ceil(high / 1e6)} MB short')
