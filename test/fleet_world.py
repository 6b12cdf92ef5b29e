# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A fleet whose messages are lost, doubled and late, and whose processes come and go.

What must always hold is checked wherever something happens.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from intradp_ros.cluster import plan_holder
from intradp_ros.cluster.coordinator import Coordinator, Propose, step, Tick, WantPlan
from intradp_ros.cluster.election import Election
from intradp_ros.cluster.fleet_messages import (
    Abort,
    Claim,
    Commit,
    Goodbye,
    Heartbeat,
    Outgoing,
    Prepare,
    Ready,
)
from intradp_ros.cluster.plan_holder import Load, PlanHolder
from intradp_ros.cluster.plan_id import NO_PLAN, PlanId

DEVICES = ('d0', 'd1', 'd2')
CANDIDATES = {'c0': 1, 'c1': 1, 'c2': 5}


def plan_at(held: PlanHolder, frame: int) -> PlanId:
    """Return the plan that a new frame (token, round) belongs to."""
    return held.committed if frame >= held.boundary else held.previous


@dataclass
class Node:
    """A process: a device's holder or a candidate's coordinator, and its heartbeats."""

    name: str
    incarnation: int
    state: Any
    beats: int = 0


class FleetWorld:
    """Devices, candidates, and the messages on their way."""

    def __init__(self) -> None:
        self.now = 0.0
        self.born = 0
        self.nodes: dict[str, Node] = {}
        self.bag: list[tuple[str, Any]] = []
        self.loads: list[tuple[str, int, PlanId]] = []
        self.cut: set[str] = set()
        self.apart: set[frozenset[str]] = set()
        self.stopped: set[str] = set()
        self.contents: dict[PlanId, Any] = {}
        self.ready: dict[PlanId, set[str]] = {}
        self.answers: list[tuple[PlanId, frozenset[Any]]] = []
        for name in (*DEVICES, *CANDIDATES):
            self.start(name)

    def start(self, name: str) -> None:
        """Let a process start, with nothing of what it knew."""
        self.born += 1
        state: Any = PlanHolder(name) if name in DEVICES else Coordinator(
            Election(name, CANDIDATES[name], self.born), CANDIDATES)
        self.nodes[name] = Node(name, self.born, state)

    def kill(self, name: str) -> None:
        """Let a process die."""
        self.nodes.pop(name, None)

    def goodbye(self, name: str) -> None:
        """Let a process leave with a word."""
        if self.nodes.pop(name, None):
            self._send(name, '', Goodbye(name))

    def advance(self, seconds: float) -> None:
        """Let time go on: all that run beat, and candidates look at the time."""
        self.now += seconds
        for node in list(self.nodes.values()):
            if node.name in self.stopped:
                continue
            self._beat(node)
            if node.name in CANDIDATES:
                self._step(node, Tick())

    def deliver(self, index: int, keep: bool = False) -> None:
        """Deliver a message; one that is kept comes again."""
        if self.bag:
            target, message = self.bag[index % len(self.bag)]
            if not keep:
                self.bag.pop(index % len(self.bag))
            self._take(target, message)

    def drop(self, index: int) -> None:
        """Lose a message."""
        if self.bag:
            self.bag.pop(index % len(self.bag))

    def deliver_all(self) -> None:
        """Deliver what is on its way, and what follows from it."""
        for _ in range(2000):
            if not self.bag:
                return
            self.deliver(0)
        raise AssertionError('messages without end')

    def load(self, index: int, well: bool = True) -> None:
        """Let a plan be prepared, or not."""
        if not self.loads:
            return
        name, incarnation, id_ = self.loads.pop(index % len(self.loads))
        node = self.nodes.get(name)
        if node and node.incarnation == incarnation:
            end = plan_holder.loaded(node.state, id_) if well else plan_holder.failed(
                node.state, id_, 'no memory')
            self._held(node, end)

    def ask(self, source: str, frame: int) -> None:
        """Let a frame go through all devices of the plan that its source uses."""
        node = self.nodes.get(source)
        if node is None:
            return
        id_ = plan_at(node.state, frame)
        if id_ == NO_PLAN:
            return
        devices = self.contents[id_][1]
        used = {self.nodes[name].state.plan(id_) for name in devices if name in self.nodes}
        if None not in used and all(name in self.nodes for name in devices):
            self.answers.append((id_, frozenset(used)))
            assert used == {self.contents[id_]}, 'an answer is of one plan'

    @property
    def leaders(self) -> list[Coordinator]:
        """The candidates that take themselves for the coordinator."""
        return [n.state for n in self.nodes.values() if n.name in CANDIDATES and n.state.leads]

    def heal(self) -> None:
        """Let all faults end, and time go on."""
        self.cut.clear()
        self.apart.clear()
        self.stopped.clear()
        for name in (*DEVICES, *CANDIDATES):
            if name not in self.nodes:
                self.start(name)
        for _ in range(60):
            self.advance(0.1)
            self.deliver_all()
            while self.loads:
                self.load(0)
                self.deliver_all()

    def _beat(self, node: Node) -> None:
        node.beats += 1
        state = node.state
        beat = Heartbeat(node.name, node.incarnation, node.beats)
        if node.name in DEVICES:
            beat = replace(beat, term=state.term, committed=state.committed,
                           held=frozenset(state.held))
        self._send(node.name, '', beat)

    def _send(self, sender: str, target: str, message: Any) -> None:
        if sender in self.cut:
            return
        targets: Iterable[str] = (target,) if target else (
            CANDIDATES if isinstance(message, Heartbeat | Goodbye)
            else (*DEVICES, *CANDIDATES))
        self.bag += [(name, message) for name in targets
                     if name != sender and name not in self.cut
                     and frozenset((name, sender)) not in self.apart]

    def _take(self, target: str, message: Any) -> None:
        node = self.nodes.get(target)
        if node is None or target in self.stopped or target in self.cut:
            return
        if target in CANDIDATES:
            self._step(node, message)
        elif isinstance(message, Prepare | Commit | Abort):
            self._held(node, plan_holder.on_order(node.state, message))
        elif isinstance(message, Claim):
            node.state = plan_holder.heard_term(node.state, message.term)

    def _step(self, node: Node, event: Any) -> None:
        before = node.state
        node.state, actions = step(node.state, event, self.now)
        assert node.state.election.term >= before.election.term, 'terms only grow'
        self._check_decided(node.state)
        for action in actions:
            if isinstance(action, WantPlan):
                self._plan(node, action)
            else:
                self._out(node.name, action)

    def _plan(self, node: Node, wanted: WantPlan) -> None:
        devices = frozenset(name for name in wanted.alive if name in DEVICES)
        if devices:
            self._step(node, Propose((node.name, devices, len(self.contents)), devices))

    def _out(self, sender: str, out: Outgoing) -> None:
        if isinstance(out.message, Prepare):
            known = self.contents.setdefault(out.message.id, out.message.plan)
            assert known == out.message.plan, 'never two plans of one epoch'
        self._send(sender, out.target, out.message)

    def _check_decided(self, state: Coordinator) -> None:
        plan = state.switch.in_use
        if plan:
            assert plan.devices <= self.ready.get(plan.id, set()), 'used before all were ready'

    def _held(self, node: Node, result: plan_holder.Result) -> None:
        before = node.state
        node.state, said = result
        after = node.state
        assert after.committed >= before.committed and after.term >= before.term
        if after.committed != before.committed:
            assert after.committed in before.held, 'only what was prepared is used'
            devices = self.contents[after.committed][1]
            assert devices <= self.ready[after.committed], 'used before all were ready'
        for id_, plan in after.held.items():
            assert plan == self.contents[id_]
        assert len(after.held) + len(after.loading) <= 4
        if isinstance(said, Load):
            self.loads.append((node.name, node.incarnation, said.id))
        elif said is not None:
            if isinstance(said, Ready):
                self.ready.setdefault(said.id, set()).add(node.name)
            for name in CANDIDATES:
                self._send(node.name, name, said)
