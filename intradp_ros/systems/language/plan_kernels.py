# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a plan takes in a round of one lane, and plans nearby: plain Python that numba compiles.

A plan is an owner and a slot for each block.  Slots have any numbers below the number of blocks;
those of two devices differ.  `round_seconds` says what `estimate.play` does, for one lane.
"""
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: Rounds, as `estimate.play` has them: the first ones are not like the others.
ROUNDS = 4
#: Blocks of a device of which all sets are tried as one slot, and all pairs of sets as two.
ONE, TWO = 12, 8
#: A plan that does not fit.
NEVER = 1e30
#: Part of a round's time by which a change must be better.
_BETTER = 1e-9


class Tables(NamedTuple):
    """
    What blocks cost: seconds of running and loading by device and block, of hops by two devices.

    `experts` are seconds of reading all experts of a block; `part` is the part of them that is
    read as it is chosen where so many blocks take turns (`expert_reads`).

    `sizes` are bytes of blocks in a slot; `cache` those of keys and values of a layer; `room` what
    a device has for both.  `head` is the head's number, `last` its seconds of sampling.
    """

    run: Floats
    load: Floats
    experts: Floats
    part: Floats
    hop: Floats
    sizes: Floats
    room: Floats
    cache: float
    head: int
    last: float


class Work(NamedTuple):
    """Memory to compute in; by block (`follow` to `ready`) and device."""

    follow: Ints
    latest: Ints
    first: Ints
    turns: Ints
    largest: Floats
    ready: Floats
    disk: Floats
    need: Floats


def round_seconds(tables: Tables, owner: Ints, slots: Ints, work: Work) -> float:
    """Return the seconds of a round; `NEVER` for a plan that does not fit."""
    count, devices = owner.size, tables.room.size
    for k in range(count):
        work.latest[k] = -1
        work.turns[k] = 0
        work.largest[k] = 0.0
    for d in range(devices):
        work.need[d] = 0.0
        work.disk[d] = 0.0
    for b in range(count):
        slot = slots[b]
        if work.latest[slot] < 0:
            work.first[slot] = b
        else:
            work.follow[work.latest[slot]] = b
            if tables.sizes[b] != work.largest[slot]:
                work.turns[slot] = -count  # unlike ones: nothing stays there
        work.turns[slot] += 1
        work.latest[slot] = b
        work.largest[slot] = max(work.largest[slot], tables.sizes[b])
        if b % 2 == 0:
            work.need[owner[b]] += tables.cache
    for slot in range(count):
        if work.latest[slot] >= 0:
            work.follow[work.latest[slot]] = work.first[slot]
            work.need[owner[work.latest[slot]]] += work.largest[slot]
            work.ready[work.first[slot]] = 0.0
    for d in range(devices):
        if work.need[d] > tables.room[d]:
            return NEVER
    now, began = 0.0, 0.0
    for number in range(ROUNDS):
        at = tables.head
        for b in range(count):
            d = owner[b]
            if d != at:
                now += tables.hop[at, d]
                at = d
            following = work.follow[b]
            if following == b:
                now += tables.run[d, b]
                continue
            now = max(now, work.ready[b])
            if tables.experts[d, b] > 0.0:
                now += _read_experts(tables, owner, slots, b, now, work)
            now += tables.run[d, b]
            work.disk[d] = max(work.disk[d], now) + tables.load[d, following]
            work.ready[following] = work.disk[d]
        if at != tables.head:
            now += tables.hop[at, tables.head]
        now += tables.last
        if number == 0:
            began = now
    seconds = (now - began) / (ROUNDS - 1)
    for d in range(devices):
        work.need[d] = 0.0
    for b in range(count):
        if work.follow[b] != b:  # no round of many is shorter than a disk's reading
            work.need[owner[b]] += tables.load[owner[b], b]
            seconds = max(seconds, work.need[owner[b]])
    return seconds


def _read_experts(tables: Tables, owner: Ints, slots: Ints, b: int, now: float, work: Work,
                  ) -> float:
    """Return how long a block waits for experts, as `estimate` has it."""
    d = owner[b]
    ahead = min(tables.experts[d, b], max(0.0, now - work.disk[d]))
    work.disk[d] += ahead
    seconds = (tables.experts[d, b] - ahead) * tables.part[max(0, work.turns[slots[b]])]
    if seconds > 0.0:
        work.disk[d] = max(work.disk[d], now) + seconds
        for other in range(owner.size):
            if owner[other] == d and work.ready[other] > now:
                work.ready[other] += seconds
    return float(seconds)


def least_seconds(tables: Tables, owner: Ints) -> float:
    """Return what owners take with all blocks in memory: no slots are faster."""
    total, at = tables.last, tables.head
    for b in range(owner.size):
        d = owner[b]
        if d != at:
            total += tables.hop[at, d]
            at = d
        total += tables.run[d, b]
    return total + (tables.hop[at, tables.head] if at != tables.head else 0.0)


def fill_slots(tables: Tables, owner: Ints, slots: Ints, work: Work, spare: Ints) -> float:
    """
    Find slots for given owners; return the seconds of a round, or `NEVER`.

    A device that lacks room reads so many of its blocks of each kind, dealt out in turn to so many
    slots; all such numbers are tried, device by device, twice.  `spare` is memory (2 x blocks).
    """
    count, devices = owner.size, tables.room.size
    for b in range(count):
        slots[b] = b
    short = False
    for d in range(devices):
        if _lack(tables, owner, d) > 0:
            short = True
            if not _tightest(tables, owner, slots, d):
                return NEVER
    best = round_seconds(tables, owner, slots, work)
    if not short:
        return best
    for _ in range(2):
        before = best
        for d in range(devices):
            if _lack(tables, owner, d) > 0:
                best = _best_deal(tables, owner, slots, d, best, work, spare)
        if best >= before * (1 - _BETTER):
            break
    return best


def _lack(tables: Tables, owner: Ints, device: int) -> float:
    """Return the bytes that a device lacks for all of its blocks."""
    total = -float(tables.room[device])
    for b in range(owner.size):
        if owner[b] == device:
            total += tables.sizes[b] + (tables.cache if b % 2 == 0 else 0.0)
    return total


def _tightest(tables: Tables, owner: Ints, slots: Ints, device: int) -> bool:
    """Put all blocks into a slot of each kind, or into one; return whether either fits."""
    first, largest, layers = np.full(2, -1), np.zeros(2), 0
    for b in range(owner.size):
        if owner[b] == device:
            kind = b % 2
            if tables.load[device, b] >= NEVER:
                return False
            if first[kind] < 0:
                first[kind] = b
            slots[b] = first[kind]
            largest[kind] = max(largest[kind], tables.sizes[b])
            layers += 1 - kind
    room = tables.room[device] - layers * tables.cache
    if largest[0] + largest[1] <= room:
        return True
    for b in range(owner.size):
        if owner[b] == device:
            slots[b] = first[0]
    return bool(max(largest[0], largest[1]) <= room)


def _best_deal(tables: Tables, owner: Ints, slots: Ints, device: int, best: float, work: Work,
               spare: Ints) -> float:
    """Try numbers of blocks that are read, and of their slots; keep the best in `slots`."""
    count = owner.size
    kept, trial = spare[:count], spare[count:]
    layers, means, lack = 0, np.zeros(2), _lack(tables, owner, device)
    least, most = np.full(2, NEVER), np.zeros(2)
    for b in range(count):
        kept[b] = slots[b]
        if owner[b] == device:
            layers += 1 - b % 2
            means[b % 2] += tables.sizes[b]
            least[b % 2] = min(least[b % 2], tables.sizes[b])
            most[b % 2] = max(most[b % 2], tables.sizes[b])
    means /= max(1, layers)
    # where blocks differ, one more may have to be saved
    further = 2 if least[0] < most[0] or least[1] < most[1] else 1
    for saved in range(layers):
        fewest = max(0, int(np.ceil((lack - saved * means[1]) / means[0] - 1e-9)))
        for other in range(fewest, min(layers + 1, fewest + further)):
            for mine in range(min(saved, 1), min(max(saved, 1), layers - saved) + 1):
                for theirs in range(min(other, layers - other) + 1):
                    if other > 0 and mine == theirs == 0:
                        continue  # attention blocks have slots of their own, or those of MLPs
                    for way in range(2):
                        for b in range(count):
                            trial[b] = kept[b]
                        _deal(owner, trial, device, 1, layers, saved + mine, mine, way, -1)
                        if theirs > 0 or other == 0:
                            _deal(owner, trial, device, 0, layers, other + theirs, theirs, way, -1)
                        else:
                            _deal(owner, trial, device, 0, layers, other, mine, way, saved + mine)
                        found = round_seconds(tables, owner, trial, work)
                        if found < best * (1 - _BETTER):
                            best = found
                            for b in range(count):
                                slots[b] = trial[b]
        if not fewest:
            break
    return best


def _deal(owner: Ints, slots: Ints, device: int, kind: int, layers: int, streamed: int,
          count: int, way: int, joined: int) -> None:
    """
    Give a device's blocks of a kind slots: `streamed` share `count`, the others have their own.

    They are spread evenly (way 0), or are the first ones of each stage (way 1).  If `joined` is
    not negative the slots are those of so many MLPs, which were dealt out before.
    """
    stages = 0
    for layer in range(owner.size // 2):
        stages += owner[2 * layer] == device and (layer == 0 or owner[2 * layer - 2] != device)
    firsts = np.full(max(1, count), -1)
    if joined >= 0:
        _shared_slots(owner, slots, device, layers, joined, way, stages, firsts)
    place, shared, stage, inside = 0, 0, 0, 0
    for layer in range(owner.size // 2):
        if owner[2 * layer] != device:
            inside = 0
            continue
        stage += inside == 0
        taken = _is_taken(way, place, layers, streamed, stage, stages, inside, shared)
        inside, place = inside + 1, place + 1
        b = 2 * layer + kind
        slots[b] = b
        if taken:
            turn = shared % count
            if firsts[turn] < 0:
                firsts[turn] = b
            slots[b] = firsts[turn]
            shared += 1


def _shared_slots(owner: Ints, slots: Ints, device: int, layers: int, streamed: int, way: int,
                  stages: int, firsts: Ints) -> None:
    """Find the slots that the MLPs of a device were dealt out to."""
    place, shared, stage, inside = 0, 0, 0, 0
    for layer in range(owner.size // 2):
        if owner[2 * layer] != device:
            inside = 0
            continue
        stage += inside == 0
        if _is_taken(way, place, layers, streamed, stage, stages, inside, shared):
            if shared < firsts.size:
                firsts[shared] = slots[2 * layer + 1]
            shared += 1
        inside, place = inside + 1, place + 1


def _is_taken(way: int, place: int, layers: int, streamed: int, stage: int, stages: int,
              inside: int, shared: int) -> bool:
    """Return whether a layer, the `place`-th of a device, is among those that share slots."""
    if way == 0:
        return (place + 1) * streamed // layers > place * streamed // layers
    due = stage * streamed // stages - (stage - 1) * streamed // stages
    # what does not fit into a stage is made up for at the end
    return shared < streamed and (inside < due or streamed - shared >= layers - place)


def change_slots(tables: Tables, owner: Ints, slots: Ints, best: float, budget: int, work: Work,
                 ) -> float:
    """
    Move and swap blocks between slots of their devices while that is better; return the seconds.

    At most `budget` plans are looked at.
    """
    count, looks, better = owner.size, 0, True
    while better:
        better = False
        for b in range(count):
            for c in range(count):
                if c == b or owner[c] != owner[b]:
                    continue
                for swap in range(2):
                    mine, theirs = slots[b], slots[c]
                    if mine == theirs or swap and c < b:
                        continue
                    slots[b] = theirs
                    if swap:
                        slots[c] = mine
                    found = round_seconds(tables, owner, slots, work)
                    looks += 1
                    if found < best * (1 - _BETTER):
                        best, better = found, True
                    else:
                        slots[b], slots[c] = mine, theirs
                    if looks >= budget:
                        return best
            mine, free = slots[b], _free(slots)
            if free >= 0:
                slots[b] = free
                found = round_seconds(tables, owner, slots, work)
                looks += 1
                if found < best * (1 - _BETTER):
                    best, better = found, True
                else:
                    slots[b] = mine
    return best


def change_sets(tables: Tables, owner: Ints, slots: Ints, best: float, work: Work, spare: Ints,
                ) -> float:
    """Try, on devices of few blocks, each set of blocks as a slot, or two; return the seconds."""
    count = owner.size
    kept, trial, own = spare[:count], spare[count:], np.zeros(count, np.int64)
    for d in range(tables.room.size):
        if _lack(tables, owner, d) <= 0:
            continue
        many = 0
        for b in range(count):
            kept[b] = slots[b]
            if owner[b] == d:
                own[many] = b
                many += 1
        base = 3 if many <= TWO else 2
        if many > ONE:
            continue
        for number in range(base ** many):
            for split in range(2):  # one slot for a set, or one for those of each kind in it
                firsts, rest = np.full(5, -1), number
                for b in range(count):
                    trial[b] = kept[b]
                for k in range(many):
                    part, rest = rest % base, rest // base
                    trial[own[k]] = own[k]
                    if part > 0:
                        part += 2 * split * (own[k] % 2)
                        if firsts[part] < 0:
                            firsts[part] = own[k]
                        trial[own[k]] = firsts[part]
                found = round_seconds(tables, owner, trial, work)
                if found < best * (1 - _BETTER):
                    best = found
                    for b in range(count):
                        slots[b] = trial[b]
    return best


def _free(slots: Ints) -> int:
    """Return a number that no slot has; -1 if there is none."""
    for number in range(slots.size):
        used = False
        for b in range(slots.size):
            if slots[b] == number:
                used = True
                break
        if not used:
            return number
    return -1


def change_owners(tables: Tables, owner: Ints, slots: Ints, best: float, budget: int, work: Work,
                  spare: Ints) -> float:
    """
    Give layers to other devices, one or two neighbours at a time, while that is better.

    Slots are found anew each time.  At most `budget` owners are looked at.
    """
    count, devices = owner.size, tables.room.size
    trial = np.zeros(count, np.int64)
    looks, better = 0, True
    while better:
        better = False
        for first in range(count // 2):
            for length in range(1, 3):
                if first + length > count // 2:
                    break
                for d in range(devices):
                    old, other = owner[2 * first], owner[2 * (first + length - 1)]
                    if length == 1 and d == old or length == 2 and (d == old or d != other):
                        continue  # two neighbours change places
                    for half in range(2):
                        owner[2 * first + half] = d
                        if length == 2:
                            owner[2 * first + 2 + half] = old
                    found = NEVER
                    if least_seconds(tables, owner) < best:
                        found = fill_slots(tables, owner, trial, work, spare)
                        looks += 1
                    if found < best * (1 - _BETTER):
                        best, better = found, True
                        for b in range(count):
                            slots[b] = trial[b]
                    else:
                        for half in range(2):
                            owner[2 * first + half] = old
                            if length == 2:
                                owner[2 * first + 2 + half] = other
                    if looks >= budget:
                        return best
    return best
