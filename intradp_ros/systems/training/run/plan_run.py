# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A plan on one device: it meets the others, takes its layers, runs rounds and copies them."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
import math
import operator
import time
from typing import Any

import torch

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.profiling.machine import release_memory
from intradp_ros.systems.training.base.reading import take
from intradp_ros.systems.training.base.structure import taken_apart, Tensors
from intradp_ros.systems.training.base.task import (
    samples_of,
    take_of_round,
    TaskError,
    TrainingTask,
)
from intradp_ros.systems.training.layers.judgement import BEST, BestSoFar, NO_CLASSES
from intradp_ros.systems.training.layers.layer_graph import MOST_VALUES, Value
from intradp_ros.systems.training.plan.sample_moves import homes_of, sample_moves
from intradp_ros.systems.training.plan.stage_actions import Action, device_actions, fan_out, Part
from intradp_ros.systems.training.plan.training_plan import TrainingPlan, TrainingStage
from intradp_ros.systems.training.run.layer_traffic import LayerTraffic, TrainingDevice
from intradp_ros.systems.training.run.round_groups import GroupError, join_group, RoundGroup
from intradp_ros.systems.training.run.snapshots import Move, pieces_of
from intradp_ros.systems.training.run.stage_runner import by_layer, squares, StageRunner
from intradp_ros.systems.training.run.validation import Validation

#: Receives that are begun ahead of the action that needs them.
AHEAD = 2
#: Rounds by which waits are longer than the time-out: what is waited for may be computed first.
WAITING_ROUNDS = 2
#: Bytes of a target of a pass from one device.
MOST_TARGETS = 1 << 31
#: How a plan ends where no better weights have come for as long as the task waits for them.
SETTLED = 'settled'
#: Seconds from which on a device has waited for what it receives.
WAITED = 0.5e-3


class DivergedError(RuntimeError):
    """A round whose loss or gradients are not finite; nobody has stepped it."""


class PlanRun:
    """
    One plan on one device, from the round of its tag on.

    `stage` is what is trained here, once it has begun.  With `leaving` the others learn in the
    sum of a round that the plan ends, and all stop after that round: `stop_at`.  `fate` says why
    they do by themselves.
    """

    def __init__(self, device: TrainingDevice, plan: TrainingPlan, number: PlanId,
                 tag: int) -> None:
        self.round, self._device, self._plan, self._number = tag, device, plan, number
        self.stop_at, self.leaving = device.task.rounds, False
        if plan.data and sum(n for _, n in plan.data) != len(device.task.data):
            raise TaskError(f'the plan has {sum(n for _, n in plan.data)} samples on devices, the '
                            f'data are {len(device.task.data)}')
        place = plan.stage_of(device.name)
        self._place = -1 if place is None else place
        self._part = TrainingStage(0, 0, ((device.name, 0),)) if place is None else \
            plan.stages[place]
        self._actions = device_actions(plan, device.name)
        self._groups: list[RoundGroup] = []
        self._samples: list[int] = []
        self._own: dict[int, int] = {}
        self._own_rows: tuple[Tensors, Tensors] = ((), ())
        self._sums: tuple[float, ...] = (0.0, 0.0, 0)  # losses, what samples count, samples
        self._clock, self._begun, self._steps = _Clock(), False, False
        self.fate = ''

    def begin(self, moved: list[Move], given: Mapping[int, str]) -> None:
        """
        Meet the others, move layers, and take the state of the tag.

        `given` are the digests of the layers that come from the trainer.
        """
        device, settings = self._device, self._device.settings
        device.snapshots.forget(after=self.round)
        release_memory()  # what ran before: graphs are cycles
        rate = settings.emulation.rate if settings.emulation else None
        timeout = settings.timeout + WAITING_ROUNDS * self._plan.seconds
        for purpose in ('rounds', 'copies'):
            self._groups.append(join_group(
                device.ways, self._number, self._plan.participants, device.name,
                self._part.devices, timeout, rate, purpose))
        self._traffic = LayerTraffic(device, self._plan, self._number, self._part, self._groups[1])
        self._traffic.send(self.round, moved, given)
        stage = StageRunner(device.task, device.graph, self._part.first, self._part.last,
                            device.kernels)  # while bytes are in flight
        self._traffic.receive(self.round, moved)
        if self.round and self._part.last:
            own = range(self._part.first, self._part.last)
            self._traffic.check_held(self.round, own)
            held = device.snapshots.kept[self.round]
            stage.restore({name: tensor for layer in own
                           for name, tensor in held[layer].items()})
        self.stage, self._begun = stage, True
        if device.task.validate_every:
            self._agree_on_best()

    def _agree_on_best(self) -> None:
        """Have all devices know what is best so far; it goes with the first layer."""
        first = self._plan.stages[0]
        own = self._device.snapshots.kept.get(self.round, {}).get(0, {}) \
            if self._device.name == first.devices[0] and self.round else {}
        known = BestSoFar.of(own).tensor if BEST in own else torch.zeros(3, dtype=torch.float64)
        self._groups[0].total(known)
        if known.any():
            self.stage.best = BestSoFar.of({BEST: known})
        self._settle()

    def _settle(self) -> None:
        """Stop here where better weights have not come for long enough."""
        if self.stage.best.ends(self._device.task):
            self.fate, self.stop_at = SETTLED, self.round

    def play(self) -> None:
        """
        Train one round.

        :raises DivergedError: if its loss or gradients are not finite; it ends all devices' plan.
        """
        begun = time.monotonic()
        task = self._device.task
        self._samples = samples_of(task.seed, len(task.data), task.batch, self.round)
        self._sums, self._clock = (0.0, 0.0, 0), _Clock()
        self.stage.begin()
        coming: dict[Action, list[tuple[Part, list[tuple[torch.Tensor, Any]]]]] = {}
        for k, action in enumerate(self._actions):
            for one in self._actions[k:k + AHEAD + 1]:
                if one not in coming and one.kind in 'FB':
                    coming[one] = self._begin_receiving(one)
            self._device.before(self.round, action)
            if action.kind == 'I':
                self._send_samples()
            elif action.kind == 'F':
                self._forward(action.micro_batch, coming.pop(action))
            elif action.kind == 'B':
                self._backward(action.micro_batch, coming.pop(action))
            elif action.kind == 'S':
                figures = self._sum()
                if not math.isfinite(figures['loss']) or not math.isfinite(figures['norm']):
                    raise DivergedError(
                        f'training has diverged: in round {self.round} the loss is '
                        f'{figures["loss"]:g} and the norm of all gradients {figures["norm"]:g}')
            else:
                with self._taking('U'):
                    self._steps = True  # until this round's validation is over, too
                    self.stage.step(self.round, figures['norm'])
        seconds, judged = time.monotonic() - begun, None
        if task.validates(self.round):
            judged = Validation(self._device.name, self._plan, self._groups[0], self.stage,
                                self._taking).run(self.round, self._device.before)
            self.stage.judge(_score(task, judged), self.round + 1)
        self.round, self._steps = self.round + 1, False
        self._device.report({'report': 'round', 'plan': self._number, 'round': self.round - 1,
                             **figures, 'seconds': seconds, 'validation': judged})
        if judged is not None:
            self._settle()
        traffic = self._traffic
        traffic.due |= self.round % self._device.settings.every == 0
        if traffic.due and not traffic.copying and self.round < min(task.rounds, self.stop_at):
            traffic.due = False
            self._keep()
            traffic.copy(self.round, self.stage.best.round)

    def _cut(self, action: Action) -> tuple[Value, ...]:
        """Return what an action receives: values that enter, or gradients of what left."""
        if action.kind == 'F':
            return self._device.graph.cuts[self._part.first]
        return tuple(value for value in self._device.graph.cuts[self._part.last] if value.gradient)

    def _begin_receiving(self, action: Action,
                         ) -> list[tuple[Part, list[tuple[torch.Tensor, Any]]]]:
        back = action.kind == 'B'
        border = self._place if back else self._place - 1
        if not 0 <= border < len(self._plan.stages) - 1:
            return []
        cut, begun = self._cut(action), []
        for part in fan_out(self._plan, border, action.micro_batch):
            if (part.source if back else part.target) != self._device.name:
                continue
            source = part.target if back else part.source
            rows = [((self._count(part.grains), *value.shape), value.dtype) for value in cut]
            if back:
                rows.append(((len(cut),), torch.uint8))  # which of them are gradients
            begun.append((part, [self._groups[0].receive(shape, dtype, source,
                                                         self._tag(action, k))
                                 for k, (shape, dtype) in enumerate(rows)]))
        return begun

    def _joined(self, begun: list[tuple[Part, list[tuple[torch.Tensor, Any]]]], back: bool,
                ) -> list[Tensors]:
        """Wait for parts; return them by value."""
        asked = time.monotonic()
        for part, values in begun:
            for _, work in values:
                self._groups[0].wait(work, part.target if back else part.source)
        if time.monotonic() - asked > WAITED:
            self._clock.idle()
        return list(zip(*([tensor for tensor, _ in values] for _, values in begun)))

    def _send(self, action: Action, values: Sequence[torch.Tensor | None]) -> None:
        """Send what an action made to whom it belongs; with gradients, which of them there are."""
        back = action.kind == 'B'
        border = self._place - 1 if back else self._place
        if not 0 <= border < len(self._plan.stages) - 1:
            return
        first = self._grains(action.micro_batch).start
        cut = self._device.graph.cuts[self._part.first if back else self._part.last]
        cut = tuple(value for value in cut if value.gradient or not back)
        for part in fan_out(self._plan, border, action.micro_batch):
            if (part.target if back else part.source) != self._device.name:
                continue
            begin = self._count(range(first, part.grains.start))
            rows = slice(begin, begin + self._count(part.grains))
            target = part.source if back else part.target
            for k, (value, one) in enumerate(zip(values, cut, strict=True)):
                self._groups[0].send(
                    torch.zeros(rows.stop - rows.start, *one.shape, dtype=one.dtype)
                    if value is None else value[rows], target, self._tag(action, k))
            if back:
                there = torch.tensor([value is not None for value in values], dtype=torch.uint8)
                self._groups[0].send(there, target, self._tag(action, len(cut)))

    def _grains(self, micro_batch: int) -> range:
        return self._plan.dealt(self._place, micro_batch)[self._device.name]

    def _count(self, grains: range) -> int:
        return sum(len(self._device.task.grain_rows(grain)) for grain in grains)

    def _tag(self, action: Action, value: int) -> int:
        return (self.round % 64) << 24 | action.micro_batch << 8 | value << 1 | \
            (action.kind == 'B')

    def _sample_tag(self, number: int, value: int) -> int:
        return self._tag(Action('I', number), MOST_VALUES + value)

    def _rows_of(self, grains: range) -> list[int]:
        task = self._device.task
        return self._samples[task.grain_rows(grains[0]).start:
                             task.grain_rows(grains[-1]).stop] if grains else []

    def _read(self, samples: Sequence[int]) -> tuple[Tensors, Tensors]:
        """Return the values that enter the first layer, and the targets, of samples."""
        graph = self._device.graph
        task, number = self._device.task, self.round
        inputs, whole = take(task.data, samples, lambda some: take_of_round(task, number, some))
        entering, (targets, structure) = graph.entering(inputs), taken_apart(whole)
        if structure != graph.interface.targets:
            raise TaskError(f'among the samples {samples} some have targets of the form '
                            f'{structure.spec}, the first ones {graph.interface.targets.spec}')
        moved = zip(targets, graph.interface.wanted) if self._plan.data else ()
        for x, value in (*zip(entering, graph.cuts[0]), *moved):
            if tuple(x.shape[1:]) != value.shape or x.dtype != value.dtype:
                raise TaskError(f'among the samples {samples} some are {tuple(x.shape[1:])} '
                                f'{x.dtype}, the first ones are {value.shape} {value.dtype}: let '
                                'the data give all samples the same shape and type')
        return entering, targets

    def _send_samples(self) -> None:
        """Read the samples of this round that lie here, and send others what they need of them."""
        plan, name = self._plan, self._device.name
        own = [sample for sample, home in zip(self._samples, homes_of(plan, self._samples))
               if home == name]
        self._own = {sample: row for row, sample in enumerate(own)}
        if not own:
            return
        self._own_rows = self._read(own)
        last = len(plan.stages) - 1
        for number in range(plan.micro_batches):
            for stage in sorted({0, last}):
                for target, grains in plan.dealt(stage, number).items():
                    for move in sample_moves(plan, target, self._rows_of(grains)):
                        if move.source == name != target:
                            rows = [self._own[sample] for sample in move.samples]
                            for k, tensor in enumerate(self._sent(stage == 0, stage == last)):
                                self._groups[0].send(tensor[rows], target,
                                                     self._sample_tag(number, k))

    def _sent(self, first: bool, last: bool) -> list[torch.Tensor]:
        """Return what a device of the first or last stage needs, of samples that lie here."""
        inputs, targets = self._own_rows
        return [*(inputs if first else ()), *(targets if last else ())]

    def _taken(self, number: int, first: bool, last: bool) -> tuple[Tensors, Tensors]:
        """Return what enters a pass and its targets, as far as this stage needs them."""
        samples, group = self._rows_of(self._grains(number)), self._groups[0]
        if not self._plan.data:
            return self._read(samples)
        graph = self._device.graph
        entering = graph.cuts[0] if first else ()
        joined = [torch.empty((len(samples), *value.shape), dtype=value.dtype)
                  for value in (*entering, *(graph.interface.wanted if last else ()))]
        begun = []
        for move in sample_moves(self._plan, self._device.name, samples):
            if move.source == self._device.name:
                rows = [self._own[sample] for sample in move.samples]
                for whole, tensor in zip(joined, self._sent(first, last)):
                    whole[list(move.rows)] = tensor[rows]
            else:
                begun += [(move, whole, *group.receive(
                    (len(move.rows), *whole.shape[1:]), whole.dtype, move.source,
                    self._sample_tag(number, k))) for k, whole in enumerate(joined)]
        asked = time.monotonic()
        for move, whole, tensor, work in begun:
            group.wait(work, move.source)
            whole[list(move.rows)] = tensor
        if time.monotonic() - asked > WAITED:
            self._clock.idle()
        return tuple(joined[:len(entering)]), tuple(joined[len(entering):])

    def _send_targets(self, number: int, targets: Tensors) -> None:
        """Send the last stage targets of samples that were read here: nobody reads them again."""
        group, wanted = self._groups[0], self._device.graph.interface.wanted
        for x, value in zip(targets, wanted, strict=True):
            if x.dim() != 1 + len(value.shape) or x.dtype != value.dtype:
                raise TaskError(f'among the samples {self._rows_of(self._grains(number))} some '
                                f'have targets of {x.dim() - 1} dimensions, {x.dtype}, the first '
                                f'ones of {len(value.shape)}, {value.dtype}: let the data give '
                                'all samples the same')
        first = self._grains(number).start
        for part in fan_out(self._plan, 0, number, len(self._plan.stages) - 1):
            if part.source == self._device.name:
                begin = self._count(range(first, part.grains.start))
                rows = slice(begin, begin + self._count(part.grains))
                for k, x in enumerate(targets):
                    tag = self._sample_tag(number, k)
                    group.send(torch.tensor(x.shape[1:], dtype=torch.int64), part.target, tag)
                    group.send(x[rows], part.target, tag)

    def _targets(self, number: int) -> Tensors:
        """Return the targets of a pass, from those that have read its samples."""
        group, found = self._groups[0], list[list[torch.Tensor]]()
        asked = time.monotonic()
        for part in fan_out(self._plan, 0, number, len(self._plan.stages) - 1):
            if part.target != self._device.name:
                continue
            found.append([])
            for k, value in enumerate(self._device.graph.interface.wanted):
                tag = self._sample_tag(number, k)
                shape, work = group.receive((len(value.shape),), torch.int64, part.source, tag)
                group.wait(work, part.source)
                whole = (self._count(part.grains), *shape.tolist())
                if min(whole) < 0 or math.prod(whole) * value.dtype.itemsize > MOST_TARGETS:
                    raise GroupError(f'{part.source} offers targets of the shape {whole}')
                x, work = group.receive(whole, value.dtype, part.source, tag)
                group.wait(work, part.source)
                found[-1].append(x)
        if time.monotonic() - asked > WAITED:
            self._clock.idle()
        return tuple(_joined(parts, self._rows_of(self._grains(number)))
                     for parts in zip(*found))

    def _forward(self, number: int, begun: list[Any]) -> None:
        grains = self._grains(number)
        if not grains:
            return
        first, last = not self._place, self._place == len(self._plan.stages) - 1
        inputs, targets = self._taken(number, first, last) if first or (
            last and self._plan.data) else ((), ())
        if not self._plan.data and first != last:
            if first:
                self._send_targets(number, targets)
            elif last:
                targets = self._targets(number)
        entering = inputs if first else tuple(map(_cat, self._joined(begun, back=False)))
        with self._taking('F', len(self._rows_of(grains))):
            outputs = self.stage.forward(self.round, number, grains, entering)
            if last:
                found = (*self.stage.lose(self.round, number, targets), len(targets[0]))
                self._sums = tuple(map(operator.add, self._sums, found))
        self._send(Action('F', number), outputs)

    def _backward(self, number: int, begun: list[Any]) -> None:
        grains = self._grains(number)
        if not grains:
            return
        gradients: list[torch.Tensor | None] = []
        if begun:
            *columns, flags = self._joined(begun, back=True)
            gradients = [_cat(rows) if there else None for rows, there in zip(
                columns, torch.stack(flags).any(0).tolist(), strict=True)]
        with self._taking('B', len(self._rows_of(grains))):
            entered = self.stage.backward(number, gradients)
        self._send(Action('B', number), entered)

    def _taking(self, kind: str, rows: int = 0) -> _Taking:
        emulation = self._device.settings.emulation
        return _Taking(self._clock,
                       emulation.seconds(self.stage, kind, rows) if emulation else 0.0)

    def _sum(self) -> dict[str, float]:
        """Sum gradients and statistics over the group at once, then loss and norm over all."""
        group = self._groups[0]
        group.settle()
        self._sum_in_group()
        speaks = self._device.name == self._part.devices[0]
        hooks = bool(self.stage.hooks.names)  # of any stage: they change the norm

        def square() -> float:
            return squares(self.stage.gradients()) if speaks else 0.0
        copied = self._traffic.newest
        total = torch.tensor([0.0 if hooks else square(), *self._sums,
                              float(self.leaving), float(self._traffic.running),
                              float(copied is None)],
                             dtype=torch.float64)
        group.total(total)
        squared, loss, counted, samples, leaving, copying, failed = total.tolist()
        counted = counted or 1.0  # where nothing counts, all sums are 0
        self.stage.divide(self.round, counted)
        norm = squared ** 0.5 / counted
        if hooks:
            group.total(found := torch.tensor([square()], dtype=torch.float64))
            norm = float(found) ** 0.5
        if leaving:  # all of them see it in this round
            self.stop_at = self.round + 1
        self._traffic.copying = bool(copying)
        if not copying and not failed:  # all of them have it: none goes back further
            self._device.snapshots.forget(before=copied or 0)
        self._clock.idle()
        return {'norm': norm, 'loss': loss / counted, 'samples': int(samples)}

    def _sum_in_group(self) -> None:
        """
        Sum gradients and statistics over the devices of this stage.

        Only a parameter that a sample of one of them reached has a gradient then, in all of them.
        """
        if len(self._part.devices) == 1:
            return
        statistics = self._all_statistics()
        tensors = [*self.stage.parameters.values(), *statistics.values()]
        for dtype in dict.fromkeys(x.dtype for x in tensors):
            parameters = [p for p in self.stage.parameters.values() if p.dtype == dtype]
            tables = [table for table in statistics.values() if table.dtype == dtype]
            for some in pieces_of(parameters, [p.nbytes for p in parameters]):
                self._sum_piece(some, tables, dtype)
                tables = []
            if tables:
                self._sum_piece([], tables, dtype)
        self.stage.statistics |= {name: dict(enumerate(rows))
                                  for name, rows in statistics.items()}

    def _sum_piece(self, parameters: Sequence[torch.Tensor], tables: Sequence[torch.Tensor],
                   dtype: torch.dtype) -> None:
        """Sum the gradients of some parameters, and tables, over the devices of this stage."""
        reached = torch.tensor([float(p.grad is not None) for p in parameters], dtype=dtype)
        some = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters] + [*tables]
        flat = torch.cat([*(x.detach().flatten().cpu() for x in some), reached])
        self._groups[0].total(flat, replicas=True)
        *parts, reached = torch.split(flat, [*(x.numel() for x in some), len(reached)])
        for x, part in zip(some, parts):
            x.copy_(part.view_as(x))
        for p, gradient, times in zip(parameters, some, reached.tolist()):
            p.grad = gradient if times else None

    def _all_statistics(self) -> dict[str, torch.Tensor]:
        """Return a row for every grain's statistics: own ones, 0 where others of the group add."""
        if self._device.task.freeze_norms:
            return {}
        norms = self._device.graph.norms
        rows = {name: torch.zeros(self._plan.grains, norms[name].uses, 2, *found.shape,
                                  dtype=found.dtype)
                for name, found in self.stage.buffers.items() if name in norms}
        for name, table in rows.items():
            for grain, row in self.stage.statistics.get(name, {}).items():
                table[grain] = row
        return rows

    def _keep(self) -> None:
        for layer, state in by_layer(self._device.graph, self.stage.state(), range(
                self._part.first, self._part.last)).items():
            self._device.snapshots.put(self.round, layer, state)

    def finish(self) -> None:
        """Keep the state where the plan ends; copies that take long are of no use any more."""
        self._traffic.join(self._device.settings.timeout)
        self._keep()

    def keep(self) -> None:
        """Keep the state of the last round that was stepped, where the plan fails."""
        if self._begun and not self._steps:
            self._keep()

    def drop(self) -> None:
        """Drop the connections: who waits for this device learns it."""
        for group in self._groups:
            group.close()

    def close(self) -> None:
        """Wait for the end of what is copied; its waits have ends."""
        if self._begun:
            self._traffic.join()


def _score(task: TrainingTask, judged: Mapping[str, Any]) -> float:
    """Return the figure that is to be high; TaskError where there is no accuracy."""
    if task.best_by == 'loss':
        return -float(judged['loss'])
    if judged['accuracy'] is None:
        raise TaskError(NO_CLASSES)
    return float(judged['accuracy'])


def _joined(parts: Tensors, samples: Sequence[int]) -> torch.Tensor:
    if len(shapes := {tuple(part.shape[1:]) for part in parts}) > 1:
        raise TaskError(f'among the samples {samples} some have targets of the shapes '
                        f'{sorted(shapes)}: let the data give all samples the same shape')
    return _cat(parts)


def _cat(rows: Tensors) -> torch.Tensor:
    return torch.cat(rows) if len(rows) > 1 else rows[0]


class _Clock:
    """
    The time up to which an emulated device is busy.

    A sleep ends late, and between two passes something is to be done: the next pass makes up for
    it.  Only time in which the device waited for others is not made up for.
    """

    def __init__(self) -> None:
        self.due = time.monotonic()

    def idle(self) -> None:
        """Note that there was nothing to compute until now."""
        self.due = max(self.due, time.monotonic())


class _Taking:
    """Lets what is computed take as long as on the emulated device."""

    def __init__(self, clock: _Clock, seconds: float) -> None:
        self._clock, self._takes = clock, seconds > 0
        clock.due += seconds

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, *error: object) -> None:
        """Wait for the end."""
        if self._takes and (left := self._clock.due - time.monotonic()) > 0:
            time.sleep(left)
