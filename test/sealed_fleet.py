# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A fleet with a key in model time, whose messages are sealed as over DDS, and a stranger.

Everything that is said can be replayed, at any time, to whom it was said.  Handshake, seals,
frames, membership, election and plans are the real ones; time and network are imagined.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
import json
from random import Random
from typing import Any

import torch

from intradp_ros.cluster import plan_holder
from intradp_ros.cluster.coordinator import Coordinator, Propose, step, Tick, WantPlan
from intradp_ros.cluster.election import Election
from intradp_ros.cluster.fleet_messages import (
    Abort,
    Claim,
    Commit,
    Goodbye,
    Heartbeat,
    Prepare,
)
from intradp_ros.cluster.plan_holder import Load, PlanHolder
from intradp_ros.cluster.plan_id import NO_PLAN, PlanId
from intradp_ros.cluster.terms import TermLimit
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.dds.convert import (
    chunk_from_message,
    chunk_to_message,
    control_from_message,
    control_to_message,
)
from intradp_ros.dds.meeting import Meeting
from intradp_ros.dds.sealer import is_greeting, Sealer
from intradp_ros.msg import SessionControl
from intradp_ros.runtime.member.fleet_control import from_control, to_control
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Chunk, Control, MalformedFrameError
from intradp_ros.wire.namesake import look, Namesake

DEVICES, CANDIDATES = ('a', 'b', 'c'), {'k': 2, 'm': 1}
NAMES = (*DEVICES, *CANDIDATES)
KEY = SharedKey(bytes(range(32)))
STEP = 0.1
FULL = 'no space left on the disk'


@dataclass(frozen=True)
class ToyPlan:
    """A number goes through devices in order; each adds what the plan says, once."""

    devices: tuple[str, ...]
    added: int

    def to_json(self) -> dict[str, Any]:
        return {'devices': list(self.devices), 'added': self.added}

    @classmethod
    def from_json(cls, data: Any) -> ToyPlan:
        return cls(tuple(data['devices']), data['added'])


class End:
    """What a process has of one peer: as a channel over DDS."""

    def __init__(self, own: str, peer: str, number: int) -> None:
        first, second = sorted((own, peer))
        ways = ('up', 'down') if own == first else ('down', 'up')
        self.meeting = Meeting(number)
        self.sealer = Sealer(SharedKey(KEY.derived(f'fleet f/{first}/{second}')), *ways,
                             paired=True)
        self.sequence = 0

    def sealed(self, frame: Control | Chunk) -> Any | None:
        """Return the message of a frame, None before there is a connection."""
        self.sequence += 1
        message = control_to_message(frame, self.sequence) if isinstance(frame, Control) \
            else chunk_to_message(frame, self.sequence)
        if not is_greeting(message):
            message.server = self.meeting.connection
            if not message.server:
                return None
        return self.sealer.seal(message)

    def take(self, message: Any, now: float) -> Control | Chunk | None:
        """Return the frame of a message; None of a greeting, with its answer in `reply`."""
        self.reply: Control | None = None
        self.sealer.check_seal(message)
        if is_greeting(message):
            self.reply = self.meeting.take(control_from_message(message), now)
            return None
        self.meeting.check('message', message.server)
        self.sealer.check_new(message)
        control = isinstance(message, SessionControl)
        self.meeting.heard(message.kind if control else 0, now)
        return control_from_message(message) if control else chunk_from_message(message)


@dataclass
class Process:
    """A device or a candidate that runs."""

    name: str
    number: int
    born: float
    state: Any
    ends: dict[str, End]
    terms: TermLimit
    offset: float  # of its steady clock, which begins anywhere
    beats: int = 0
    started: dict[int, int] = field(default_factory=dict)
    namesake: Namesake = Namesake()


class SealedFleet:
    """Three devices, two candidates, and what a stranger recorded."""

    def __init__(self, seed: int = 5) -> None:
        self.random = Random(seed)
        self.now, self.born, self.plans = 0.0, 0, 0
        self.clock = dict.fromkeys(NAMES, 1e6)
        self.full: set[str] = set()
        self.stopped: set[str] = set()
        self.cut: set[tuple[str, str]] = set()  # places that do not hear a device yet
        self.running: dict[str, Process] = {}
        self.recorded: list[tuple[str, str, Any]] = []
        self.bag: list[tuple[str, str, Any]] = []
        self.loads: list[tuple[Process, Load]] = []
        self.answers: dict[int, int] = {}
        self.contents: dict[Any, ToyPlan] = {}
        self.switches = 0
        for name in NAMES:
            self.start(name)

    def start(self, name: str, place: str = '') -> None:
        """Let a process start, with nothing of what it knew; in another place as one more."""
        self.born += 1
        state: Any = PlanHolder(name) if name in DEVICES else Coordinator(
            Election(name, CANDIDATES[name], self.born),
            {n: p for n, p in CANDIDATES.items() if n != name})
        ends = {peer: End(name, peer, self.born) for peer in NAMES if peer != name}
        clock = self.clock[name]
        self.running[place or name] = Process(name, self.born, self.now, state, ends,
                                              TermLimit(self.now + clock), clock)

    def kill(self, name: str) -> None:
        self.running.pop(name, None)

    def leave(self, name: str) -> None:
        process = self.running.get(name)
        if process and name not in self.stopped:
            for peer in process.ends:
                self.say(process, peer, to_control(Goodbye(name)))
            self.kill(name)

    def go_on(self, seconds: float) -> None:
        """Let time go on; everything is delivered."""
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            for process in list(self.running.values()):
                if process.name not in self.stopped:
                    self._live(process)
            self._deliver()
            loads, self.loads = self.loads, []
            for process, load in loads:
                self._load(process, load)
            self._deliver()

    def replay(self, index: int) -> None:
        """Let a stranger say again what was said."""
        if self.recorded:
            self._take(*self.recorded[index % len(self.recorded)])
            self._deliver()

    def forge(self, target: str, peer: str, message: Any) -> None:
        """Let a stranger say something of his own."""
        self._take(peer, target, message)
        self._deliver()

    def ask(self, frame: int) -> None:
        """Let a number go through the pipeline that device a uses."""
        a = self.running.get('a')
        if a is None or 'a' in self.stopped or a.state.committed == NO_PLAN:
            return
        id_ = a.state.committed
        if a.state.plan(id_) is not None:
            self._compute(a, id_, frame, 7 * frame, 0)

    def asks_and_runs(self, leader: str, without: frozenset[str] = frozenset()) -> None:
        """See that all devices but these run the plan of one that coordinates."""
        switch = self.running[leader].state.switch
        plan = switch.in_use
        assert plan and plan.devices == set(DEVICES) - without and not switch.broken
        assert {self.running[n].state.committed for n in plan.devices} == {plan.id}
        frame = len(self.answers) + 10**6
        self.ask(frame)
        self.go_on(0.1)
        assert frame in self.answers

    def say(self, process: Process, peer: str, frame: Control | Chunk | None) -> None:
        message = process.ends[peer].sealed(frame) if frame else None
        if message is not None:
            self.bag.append((process.name, peer, message))
            self.recorded.append((process.name, peer, message))

    def _live(self, process: Process) -> None:
        now = self.now + process.offset
        meetings = [end.meeting for end in process.ends.values()]
        process.namesake, leaves = look(
            process.namesake, sum(m.hears(now) for m in meetings),
            sum(m.conflict(now) == 'own' for m in meetings), now, self.random.random())
        if leaves:
            for peer, end in process.ends.items():
                self.say(process, peer, to_control(Goodbye(process.name)))
                end.meeting.rest(process.namesake.until)
        for peer, end in process.ends.items():
            self.say(process, peer, end.meeting.due(now))
        process.beats += 1
        state, beat = process.state, Heartbeat(process.name, process.number, process.beats)
        if process.name in DEVICES:
            beat = Heartbeat(process.name, process.number, process.beats, term=state.term,
                             committed=state.committed, held=frozenset(state.held))
        for name in CANDIDATES:
            if name != process.name and process.beats % 2:
                self.say(process, name, to_control(beat))
        if process.name in CANDIDATES:
            self._step(process, Tick(process.namesake.aside))

    def _deliver(self) -> None:
        for _ in range(5000):
            if not self.bag:
                return
            self._take(*self.bag.pop(0))
        raise AssertionError('messages without end')

    def _take(self, sender: str, target: str, message: Any) -> None:
        for place, process in list(self.running.items()):
            if process.name == target and target not in self.stopped \
                    and (place, sender) not in self.cut:
                self._take_by(process, sender, target, message)

    def _take_by(self, process: Process, sender: str, target: str, message: Any) -> None:
        end = process.ends[sender]
        try:
            frame = end.take(message, self.now + process.offset)
            if frame is None:
                self.say(process, sender, end.reply)
                return
            if isinstance(frame, Chunk):
                self._chunk(process, sender, frame)
                return
            said = from_control(sender, frame)
            known = process.state.term if target in DEVICES else process.state.election.term
            process.terms.check(said, known, self.now + process.offset)
        except MalformedFrameError:
            return
        if target in CANDIDATES:
            self._step(process, said)
        elif sender in CANDIDATES and isinstance(said, Prepare | Commit | Abort):
            self._held(process, sender, plan_holder.on_order(process.state, said))
        elif sender in CANDIDATES and isinstance(said, Claim):
            process.state = plan_holder.heard_term(process.state, said.term)

    def _step(self, process: Process, event: Any) -> None:
        process.state, actions = step(process.state, event, self.now + process.offset)
        for action in actions:
            if isinstance(action, WantPlan):
                alive = tuple(sorted(action.alive & set(DEVICES)))
                if 'a' in alive:
                    self.plans += 1
                    self._step(process, Propose(ToyPlan(alive, self.plans), frozenset(alive)))
                continue
            targets: Iterable[str] = (action.target,) if action.target else process.ends
            for name in targets:
                self.say(process, name, to_control(action.message))

    def _held(self, process: Process, peer: str, result: plan_holder.Result) -> None:
        before = process.state.committed
        process.state, said = result
        self.switches += process.state.committed != before
        if isinstance(said, Load):
            plan = ToyPlan.from_json(said.plan)
            assert self.contents.setdefault(said.id, plan) == plan, 'never two plans of a number'
            self.loads.append((process, said))
        elif said is not None:
            for name in CANDIDATES:
                self.say(process, name, to_control(said))

    def _load(self, process: Process, load: Load) -> None:
        if process in self.running.values():
            full = process.name in self.full
            self._held(process, '', plan_holder.failed(process.state, load.id, FULL) if full
                       else plan_holder.loaded(process.state, load.id))

    def _compute(self, process: Process, id_: Any, frame: int, value: int, place: int) -> None:
        plan = ToyPlan.from_json(process.state.plan(id_))
        assert plan.devices[place] == process.name
        value += plan.added
        if place + 1 == len(plan.devices):
            wanted = 7 * frame + plan.added * len(plan.devices)
            assert value == wanted, 'an answer is exact'
            self.answers[frame] = value
            return
        data = json.dumps(value).encode().ljust(16)
        for chunk in cut_into_chunks(torch.frombuffer(bytearray(data), dtype=torch.uint8),
                                     session=id_.term, epoch=id_.epoch, inference=frame,
                                     schedule=0, transfer=place, value=0,
                                     region=Region(0, 16), chunk_bytes=1024):
            self.say(process, plan.devices[place + 1], chunk)

    def _chunk(self, process: Process, sender: str, chunk: Chunk) -> None:
        id_ = PlanId(chunk.session, chunk.epoch)
        held = process.state.plan(id_)
        if held is None:
            return
        plan = ToyPlan.from_json(held)
        if plan.devices[chunk.transfer] != sender:
            return
        assert process.started.get(chunk.inference, -1) != chunk.epoch, 'taken once'
        process.started[chunk.inference] = chunk.epoch
        self._compute(process, id_, chunk.inference,
                      json.loads(bytes(chunk.data)), chunk.transfer + 1)
