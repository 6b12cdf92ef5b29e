# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What devices hold with all frames in flight: against tasks one by one, and within its bounds."""
from dataclasses import replace

import numpy as np
import pytest
from random_fleets import random_case

from intradp_ros.planning.held_memory import frames_in_flight, HeldMemory
from intradp_ros.planning.placement_tasks import ABOVE, held_tasks
from intradp_ros.schedule.event_simulator import simulate
from intradp_ros.schedule.task_graph import TaskGraph, TransferTask


def task_by_task(costs, placement):
    """Return the peaks of a graph in which each frame's tasks are written out."""
    one = held_tasks(costs, placement)
    alone = simulate(one, costs.topology)
    period = max((*alone.busy.values(), *alone.in_use.values())) * ABOVE
    frames = -(-frames_in_flight(placement) // costs.samples)
    keys = sorted((frame * period + start, frame, index) for frame in range(frames)
                  for index, start in enumerate(alone.start.tolist()))
    place = {key[1:]: number for number, key in enumerate(keys)}
    tasks = []
    for _, frame, index in keys:
        task = one.tasks[index]
        task = replace(task, after=tuple(place[frame, k] for k in task.after),
                       until=tuple(place[frame, k] for k in task.until))
        tasks.append(replace(task, priority=float(frame)) if isinstance(task, TransferTask)
                     else task)
    return simulate(TaskGraph(tuple(tasks), resident=one.resident), costs.topology).peak_memory


@pytest.mark.parametrize('seed', range(12))
def test_what_devices_hold_is_that_of_all_tasks_and_lies_within_the_bounds(seed):
    rng = np.random.default_rng(seed)
    nodes, samples = int(rng.integers(3, 9)), 1 + seed % 3
    costs = random_case(rng, nodes, 3, samples)
    for placement in rng.integers(0, len(costs.groups), (12, nodes)).tolist():
        held = HeldMemory(costs, placement)
        assert dict(held) == pytest.approx(task_by_task(costs, placement), rel=1e-12)
        for name in costs.topology.names:
            assert held.least[name] <= held[name] * ABOVE
            assert held[name] <= held.most[name] * ABOVE
        for limits in (list(held.values()), [most * 0.999 for most in held.values()]):
            assert held.beyond(limits) == any(
                a > b for a, b in zip(held.values(), limits))
