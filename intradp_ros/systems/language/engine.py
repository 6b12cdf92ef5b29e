# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A device's engine: one thread that owns weights, keys and values, and does what `actions` says.

Receive threads put together what arrives; a loader thread reads blocks.  A round that can
not go on (a newer base, another plan) is given up between two actions.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
import threading
import time
from typing import Protocol

import torch
from torch import Tensor

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.core.owned_errors import reason_of
from intradp_ros.core.steady import Steady
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.systems.language.actions import (
    Action,
    actions,
    Await,
    Embed,
    first_loads,
    Load,
    Ready,
    Run,
    Send,
)
from intradp_ros.systems.language.block_math import KvPages, LaneRun, LibraryBlocks
from intradp_ros.systems.language.block_math import Run as RunBlock
from intradp_ros.systems.language.frames import (
    Arriving,
    cache_chunks,
    MovedCache,
    Passing,
    to_chunks,
)
from intradp_ros.systems.language.lanes import Lane, PAGE
from intradp_ros.systems.language.manifest import BlockFile, Manifest
from intradp_ros.systems.language.segment_plan import SegmentPlan
from intradp_ros.systems.language.slots import BlockSlot, Loader, make_slots
from intradp_ros.wire.frames import Chunk, MalformedFrameError

#: Tokens of a lane at most: prompts are computed in chunks below it.
MAX_LANE_TOKENS = 4096
#: Seconds between looks whether what is awaited was given up.
_LOOK = 0.05
_MOST_ARRIVED = 1024
#: Seconds until a plan that could not go on here is tried again; that a moved cache may take.
_PAUSE, _MOVE_PATIENCE = 1.0, 10.0


class HeadCallbacks(Protocol):
    """What a head's engine asks of the head; called on the engine's thread."""

    def begin(self, ended: int) -> int:
        """
        Return the lanes of the next round, after one of `ended` lanes.

        With nothing in flight it waits a moment for requests, and returns 0 if there are none.
        """

    def choose_tokens(self, lane: int) -> tuple[Lane, Tensor]:
        """Return what a lane computes next, and its hidden states (tokens x width)."""

    def sample(self, lane: int, hidden: Tensor) -> None:
        """Take the hidden states of the wanted tokens of a lane (wanted x width)."""

    def waited(self, seconds: Mapping[str, float]) -> None:
        """Learn how long each device waited for its disk in the round of a lane."""

    def late(self, seconds: float) -> bool:
        """Return whether hidden states that were awaited for so long will not come any more."""

    def broke(self, reason: str, lane: int | None, certain: bool) -> None:
        """Learn that a round failed; that is `certain` of an error, not of what did not come."""

    def restart(self, plan: SegmentPlan) -> int:
        """Begin anew: keys and values are lost; return the step of a plan to begin with."""

    def resume(self, plan: SegmentPlan) -> int:
        """Go on with the keys and values of all rounds that ended; return the plan's step."""

    def step(self) -> int:
        """Return the step that is wanted; `begin` returns 0 until it is there."""


class RoundAborted(Exception):  # noqa: N818 - no error: control goes on with another round
    """The round at hand is not to be finished."""


@dataclass
class Meter:
    """Since the beginning: seconds of computing, of waiting for disk and peers; bytes; rounds."""

    computing: float = 0.0
    disk: float = 0.0
    peers: float = 0.0
    sent: int = 0
    received: int = 0
    rounds: int = 0


@dataclass
class _Held:
    """A plan that is known here, and what came for it."""

    plan: SegmentPlan
    arriving: Arriving
    arrived: dict[tuple[int, int, int], Passing] = field(default_factory=dict)
    moved: dict[int, MovedCache] = field(default_factory=dict)
    base: int = 0


@dataclass
class _Program:
    """The plan in use, with its memory."""

    id: PlanId  # noqa: A003
    held: _Held
    step: int
    plan: SegmentPlan
    slots: list[BlockSlot]
    kv: KvPages
    runs: dict[int, RunBlock]
    #: The base of the rounds whose keys and values are all here; -1 before the first.
    base: int = -1


@dataclass(slots=True)
class _Round:
    """The round at hand: its number, its lanes, and those of the one before, which end in it."""

    number: int = 0
    lanes: int = 0
    ended: int = 0


class StageEngine:
    """
    Runs the part of one device in plans for one model; `asks` is set on the head.

    `failed` is called with the reason when a plan cannot go on here.
    """

    def __init__(self, channel: PeerChannel, manifest: Manifest, blocks: LibraryBlocks,
                 loader: Loader, failed: Callable[[str], None],
                 asks: HeadCallbacks | None = None) -> None:
        self.channel, self.manifest, self.blocks, self.loader = channel, manifest, blocks, loader
        self.asks, self.meter = asks, Meter()
        self.trace: Callable[[Action, float, float], None] | None = None
        self._failed = failed
        self._held: dict[PlanId, _Held] = {}
        self._wanted: PlanId | None = None
        self._program: _Program | None = None
        self._round = _Round()
        self._lane_runs: dict[int, LaneRun] = {}
        self._hidden: dict[int, Tensor] = {}
        self._waits: dict[int, tuple[float, ...]] = {}
        self._lane: int | None = None  # that is computed
        self._noted = 0.0  # of the seconds that this device waited for its disk
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f'engine-{channel.name}',
                                        daemon=True)
        self._thread.start()

    def hold(self, id_: PlanId, plan: SegmentPlan) -> None:
        """Know a plan: what is sent for it is taken from now on."""
        arriving = Arriving(self.manifest, len(plan.stages), len(plan.participants),
                            plan.most_pages, MAX_LANE_TOKENS)
        with self._changed:
            self._held[id_] = _Held(plan, arriving)

    def use(self, id_: PlanId) -> None:
        """Compute with a plan that is held from now on; its weights are read at once."""
        with self._changed:
            self._wanted = id_
            self._changed.notify_all()
        self.loader.wake()

    def keep(self, ids: Collection[PlanId]) -> None:
        """Forget all other plans."""
        with self._changed:
            self._held = {id_: held for id_, held in self._held.items() if id_ in ids}
            if self._wanted not in self._held:
                self._wanted = None
            self._changed.notify_all()
        self.loader.wake()

    def keeps(self, plan: SegmentPlan) -> bool:
        """Return whether a plan can go on with the keys and values that are here."""
        program = self._program
        return program is not None and program.plan.cache == plan.cache \
            and program.held.plan.most_pages <= plan.most_pages

    def handle(self, peer: str, id_: PlanId, chunk: Chunk) -> None:
        """Take a chunk of a plan; MalformedFrameError if it makes no sense."""
        held = self._held.get(id_)
        if held is None:
            raise MalformedFrameError(f'plan {id_} is not held', 'epoch')
        passing = held.arriving.add(chunk)
        if passing is None:
            return
        if isinstance(passing, MovedCache):
            if peer not in held.plan.participants or not held.plan.keeps:
                raise MalformedFrameError(f'{peer[:40]!r} moves keys and values', 'unexpected')
            with self._changed:
                held.moved[passing.layer] = passing
                self._changed.notify_all()
            return
        stages, number = held.plan.stages, passing.stage
        sender = held.plan.head if number == 0 else stages[number - 1].device
        receiver = held.plan.head if number == len(stages) else stages[number].device
        if peer != sender or receiver != self.channel.name:
            raise MalformedFrameError(f'{peer[:40]!r} sends for stage {number}', 'unexpected')
        with self._changed:
            if len(held.arrived) >= _MOST_ARRIVED:
                raise MalformedFrameError('more rounds at once than there can be', 'rounds')
            self.meter.received += passing.hidden.nbytes
            held.base = max(held.base, passing.base)
            held.arrived[passing.round, number, passing.number] = passing
            self._changed.notify_all()

    @property
    def plan(self) -> SegmentPlan | None:
        """The plan in use, as it is at its step."""
        program = self._program
        return program.plan if program else None

    def close(self) -> None:
        """Stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.loader.wake()
        self._thread.join()

    def _run(self) -> None:
        steady, failed = Steady(self._thread.name), 0
        while not self._closed:
            rounds, self._lane = self.meter.rounds, None
            try:
                with torch.inference_mode():
                    self._go_on()
            except RoundAborted:
                continue
            except BaseException as error:  # noqa: B902 - it has an owner: not this loop
                failed = 0 if self.meter.rounds > rounds else failed + 1
                self._fell(error, steady)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, _PAUSE if failed > 1 else 0.0)

    def _fell(self, error: BaseException, steady: Steady) -> None:
        """Let whom it belongs to know of an error; the plan is begun anew."""
        self._program = None
        reason = reason_of(error)
        steady.do(partial(self._failed, reason), None)
        if self.asks:
            steady.do(partial(self.asks.broke, reason, self._lane, True), None)

    def _go_on(self) -> None:
        """Wait for a plan, and compute its rounds until something else is wanted."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._wanted is not None)
            if self._closed or self._wanted is None:
                return
            wanted, held = self._wanted, self._held[self._wanted]
        kept = False
        if self._program is None or self._program.id != wanted:
            kept = self._move_cache(wanted, held)
        program = self._program
        assert program is not None
        if self.asks:
            step = self.asks.resume(held.plan) if kept else self.asks.restart(held.plan)
            self._round.number += 1
            self._round.ended = 0
            if not kept:
                program.base = self._round.number
            held.base = program.base
            program = self._at(program, step)
        while True:
            program = self._one_round(program)

    def _move_cache(self, id_: PlanId, held: _Held) -> bool:
        """Change to another plan; return whether keys and values went on."""
        old, plan = self._program, held.plan
        if old is None or not plan.keeps or old.plan.cache != plan.cache:
            self._build(id_, held, 0, {}, 0)
            return False
        mine = set(plan.layers(self.channel.name))
        for layer, (keys, values) in old.kv.layers.items():
            if layer not in mine:
                owner, used = plan.owner[2 * layer], old.kv.used * PAGE
                moved = MovedCache(layer, max(0, old.base), *(
                    self.blocks.device.give(each[:, :used]) for each in (keys, values)))
                for chunk in cache_chunks(id_, moved, self.channel.chunk_bytes(owner)):
                    self.channel.send(owner, chunk)
                self.meter.sent += moved.keys.nbytes + moved.values.nbytes
        come = mine - set(old.kv.layers)
        start = time.perf_counter()
        with self._changed:
            while come - set(held.moved):
                late = self.asks.late if self.asks else _late
                if self._closed or self._wanted != id_:
                    raise RoundAborted
                if late(time.perf_counter() - start):
                    break
                self._changed.wait(_LOOK)
        found = {layer: held.moved[layer] for layer in come if layer in held.moved}
        held.moved.clear()
        complete = len(found) == len(come) and all(
            moved.base == old.base for moved in found.values())
        caches = {layer: both for layer, both in old.kv.layers.items() if layer in mine}
        caches |= {layer: (moved.keys, moved.values) for layer, moved in found.items()}
        used = max(old.kv.used, *(m.keys.shape[1] // PAGE for m in found.values()), 0)
        base = old.base if complete else -1
        del old
        self._build(id_, held, plan.step_for(used), caches, used)
        assert self._program
        self._program.base = base
        return complete

    def _at(self, program: _Program, step: int) -> _Program:
        """Return the program at a step of its plan: other slots, more pages."""
        if step != program.step:
            base, used = program.base, program.kv.used
            self._build(program.id, program.held, step, program.kv.layers, used)
            assert self._program
            program = self._program
            program.base = base
        return program

    def _build(self, id_: PlanId, held: _Held, step: int,
               caches: Mapping[int, tuple[Tensor, Tensor]], used: int) -> None:
        """Make memory for a plan; resident blocks that stay resident are not read again."""
        self.loader.drain()
        name, plan = self.channel.name, held.plan.at(step)
        kept = {}
        if self._program:
            kept = {blocks[0]: slot for slot, blocks in zip(
                self._program.slots, self._program.plan.slots.get(name, ()))
                if len(blocks) == 1 and slot.block == blocks[0]}
        self._program = None
        self._lane_runs.clear()
        self._hidden.clear()
        slots = make_slots(plan, name, self.manifest, self.loader.store, kept,
                           self.blocks.device)
        runs = {}
        for slot, blocks in zip(slots, plan.slots.get(name, ())):
            for block in blocks:
                file = self.manifest.blocks[block]
                runs[block] = self.blocks.bind(
                    block, slot.views(file),
                    partial(self._need, slot, block, file) if slot.in_parts(file) else None)
        kv = KvPages(self.manifest, plan.layers(name), plan.pages, self.blocks.device)
        for layer, both in caches.items():
            kv.put(layer, *both)
        kv.used = min(used, plan.pages)
        self._program = _Program(id_, held, step, plan, slots, kv, runs)

    def _one_round(self, program: _Program) -> _Program:
        """Compute a round; return the program for the next one."""
        self._lane, now = None, self._round
        if self.asks:
            now.lanes = self.asks.begin(now.ended)
            if not now.lanes and not now.ended:
                self._check(program, now.number)
                return self._at(program, self.asks.step())
        else:
            now.number, now.lanes, step = self._next(program)
            program = self._at(program, step)
        for load in first_loads(program.plan, self.channel.name):
            if program.slots[load.slot].due != load.block:
                self._load(program, load)
        for together in _together(program, actions(
                program.plan, now.lanes, self.channel.name, now.ended)):
            start = time.perf_counter()
            self._do(program, together)
            if self.trace:
                each = (time.perf_counter() - start) / len(together)
                for number, action in enumerate(together):
                    self.trace(action, start + number * each, start + (number + 1) * each)
        self.meter.rounds += 1
        if self.asks:
            now.ended, now.number = now.lanes, now.number + 1
        return program

    def _do(self, program: _Program, together: Sequence[Action]) -> None:
        action = together[0]
        self._lane = getattr(action, 'lane', None)
        if isinstance(action, Run):
            start, waited = time.perf_counter(), self.meter.disk
            hidden = self._hidden[action.lane]
            if len(hidden):
                self._hidden[action.lane] = self.blocks.run(
                    [program.runs[run.block] for run in together if isinstance(run, Run)],
                    self.blocks.device.take(hidden), self._lane_runs[action.lane])
            self.meter.computing += time.perf_counter() - start - (self.meter.disk - waited)
        elif isinstance(action, Ready):
            start = time.perf_counter()
            if not self.loader.wait(program.slots[action.slot], action.block,
                                    lambda: self._over(program, self._round.number)):
                raise RoundAborted
            self.meter.disk += time.perf_counter() - start
        elif isinstance(action, Load):
            self._load(program, action)
        elif isinstance(action, Await):
            passing = self._await(program, action)
            self._hidden[action.lane], self._waits[action.lane] = passing.hidden, passing.waits
            if action.stage < len(program.plan.stages):
                run = self._lane_runs.get(action.lane)
                if run is None or run.lane is not passing.lane and run.lane != passing.lane \
                        or run.kv is not program.kv:
                    self._lane_runs[action.lane] = LaneRun(passing.lane, program.kv)
        elif isinstance(action, Send):
            self._send(program, action)
        elif isinstance(action, Embed):
            assert self.asks
            lane, hidden = self.asks.choose_tokens(action.lane)
            self._lane_runs[action.lane] = LaneRun(lane, program.kv)
            self._hidden[action.lane] = hidden
            self._waits[action.lane] = (0.0,) * len(program.plan.participants)
        else:
            assert self.asks
            hidden = self._given(self._hidden.pop(action.lane))
            if program.plan.stages[-1].device == self.channel.name:
                hidden = hidden[self._lane_runs[action.lane].lane.last_rows]
            self.asks.waited(dict(zip(program.plan.participants,
                                      self._note(program, action.lane))))
            self.asks.sample(action.lane, hidden)

    def _need(self, slot: BlockSlot, block: int, file: BlockFile, experts: Sequence[int]) -> None:
        """Wait for the experts that tokens have chosen."""
        program, start = self._program, time.perf_counter()
        if not self.loader.need(slot, block, file, experts, lambda: program is None
                                or self._over(program, self._round.number)):
            raise RoundAborted
        self.meter.disk += time.perf_counter() - start

    def _note(self, program: _Program, lane: int) -> tuple[float, ...]:
        """Return how long each device waited for its disk, this one's newest waits included."""
        own = program.plan.participants.index(self.channel.name)
        new, self._noted = self.meter.disk - self._noted, self.meter.disk
        return tuple(seconds + new * (k == own) for k, seconds in enumerate(self._waits[lane]))

    def _load(self, program: _Program, load: Load) -> None:
        self.loader.load(program.slots[load.slot], load.block, self.manifest.blocks[load.block])

    def _send(self, program: _Program, action: Send) -> None:
        run, hidden = self._lane_runs[action.lane], self._given(self._hidden[action.lane])
        if action.stage == len(program.plan.stages):
            hidden = hidden[run.lane.last_rows]
        passing = Passing(self._round.number, action.stage, action.lane, program.base,
                          self._round.lanes, program.step, run.lane, hidden,
                          self._note(program, action.lane))
        for chunk in to_chunks(program.id, passing, self.channel.chunk_bytes(action.device)):
            self.channel.send(action.device, chunk)
        self.meter.sent += hidden.nbytes

    def _given(self, hidden: Tensor) -> Tensor:
        """Return hidden states on the host, once they are computed."""
        start = time.perf_counter()
        given = self.blocks.device.give(hidden)
        self.meter.computing += time.perf_counter() - start
        return given

    def _next(self, program: _Program) -> tuple[int, int, int]:
        """Wait for a round to begin; return its number, its lanes and the plan's step."""
        held, start = program.held, time.perf_counter()
        with self._changed:
            while True:
                for key in [key for key, passing in held.arrived.items()
                            if key[0] < held.base or not _follows(program, passing)]:
                    del held.arrived[key]
                if held.arrived:
                    first = held.arrived[min(held.arrived)]
                    break
                if self._over(program, 0):
                    raise RoundAborted
                self._changed.wait(_LOOK)
        program.base = first.base
        self.meter.peers += time.perf_counter() - start
        return first.round, first.lanes, min(first.step, len(held.plan.steps))

    def _await(self, program: _Program, action: Await) -> Passing:
        held, start = program.held, time.perf_counter()
        of_before = action.stage == len(program.plan.stages)
        key = self._round.number - of_before, action.stage, action.lane
        with self._changed:
            while key not in held.arrived:
                waited = time.perf_counter() - start
                if self._over(program, key[0]):
                    raise RoundAborted
                if self.asks and self.asks.late(waited):
                    self.asks.broke(f'hidden states did not come for {waited:.1f} s: devices of '
                                    'the plan did not compute them', None, False)
                    raise RoundAborted
                self._changed.wait(_LOOK)
            passing = held.arrived.pop(key)
        self.meter.peers += time.perf_counter() - start
        return passing

    def _check(self, program: _Program, number: int) -> None:
        if self._over(program, number):
            raise RoundAborted

    def _over(self, program: _Program, number: int) -> bool:
        """Return whether a round of a plan is not to be gone on with."""
        return self._closed or self._wanted != program.id \
            or not self.asks and 0 < number < program.held.base


def _together(program: _Program, todo: Iterable[Action]) -> Iterator[Sequence[Action]]:
    """Yield actions one by one; blocks of a lane that follow each other and are there at once."""
    runs: list[Run] = []
    for action in todo:
        if isinstance(action, Ready) and program.slots[action.slot].block == action.block:
            continue
        if runs and not (isinstance(action, Run) and action.lane == runs[0].lane):
            yield runs
            runs = []
        if isinstance(action, Run):
            runs.append(action)
        else:
            yield [action]
    if runs:
        yield runs


def _follows(program: _Program, passing: Passing) -> bool:
    """Return whether all keys and values that a round builds on are here."""
    return passing.base in (program.base, passing.round)


def _late(seconds: float) -> bool:
    return seconds > _MOVE_PATIENCE
