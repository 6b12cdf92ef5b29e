# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
From a plan of stages to the tasks of many frames, which the event simulator plays.

Consecutive operators that nothing enters or leaves between are one task.
Frames overlap: a device takes the parts of several frames in the order in
which they would begin if each frame began one period after the one before,
where the period is what the busiest device or medium needs for a frame.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from intradp_ros.cluster.topology import Topology
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.event_simulator import Simulation
from intradp_ros.schedule.schedule import Compute, Receive, Schedule, Send, Step
from intradp_ros.schedule.stage_lowering import lower_stages
from intradp_ros.schedule.stage_plan import PlanError, StagePlan
from intradp_ros.schedule.task_graph import ComputeTask, Task, TaskGraph, TransferTask
from intradp_ros.split.local_operator import SplitGraph

#: Seconds of each operator whole, in the graph's running order, by device.
DeviceSeconds = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class StageTasks:
    """Tasks of frames; by frame, the task with which it arrives and the one that ends it."""

    graph: TaskGraph
    arrivals: tuple[int, ...]
    ends: tuple[int, ...]

    def latencies(self, found: Simulation) -> tuple[float, ...]:
        """Return the seconds of each frame from when it was due to its last result."""
        return tuple(float(found.finish[end]) - self.graph.release.get(arrival, 0.0)
                     for arrival, end in zip(self.arrivals, self.ends))


def whole_seconds(cost: CostModel) -> dict[str, tuple[float, ...]]:
    """Return the seconds of each operator whole on each device of a cost model."""
    return {device: tuple(float(table[-1]) for table in tables)
            for device, tables in cost.seconds.items()}


def stage_tasks(split: SplitGraph, plan: StagePlan, seconds: DeviceSeconds, topology: Topology,
                frames: int = 1, interval: float = 0.0, inflight: int | None = None,
                ) -> StageTasks:
    """
    Return the tasks of frames that arrive every `interval` seconds at the plan's source.

    Frame k takes the route of sample ``k % plan.samples``.  No more than
    `inflight` frames are on their way at a time (None: any number); those
    that arrive meanwhile wait.  Each device holds the parameters of its
    operators all along, and a value until its last reader or transfer has
    ended.

    :raises PlanError: if the plan does not fit the graph or the devices.
    :raises ValueError: if nothing joins two devices that must talk.
    """
    plan.check(split.graph, topology.names)
    _check_seconds(split, plan, seconds)
    schedules = dict(zip(plan.routes(), lower_stages(split, plan)))
    made = {route: _Frame(split, schedule, plan, seconds, topology)
            for route, schedule in schedules.items()}
    patterns = [made[plan.route(k)] for k in range(plan.samples)]
    period = _period(patterns, topology, interval, inflight)
    return _repeat(patterns, frames, interval, period, inflight,
                   _resident(split, plan))


def _check_seconds(split: SplitGraph, plan: StagePlan, seconds: DeviceSeconds) -> None:
    for name in plan.devices:
        if len(seconds.get(name, ())) != len(split.operators):
            raise PlanError(f'there are seconds of {len(seconds.get(name, ()))} operators for '
                            f'device {name!r}, the graph has {len(split.operators)}')


def _resident(split: SplitGraph, plan: StagePlan) -> dict[str, float]:
    """Return the bytes of the parameters that each device needs."""
    names: dict[str, set[str]] = defaultdict(set)
    for stage in plan.stages:
        for member in stage.members:
            for index in stage.operators:
                names[member.device].update(split.graph.operators[index].parameters)
    weights = split.graph.parameters
    return {device: float(sum(weights[name].nbytes for name in needed if name in weights))
            for device, needed in names.items()}


@dataclass
class _Part:
    """Operators that a device runs in one go, and the tasks that it waits for."""

    device: str
    after: set[int]
    operators: list[int] = field(default_factory=list)


class _Frame:
    """
    The tasks of one frame on one route: `tasks`, and the seconds at which each begins alone.

    The first task is the frame's arrival, the last its end.
    """

    def __init__(self, split: SplitGraph, schedule: Schedule, plan: StagePlan,
                 seconds: DeviceSeconds, topology: Topology) -> None:
        self._split, self._schedule, self._seconds = split, schedule, seconds
        source, self._leads = plan.source, plan.leads
        self.tasks: list[Task] = [TransferTask(source, source, 0.0, name='arrival')]
        self._parts: dict[int, _Part] = {}
        self._open: dict[str, int] = {}
        self._waits: dict[str, set[int]] = defaultdict(set)
        self._home = {(source, v): 0 for v in split.graph.inputs}
        self._users: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._sent: dict[int, int] = {}
        self._walk()
        self._finish(source)
        self._hold()
        self.begins = _begins(self.tasks, topology)

    def _walk(self) -> None:
        left = {device: list(steps) for device, steps in self._schedule.programs.items()}
        while any(left.values()):
            for device, steps in left.items():
                while steps and not (isinstance(steps[0], Receive)
                                     and steps[0].transfer not in self._sent):
                    self._take(device, steps.pop(0))

    def _take(self, device: str, step: Step) -> None:
        if isinstance(step, Compute):
            self._compute(device, step.operator)
            return
        self._open.pop(device, None)
        if isinstance(step, Send):
            self._send(step.transfer)
        else:
            transfer = self._schedule.transfers[step.transfer]
            self._home[device, transfer.value] = self._sent[step.transfer]

    def _compute(self, device: str, operator: int) -> None:
        if device not in self._open:
            self._open[device] = len(self.tasks)
            self._parts[len(self.tasks)] = _Part(device, set())
            self.tasks.append(ComputeTask(device, 0.0))
        index = self._open[device]
        part, op = self._parts[index], self._split.graph.operators[operator]
        part.operators.append(operator)
        for value in op.inputs:
            if self._home[device, value] != index:
                part.after.add(self._home[device, value])
                self._users[device, value].append(index)
        self._home |= {(device, v): index for v in op.outputs if v is not None}

    def _send(self, number: int) -> None:
        t = self._schedule.transfers[number]
        self._sent[number] = len(self.tasks)
        self._users[t.source, t.value].append(len(self.tasks))
        self.tasks.append(TransferTask(
            t.source, t.target, float(self._split.nbytes(t.value, t.region.rows)),
            (self._home[t.source, t.value],), self._split.graph.values[t.value].name,
            -self._leads.get((t.value, t.source, t.target), 0.0)))

    def _finish(self, source: str) -> None:
        last = len(self.tasks)
        for value in self._split.graph.output_values:
            self._users[source, value].append(last)
        after = {self._home[source, v] for v in self._split.graph.output_values} or {0}
        self.tasks.append(TransferTask(source, source, 0.0, tuple(sorted(after)), 'end'))

    def _hold(self) -> None:
        """Fill in what is held until when; what a part leaves is held by a task without work."""
        for (device, value), home in list(self._home.items()):
            task = self.tasks[home]
            if isinstance(task, TransferTask) and self._users[device, value]:
                self.tasks[home] = replace(
                    task, holds=task.holds + self._bytes(value),
                    until=tuple(sorted({*task.until, *self._users[device, value]})))
        end = self.tasks.pop()
        shift = {len(self.tasks): len(self.tasks) + len(self._parts)}
        kept = [self._leave(index, part) for index, part in self._parts.items()]
        self.tasks = [_renamed(task, shift) for task in (*self.tasks, *kept, end)]

    def _leave(self, index: int, part: _Part) -> Task:
        """Write the task of a part, and return the one that holds what others read of it."""
        ops = [self._split.graph.operators[k] for k in part.operators]
        made = [v for op in ops for v in op.outputs if v is not None]
        left = [v for v in made if self._users[part.device, v]]
        until = sorted({user for v in left for user in self._users[part.device, v]})
        self.tasks[index] = ComputeTask(
            part.device, sum(self._seconds[part.device][k] for k in part.operators),
            tuple(sorted(part.after)), ops[0].name, self._peak(part, set(left)))
        return TransferTask(part.device, part.device, 0.0, (index,), '',
                            holds=sum(map(self._bytes, left)), until=tuple(until))

    def _peak(self, part: _Part, left: set[int]) -> float:
        """Return the most bytes of own values that are alive while a part runs."""
        ops = [self._split.graph.operators[k] for k in part.operators]
        own = {v for op in ops for v in op.outputs if v is not None}
        last = {v: place for place, op in enumerate(ops) for v in (*op.outputs, *op.inputs)
                if v in own}
        alive = most = 0.0
        for place, op in enumerate(ops):
            alive += sum(self._bytes(v) for v in op.outputs if v is not None)
            most = max(most, alive)
            alive -= sum(self._bytes(v) for v in {*op.outputs, *op.inputs}
                         if v is not None and v in own and last[v] == place and v not in left)
        return most

    def _bytes(self, value: int) -> float:
        return float(self._split.graph.values[value].nbytes)


def _renamed(task: Task, names: Mapping[int, int]) -> Task:
    return replace(task, after=tuple(names.get(k, k) for k in task.after),
                   until=tuple(names.get(k, k) for k in task.until))


def _begins(tasks: Sequence[Task], topology: Topology) -> list[float]:
    """Return when each task begins if the frame is alone and media carry one transfer each."""
    begins, ends = [0.0] * len(tasks), [0.0] * len(tasks)
    free: dict[str, float] = defaultdict(float)
    for index, task in enumerate(tasks):
        begin = max((ends[k] for k in task.after), default=0.0)
        if isinstance(task, ComputeTask):
            begin = max(begin, free[task.device])
            free[task.device] = begin + task.seconds
            ends[index] = begin + task.seconds
        elif isinstance(task, TransferTask):
            ends[index] = begin + _alone(task, topology)
        begins[index] = begin
    return begins


def _alone(task: TransferTask, topology: Topology) -> float:
    return (task.nbytes / topology.rate(task.source, task.target)
            + topology.delay(task.source, task.target))


def _period(patterns: Sequence[_Frame], topology: Topology, interval: float,
            inflight: int | None) -> float:
    """Return the seconds from frame to frame that no device and no medium is too slow for."""
    needs: dict[str, float] = defaultdict(float)
    for pattern in patterns:
        for task in pattern.tasks:
            if isinstance(task, ComputeTask):
                needs[f'device {task.device}'] += task.seconds / len(patterns)
            elif isinstance(task, TransferTask):
                for name in topology.path(task.source, task.target):
                    needs[f'medium {name}'] += (
                        task.nbytes / topology.medium(name).bytes_per_second / len(patterns))
    longest = max(pattern.begins[-1] for pattern in patterns)
    # A little more than needed, so that no rounding puts a frame before the one it waits for.
    window = longest / inflight * (1 + 1e-9) if inflight else 0.0
    return max(interval, window, *needs.values())


def _repeat(patterns: Sequence[_Frame], frames: int, interval: float, period: float,
            inflight: int | None, resident: Mapping[str, float]) -> StageTasks:
    keys = sorted((frame * period + begin, frame, index)
                  for frame in range(frames)
                  for index, begin in enumerate(patterns[frame % len(patterns)].begins))
    place = {(frame, index): number for number, (_, frame, index) in enumerate(keys)}
    last = [len(patterns[frame % len(patterns)].tasks) - 1 for frame in range(frames)]
    tasks: list[Task] = []
    for _, frame, index in keys:
        task = patterns[frame % len(patterns)].tasks[index]
        after = tuple(place[frame, k] for k in task.after)
        if index == 0 and inflight and frame >= inflight:
            after = (place[frame - inflight, last[frame - inflight]],)
        until = tuple(place[frame, k] for k in task.until)
        if isinstance(task, TransferTask):
            task = replace(task, priority=frame + task.priority)
        tasks.append(replace(task, after=after, until=until))
    arrivals = tuple(place[frame, 0] for frame in range(frames))
    release = {arrival: frame * interval for frame, arrival in enumerate(arrivals)}
    return StageTasks(TaskGraph(tuple(tasks), release, dict(resident)), arrivals,
                      tuple(place[frame, last[frame]] for frame in range(frames)))
