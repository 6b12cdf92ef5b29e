# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which stages on which devices make a round shortest (Asteroid, Algorithm 2).

A dynamic program builds plans from their tail: a head stage on the next devices of an order is
put before the best plans of the layers behind it, or a device is left out.  Orders are by memory,
largest first as in the paper, and others.  A search moves borders and devices of the best plans;
the event simulator, not the estimate, has the last word.
"""
from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations
from operator import attrgetter

import numpy as np

from intradp_ros.schedule.event_simulator import simulate
from intradp_ros.schedule.stage_plan import PlanError
from intradp_ros.systems.training.plan.allocation import allocate, deal_round, in_proportion
from intradp_ros.systems.training.plan.hybrid_plan import HybridPlan, HybridStage
from intradp_ros.systems.training.plan.partners import partners
from intradp_ros.systems.training.plan.round_costs import RoundCosts, Shares
from intradp_ros.systems.training.plan.round_estimate import (
    communication_step,
    ending_seconds,
    execution_step,
    image_step,
    round_seconds,
    Step,
)
from intradp_ros.systems.training.plan.round_tasks import round_tasks

Shape = tuple[tuple[int, tuple[str, ...]], ...]
"""The first layer and the devices of each stage."""

#: Devices up to which every order is tried; borders that the dynamic program may cut at, by that.
FEW, MOST_CUTS, FEWER_CUTS = 4, 18, 10
#: Plans kept for each state, and plans that the simulator sees: of few devices, of more.
BEAMS, JUDGED = (6, 2), (40, 8)
#: Above the best seconds so far a tail is dropped; the estimate may be too high by this.
SLACK = (1.5, 1.05)
#: Steps of the search by the estimate.
STEPS = 12
#: What part of the seconds a round in fewer passes may seem to take more: as measured, by chance.
CHANCE = 0.05
#: Bytes that a device of unknown memory may keep between the two ways of such a pass.
UNKNOWN_MEMORY = 1e9
#: Shapes after a loss from which the search goes on.
NEAREST = 4
#: Plans that the last search asks the simulator about, and tasks in all.
LAST, LAST_TASKS = 60, 40_000


@dataclass(frozen=True)
class _Tail:
    """The last stages of a plan, with their steps."""

    seconds: float
    stages: tuple[HybridStage, ...]
    steps: tuple[Step, ...]

    @property
    def shape(self) -> Shape:
        return tuple((stage.first, stage.devices) for stage in self.stages)


def plan_round(costs: RoundCosts) -> HybridPlan:
    """
    Return the plan with the shortest round that was found, with simulated seconds.

    :raises PlanError: if the network fits on no set of the devices, or data lie on some that
        nothing joins.
    """
    holders = [name for name, share in costs.images.items() if share]
    found = [plan for names in partners(costs.topology, holders)
             for plan in _Planner(costs.only(names)).plans()]
    if not found and not partners(costs.topology, holders):
        raise PlanError(f'data lie on {", ".join(holders)}, but not every two of these have a '
                        'path to each other: put them on one network, or the data elsewhere')
    if not found:
        raise PlanError('the network fits on no set of these devices: take smaller '
                        'micro-batches, or devices with more memory')
    return quickest(found)


def quickest(plans: Sequence[HybridPlan]) -> HybridPlan:
    """Return the plan with the shortest round, or one of fewer passes that is about as short."""
    least, most = min(plan.seconds for plan in plans), max(plan.micro_batches for plan in plans)
    return min((plan for plan in plans if plan.seconds <= least * (
        1 + CHANCE * (plan.micro_batches < most))), key=lambda plan: (
            plan.micro_batches, plan.seconds))


def in_fewer_passes(costs: RoundCosts, plan: HybridPlan) -> HybridPlan:
    """Return the plan, or its devices in fewer, larger passes where these are quicker."""
    found = [plan]
    if costs.merges and len(plan.stages) == 1:
        for count in range(1, plan.micro_batches):
            fewer, names = costs.in_passes(count), plan.stages[0].devices
            found += [judged(fewer, stages) for stages in (
                stages_of(fewer, ((0, names),)), of_round(fewer, names))
                if stages and _is_modest(fewer, stages[0])]
    return quickest(found)


def _is_modest(costs: RoundCosts, stage: HybridStage) -> bool:
    """Return whether devices of unknown memory keep little for the way back."""
    return all(dict(shares).get(name, 0) * costs.sample_bytes(0, costs.layers) <= UNKNOWN_MEMORY
               for shares, _ in costs.different_passes(stage) for name in stage.devices
               if costs.topology.device(name).memory_bytes == np.inf)


def judged(costs: RoundCosts, stages: Sequence[HybridStage]) -> HybridPlan:
    """Return a plan with what the event simulator says of it."""
    played = simulate(round_tasks(costs, [(stages, costs.micro_batches)]), costs.topology)
    memory = {name: costs.stage_memory(stage, name)
              for stage in stages for name in stage.devices}
    return HybridPlan(tuple(stages), costs.micro_batch, costs.micro_batches, played.makespan,
                      memory, dict(played.carried))


def stages_of(costs: RoundCosts, shape: Shape) -> tuple[HybridStage, ...] | None:
    """Return the stages of a shape with their samples (Alg. 1); None where one does not fit."""
    found = []
    for k, (first, names) in enumerate(shape):
        last = shape[k + 1][0] if k + 1 < len(shape) else costs.layers
        kept = costs.kept(len(shape) - 1 - k)
        shares = allocate(costs, names, first, last, kept)
        if shares is None:
            return None
        found.append(HybridStage(first, last, shares, kept))
    return tuple(found)


def of_round(costs: RoundCosts, names: Sequence[str],
             deal: Callable[[RoundCosts, Sequence[str]], Shares | None] = deal_round,
             ) -> tuple[HybridStage, ...] | None:
    """Return the stage of devices that deal a round at once; None where it does not fit."""
    shares = deal(costs, names)
    stages = (HybridStage(0, costs.layers, shares, 1, True),) if shares else ()
    fits = all(costs.stage_memory(stage, name) <= costs.topology.device(name).memory_bytes
               for stage in stages for name in stage.devices)
    return stages if stages and fits else None


def best_together(costs: RoundCosts, names: Sequence[str]) -> tuple[HybridStage, ...] | None:
    """Return devices that all train the whole network, dealt as is quickest; None if none fits."""
    ways = [stages_of(costs, ((0, tuple(names)),)), of_round(costs, names)]
    return min((stages for stages in ways if stages),
               key=lambda stages: judged(costs, stages).seconds, default=None)


def around(costs: RoundCosts, shapes: Sequence[Shape], orders: Sequence[Sequence[str]],
           ) -> list[tuple[HybridStage, ...]]:
    """
    Return the stages of the first shape, and of the best ones that a short search finds.

    It begins with all shapes, and with the best stages of devices in some orders.  First only
    borders move, then devices, too; shapes that do not fit are left out.
    """
    return _Planner(costs).around(shapes, orders)


class _Planner:
    """Stages that were priced already, and the search."""

    def __init__(self, costs: RoundCosts) -> None:
        self._costs = costs
        self._priced: dict[tuple[int, int, tuple[str, ...], int],
                           tuple[HybridStage, Step] | None] = {}
        self._crossed: dict[tuple[int, Shares, Shares], Step] = {}

    def plans(self) -> list[HybridPlan]:
        """Return the best plan, and with fewer passes the best of devices that train all alike."""
        best = self._plan()
        if best is None or not self._costs.merges:
            return [best] if best else []
        alike = sorted(self._simple(), key=attrgetter('seconds'))[:NEAREST]
        return [in_fewer_passes(self._costs, plan) for plan in (
            best, *(judged(self._costs, tail.stages) for tail in alike))]

    def _plan(self) -> HybridPlan | None:
        costs = self._costs
        seen: dict[Shape, float] = {}
        for tail in self._simple():
            seen[tail.shape] = tail.seconds
        for names in self._orders():
            bound = SLACK[self._many] * min(seen.values(), default=np.inf)
            for tail in self._program(names, bound):
                seen[tail.shape] = tail.seconds
        if not seen:
            return None
        best = sorted(seen, key=seen.__getitem__)[:JUDGED[self._many]]
        found = {shape: self.climb(shape, seen[shape]) for shape in best}
        shapes = dict.fromkeys([*(shape for shape, _ in sorted(found.values(),
                                                               key=lambda one: one[1])),
                                *best])
        shapes |= dict.fromkeys(tail.shape for tail in self._simple())
        plans = {shape: judged(costs, stages) for shape in shapes
                 if (stages := stages_of(costs, shape))}
        together = [judged(costs, stages) for names in self._sets()
                    for deal, order in ((deal_round, names), (in_proportion, tuple(
                        name for name in costs.topology.names if name in names)))
                    if (stages := of_round(costs, order, deal))]
        return min([self._last(plans), *together], key=lambda plan: plan.seconds)

    def _last(self, plans: dict[Shape, HybridPlan]) -> HybridPlan:
        """Search around the best plan with the simulator as the judge."""
        costs = self._costs
        each = 4 * costs.micro_batches * len(costs.topology.names)
        left = min(LAST, LAST_TASKS // each)
        shape = min(plans, key=lambda one: plans[one].seconds)
        moved = True
        while moved and left > 0:
            moved = False
            near = [(tail.seconds, one) for one in self._near(shape)
                    if one not in plans and (tail := self._priced_plan(one))]
            for _, one in sorted(near)[:left]:
                plans[one] = judged(costs, [self._stage(*key)[0]  # type: ignore[index]
                                            for key in self._keys(one)])
                left -= 1
                if plans[one].seconds < plans[shape].seconds * (1 - 1e-9):
                    shape, moved = one, True
                    break
        return plans[shape]

    def _simple(self) -> Iterator[_Tail]:
        """Yield each device alone, and data parallel training on the fastest ones."""
        for group in [*((name,) for name in self._by_speed[1:]), *self._prefixes()]:
            if tail := self._priced_plan(((0, group),)):
                yield tail

    def _prefixes(self) -> list[tuple[str, ...]]:
        """Return the fastest devices, one and more of them."""
        return [tuple(self._by_speed[:k + 1]) for k in range(len(self._by_speed))]

    def _sets(self) -> list[tuple[str, ...]]:
        """Return groups that may deal a round at once: of few devices all, else the fastest."""
        return self._prefixes() if self._many else [
            group for k in range(1, len(self._by_speed) + 1)
            for group in combinations(self._by_speed, k)]

    @property
    def _many(self) -> bool:
        return len(self._costs.topology.names) > FEW

    @cached_property
    def _by_speed(self) -> list[str]:
        costs = self._costs
        return sorted(costs.topology.names, key=lambda name: sum(
            costs.seconds(name, 0, costs.layers, costs.micro_batch)))

    def _orders(self) -> list[tuple[str, ...]]:
        costs = self._costs
        names = costs.topology.names
        memory = {d.name: d.memory_bytes for d in costs.topology.devices}
        if not self._many:
            return list(permutations(names))
        rank = {name: k for k, name in enumerate(self._by_speed)}
        largest = sorted(names, key=lambda name: (-memory[name], rank[name]))
        return list(dict.fromkeys([tuple(largest), tuple(reversed(self._by_speed)),
                                   tuple(self._by_speed)]))

    @cached_property
    def _cuts(self) -> list[int]:
        """Return the borders that the program may cut at: narrow ones, work spread evenly."""
        costs = self._costs
        most = FEWER_CUTS if self._many else MOST_CUTS
        if costs.layers <= most:
            return list(range(costs.layers + 1))
        name = self._by_speed[0]
        done = np.array([sum(costs.seconds(name, 0, k, costs.micro_batch))
                         for k in range(costs.layers + 1)])
        window = np.minimum((done / max(done[-1], 1e-12) * most).astype(int), most - 1)
        cuts = {0, costs.layers}
        for part in range(most):
            inside = [k for k in range(1, costs.layers) if window[k] == part]
            if inside:
                cuts.add(min(inside, key=lambda k: (costs.table.border_bytes[k], k)))
        return sorted(cuts)

    def _stage(self, first: int, last: int, names: tuple[str, ...], kept: int,
               ) -> tuple[HybridStage, Step] | None:
        key = first, last, names, kept
        if key not in self._priced:
            shares = allocate(self._costs, names, first, last, kept)
            found = None
            if shares is not None:
                stage = HybridStage(first, last, shares, kept)
                found = stage, execution_step(self._costs, stage)
            self._priced[key] = found
        return self._priced[key]

    def _before(self, head: tuple[HybridStage, Step], tail: _Tail | None) -> _Tail:
        """Return a tail with one more stage at its head; a whole plan has its images moved."""
        costs = self._costs
        stage, step = head
        steps: tuple[Step, ...] = (step,)
        if tail is not None:
            key = stage.last, stage.shares, tail.stages[0].shares
            if key not in self._crossed:
                self._crossed[key] = communication_step(costs, stage, tail.stages[0])
            steps = (step, self._crossed[key], *tail.steps)
        if stage.first == 0 and (images := image_step(costs, stage)):
            steps = (images, *steps)
        stages = (stage, *(tail.stages if tail else ()))
        ending = ending_seconds(costs, stages) if stage.first == 0 else 0.0
        return _Tail(round_seconds(steps, costs.micro_batches) + ending, stages, steps)

    def _program(self, names: tuple[str, ...], bound: float) -> list[_Tail]:
        """Return the best whole plans by their number of stages (Alg. 2, from the tail)."""
        costs, cuts, count = self._costs, self._cuts, len(names)
        end = len(cuts) - 1
        best: dict[tuple[int, int, int], list[_Tail]] = {}
        beams, seconds = BEAMS[self._many], attrgetter('seconds')

        def limit_of(found: Sequence[_Tail]) -> float:
            """Return the seconds from which on a tail is none of the best."""
            return bound if len(found) < beams else min(bound, found[beams - 1].seconds)

        for i in range(end - 1, -1, -1):
            for n in range(1, count + 1):
                for p in range(1, min(n, end - i) + 1):
                    found = list(best.get((i, n - 1, p), ()))  # one more device, left out
                    limit = limit_of(found)
                    for before in range(p - 1, n):
                        group = names[count - n:count - before]
                        for j in range(i + 1, end + 1) if p > 1 else (end,):
                            tails = best.get((j, before, p - 1), ()) if p > 1 else (None,)
                            if p == 1 and before:
                                continue
                            if not tails:
                                continue
                            head = self._stage(cuts[i], cuts[j], group, costs.kept(p - 1))
                            if head is None or costs.micro_batches * head[1].busy >= limit:
                                continue
                            for tail in tails:
                                # tails come sorted, and a head delays all of a tail
                                if tail and head[1].forward + tail.seconds >= limit:
                                    break
                                one = self._before(head, tail)
                                if one.seconds < limit:
                                    insort(found, one, key=seconds)
                                    limit = limit_of(found)
                    if found:
                        best[i, n, p] = found[:beams]
        return [tail for p in range(1, count + 1) for tail in best.get((0, count, p), ())]

    def _keys(self, shape: Shape) -> list[tuple[int, int, tuple[str, ...], int]]:
        ends = [*(first for first, _ in shape[1:]), self._costs.layers]
        return [(first, last, names, self._costs.kept(len(shape) - 1 - k))
                for k, ((first, names), last) in enumerate(zip(shape, ends))]

    def around(self, shapes: Sequence[Shape], orders: Sequence[Sequence[str]],
               ) -> list[tuple[HybridStage, ...]]:
        """Return stages of the first shape, and of better ones near the best of all."""
        seconds = {shape: tail.seconds for shape in shapes if (tail := self._priced_plan(shape))}
        for names in orders:
            bound = SLACK[self._many] * min(seconds.values(), default=np.inf)
            seconds |= {tail.shape: tail.seconds for tail in self._program(tuple(names), bound)}
        near = [shape for shape in shapes[:1] if shape in seconds]
        for shape in sorted(seconds, key=seconds.__getitem__)[:NEAREST]:
            near += [self.climb(shape, seconds[shape], borders)[0] for borders in (True, False)]
        return [stages for one in dict.fromkeys(near) if (stages := stages_of(self._costs, one))]

    def _priced_plan(self, shape: Shape) -> _Tail | None:
        tail: _Tail | None = None
        for key in reversed(self._keys(shape)):
            head = self._stage(*key)
            if head is None:
                return None
            tail = self._before(head, tail)
        return tail

    def climb(self, shape: Shape, seconds: float, borders: bool = False) -> tuple[Shape, float]:
        """
        Move to the best neighbour by the estimate while there is a better one.

        With `borders` all devices stay in their stages.
        """
        for _ in range(STEPS):
            near = [(tail.seconds, one)
                    for one in (self._shifted if borders else self._near)(shape)
                    if (tail := self._priced_plan(one))]
            if not near or min(near)[0] >= seconds * (1 - 1e-6):
                break
            seconds, shape = min(near)
        return shape, seconds

    def _shifted(self, shape: Shape) -> Iterator[Shape]:
        """Yield shapes with one border elsewhere."""
        for k in range(1, len(shape)):
            low = shape[k - 1][0] + 1
            high = (shape[k + 1][0] if k + 1 < len(shape) else self._costs.layers) - 1
            for step in (-16, -4, -2, -1, 1, 2, 4, 16):
                if low <= shape[k][0] + step <= high:
                    yield (*shape[:k], (shape[k][0] + step, shape[k][1]), *shape[k + 1:])

    def _near(self, shape: Shape) -> Iterator[Shape]:
        """Yield shapes with one border or one device elsewhere, a stage more, or one fewer."""
        layers = self._costs.layers
        for k, ((first, names), end) in enumerate(zip(shape, [*(one for one, _ in shape[1:]),
                                                              layers])):
            if k:
                yield (*shape[:k - 1], (shape[k - 1][0], shape[k - 1][1] + names), *shape[k + 1:])
            if len(shape) > 1:
                rest = [*shape[:k], *shape[k + 1:]]
                yield ((0, rest[0][1]), *rest[1:])
            for name in names if len(names) > 1 else ():
                others = tuple(n for n in names if n != name)
                for cut in {(first + end) // 2, first + 1, end - 1} - {first, end}:
                    yield (*shape[:k], (first, others), (cut, (name,)), *shape[k + 1:])
                    yield (*shape[:k], (first, (name,)), (cut, others), *shape[k + 1:])
        yield from self._shifted(shape)
        used = {name for _, names in shape for name in names}
        homes = {name: k for k, (_, names) in enumerate(shape) for name in names}
        for name, home in homes.items():
            if len(shape[home][1]) > 1:
                without = _set(shape, home, tuple(n for n in shape[home][1] if n != name))
                yield without
                for k in range(len(shape)):
                    if k != home:
                        yield _set(without, k, (*shape[k][1], name))
            for other, there in homes.items():
                if home < there:
                    yield _set(_set(shape, home, _swap(shape[home][1], name, other)), there,
                               _swap(shape[there][1], other, name))
        for name in self._costs.topology.names:
            if name not in used:
                for k, (_, names) in enumerate(shape):
                    yield _set(shape, k, (*names, name))
                    for old in names:
                        yield _set(shape, k, _swap(names, old, name))


def _set(shape: Shape, k: int, names: tuple[str, ...]) -> Shape:
    return (*shape[:k], (shape[k][0], names), *shape[k + 1:])


def _swap(names: tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
    return tuple(new if name == old else name for name in names)
