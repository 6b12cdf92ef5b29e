# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A toy system: two halves of a state, each on a device, take one step after another.

The device that asks begins a step when both halves of the one before it came back.  All steps are
kept as state; a new plan goes on after the newest of which both halves are somewhere.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from intradp_ros.cluster.fleet_messages import Heartbeat
from intradp_ros.cluster.plan_id import NO_PLAN, PlanError, PlanId
from intradp_ros.runtime.member.planner import Planner, Proposal
from intradp_ros.runtime.member.role import Host, Lacking, Role
from intradp_ros.runtime.transport.serial_executor import SerialExecutor
from intradp_ros.runtime.weights.state import State
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.cutting import cut_into_chunks as cut
from intradp_ros.wire.frames import Chunk, Frame, MalformedFrameError

FORMAT, WIDTH, HALVES = 'toy/1', 64, ('first', 'second')


def step_input(step: int) -> torch.Tensor:
    return torch.randn(WIDTH, generator=torch.Generator().manual_seed(step))


def advance(half: int, state: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    return state + given if half == 0 else torch.sin(state * 1.01 + given)


@dataclass(frozen=True)
class ToyPlan:
    """The devices of the halves, who asks, after which step it goes on, and who has that step."""

    first: str
    second: str
    source: str
    after: int
    having: str
    participants = property(lambda p: tuple(dict.fromkeys((p.source, p.first, p.second))))

    def to_json(self) -> dict[str, Any]:
        return {'format': FORMAT, **asdict(self)}


class ToyRole(Role):
    """One device's part; where it asks, `finished` is called with each step that came back."""

    format = FORMAT

    def __init__(self, host: Host, steps: int, finished: Callable[[int], None], work: Any = None):
        self.host, self.steps, self.finished = host, steps, finished
        self.work = work or SerialExecutor(f'toy-{host.name}')
        self.close = self.work.close
        self.state, self.plans, self.used, self.step = State(), {}, NO_PLAN, 0
        for half in HALVES:
            self.state.put(half, 0, torch.zeros(WIDTH))

    def parse(self, data: Any) -> ToyPlan:
        found = [data.get(key) for key in (*HALVES, 'source', 'after', 'having')]
        if [type(value) for value in found] != [str, str, str, int, str]:
            raise PlanError('a toy plan names devices and a step')
        return ToyPlan(*found)

    def lacking(self, plan: ToyPlan) -> Lacking:
        return Lacking(state=frozenset(
            (half, plan.after) for half in HALVES
            if getattr(plan, half) == self.host.name and self.state.get(half, plan.after) is None),
            peers=frozenset(plan.having.split()))

    def load(self, id_: PlanId, plan: ToyPlan) -> None:
        self.plans = {**self.plans, id_: plan}

    def use(self, id_: PlanId, boundary: int) -> None:
        self.used = id_
        self.work.put(partial(self._begin, id_, boundary))

    def keep(self, ids: Collection[PlanId]) -> None:
        self.plans = {id_: plan for id_, plan in self.plans.items() if id_ in ids}

    def handle(self, peer: str, frame: Frame) -> None:
        if isinstance(frame, Chunk):
            id_, rows = PlanId(frame.session, frame.epoch), 1 + (frame.value == 2)
            if id_ not in self.plans or peer not in self.plans[id_].participants \
                    or frame.value not in (0, 1, 2) or len(frame.data) != 4 * rows * WIDTH:
                raise MalformedFrameError(f'the toy has no such part of {peer}', 'unexpected')
            data = torch.frombuffer(bytearray(frame.data), dtype=torch.float32).view(rows, WIDTH)
            self.work.put(partial(self._take, id_, frame.value, frame.inference, data))

    def busy(self) -> float:
        self.work.put(lambda: self._begin(self.used, self.step))  # what was lost is sent again
        return 0.0

    def _begin(self, id_: PlanId, step: int) -> None:
        plan = self.plans.get(id_)
        if plan and id_ == self.used and plan.source == self.host.name and 0 < step <= self.steps:
            self.step = step
            self._send(id_, plan.first, 0, step, step_input(step)[None])

    def _send(self, id_: PlanId, target: str, value: int, step: int, data: torch.Tensor) -> None:
        if target == self.host.name:
            return self.work.put(partial(self._take, id_, value, step, data))
        for chunk in cut(data, session=id_.term, epoch=id_.epoch, inference=step, schedule=0,
                         transfer=value, value=value, region=Region(0, len(data)),
                         chunk_bytes=self.host.channel.chunk_bytes(target)):
            self.host.channel.send(target, chunk)

    def _take(self, id_: PlanId, value: int, step: int, data: torch.Tensor) -> None:
        plan = self.plans.get(id_)
        if plan and value < 2 and (half := self.state.get(HALVES[value], step - 1)) is not None:
            after = advance(value, half, data[0])
            self.state.put(HALVES[value], step, after)
            self._send(id_, plan.source if value else plan.second, 1 + value, step,
                       torch.stack((data[0], after)) if value else after[None])
        elif plan and value == 2 and id_ == self.used and step == self.step:
            for name, tensor in zip(HALVES, data):
                self.state.put(name, step, tensor.clone())
            self.finished(step)
            self._begin(id_, step + 1)


class ToyPlanner(Planner):
    """Halves on two devices, or on one; `swapped` has the source take the second half."""

    format = FORMAT

    def __init__(self, source: str) -> None:
        self.source, self.swapped, self.tags = source, False, {}

    def heard(self, beat: Heartbeat, now: float) -> None:
        self.tags[beat.device] = beat.tags

    def plan(self, alive: frozenset[str], now: float) -> Proposal | None:
        if self.source not in alive:
            return None
        halves = [self.source, *sorted(alive - {self.source})[:1], self.source][:2]
        tags = {d: self.tags.get(d, {}) for d in sorted(alive)}
        after = min(max(found.get(half, 0) for found in tags.values()) for half in HALVES)
        having = ' '.join(d for d in tags if max(tags[d].values(), default=0) >= after)
        first, second = halves[::-1] if self.swapped else halves
        return Proposal(ToyPlan(first, second, self.source, after, having), after + 1)
