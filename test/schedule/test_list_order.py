# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Orders by list scheduling: valid, never idle without need, and within their windows."""
import math

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.schedule.list_order import list_starts, Window
from intradp_ros.schedule.task_graph import ComputeTask, TransferTask

NAMES = ('a', 'b', 'c')
TOPOLOGY = behind_access_point([Device(name) for name in NAMES], 10.0)


@st.composite
def task_lists(draw):
    tasks = []
    for index in range(draw(st.integers(1, 12))):
        after = tuple(sorted(draw(st.sets(st.integers(0, index - 1), max_size=3)))) if index \
            else ()
        one, other = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
        tasks.append(ComputeTask(one, float(draw(st.integers(0, 5))), after)
                     if draw(st.booleans()) else
                     TransferTask(one, other, 10.0 * draw(st.integers(0, 5)), after))
    return tasks


def seconds(task):
    if isinstance(task, ComputeTask):
        return task.seconds
    return 0.0 if task.source == task.target else \
        task.nbytes / TOPOLOGY.rate(task.source, task.target) \
        + TOPOLOGY.delay(task.source, task.target)


@settings(max_examples=150, deadline=None)
@given(task_lists())
def test_a_device_takes_the_most_urgent_of_what_is_ready_at_once(tasks):
    urgency = [(7 * index % 5, index) for index in range(len(tasks))]
    starts = list_starts(tasks, TOPOLOGY, urgency)
    ends = [start + seconds(task) for start, task in zip(starts, tasks)]
    ready = [max((ends[k] for k in task.after), default=0.0) for task in tasks]
    for k, task in enumerate(tasks):
        assert math.isfinite(starts[k]) and starts[k] >= ready[k]
        if not isinstance(task, ComputeTask):
            assert starts[k] == ready[k]
            continue
        for j, other in enumerate(tasks):
            if j == k or not isinstance(other, ComputeTask) or other.device != task.device:
                continue
            assert not (starts[j] < ends[k] and starts[k] < ends[j]), 'one at a time'
            if ready[k] < starts[j] < starts[k]:
                assert urgency[j] < urgency[k]
        idle = starts[k] > ready[k]
        assert not idle or any(ends[j] == starts[k] for j, other in enumerate(tasks)
                               if isinstance(other, ComputeTask) and other.device == task.device)


@pytest.mark.parametrize('limit', [1, 2, 4])
def test_no_more_rounds_are_open_than_their_window_lets(limit):
    tasks, opens, closes = [], {}, {}
    for round_ in range(4):  # forward on a, there and back on b, backward on a
        k = len(tasks)
        tasks += [ComputeTask('a', 1.0), ComputeTask('b', 9.0, (k,)),
                  ComputeTask('a', 1.0, (k + 1,))]
        opens[k], closes[k + 2] = round_, round_
    starts = list_starts(tasks, TOPOLOGY, [(k,) for k in range(12)],
                         [Window(limit, opens, closes)])
    at = sorted([(starts[k], 1) for k in opens] + [(starts[k] + 1.0, -1) for k in closes])
    open_, most = 0, 0
    for _, step in at:
        open_ += step
        most = max(most, open_)
    assert most == limit
    assert max(starts) == {1: 43.0, 2: 37.0, 4: 37.0}[limit]
