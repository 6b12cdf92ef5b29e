# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The least makespan of a task graph over all orders of all chunks, by constraint programming."""
from __future__ import annotations

from collections import defaultdict
import math

from ortools.sat.python import cp_model

from intradp_ros.cluster.topology import Topology
from intradp_ros.schedule.task_graph import ComputeTask, TaskGraph, TransferTask

STEPS = 1e5  # of time, in a second


def least_makespan(graph: TaskGraph, topology: Topology, chunk: float,
                   seconds: float = 10.0) -> float | None:
    """Return the proven least makespan, None if the time does not suffice for a proof."""
    model = cp_model.CpModel()
    horizon = 1 + sum(_steps(task, topology, chunk) for task in graph.tasks)
    lanes: dict[str, list[cp_model.IntervalVar]] = defaultdict(list)
    ends: list[cp_model.LinearExprT] = []
    last: dict[str, cp_model.LinearExprT] = {}

    def interval(begins: list[cp_model.LinearExprT], length: int, lane: str):
        start = model.new_int_var(0, horizon, '')
        for begin in begins:
            model.add(start >= begin)
        lanes[lane].append(model.new_fixed_size_interval_var(start, length, ''))
        return start + length

    for task in graph.tasks:
        before = [ends[k] for k in task.after]
        if isinstance(task, ComputeTask):
            before += [last[task.device]] if task.device in last else []
            end = interval(before, round(task.seconds * STEPS), f'device {task.device}')
            last[task.device] = end
            ends.append(end)
            continue
        assert isinstance(task, TransferTask)
        path = topology.path(task.source, task.target)
        if not path or not task.nbytes:
            end = model.new_int_var(0, horizon, '')
            for begin in before:
                model.add(end >= begin)
            ends.append(end)
            continue
        earlier: list[cp_model.LinearExprT | None] = [None] * len(path)
        left = task.nbytes
        while left > 1e-9:
            size, at = min(chunk, left), before
            left -= size
            for hop, name in enumerate(path):
                ahead = earlier[hop]
                begins = at if ahead is None else [*at, ahead]
                length = round(size / topology.medium(name).bytes_per_second * STEPS)
                end = interval(begins, length, f'medium {name}')
                earlier[hop], at = end, [end]
        ends.append(at[0])
    for intervals in lanes.values():
        model.add_no_overlap(intervals)
    makespan = model.new_int_var(0, horizon, 'makespan')
    for end in ends:
        model.add(makespan >= end)
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    proved = solver.solve(model) == cp_model.OPTIMAL
    return solver.objective_value / STEPS if proved else None


def _steps(task, topology: Topology, chunk: float) -> int:
    if isinstance(task, ComputeTask):
        return round(task.seconds * STEPS) + 1
    path = topology.path(task.source, task.target)
    chunks = math.ceil(task.nbytes / chunk) if task.nbytes else 0
    return sum(round(task.nbytes / topology.medium(m).bytes_per_second * STEPS) + chunks + 1
               for m in path)
