# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The event simulator against closed forms, and against itself written again."""
from __future__ import annotations

import random

import numpy as np
import pytest
from slow_simulator import SlowSimulator
from task_graphs import random_tasks, random_topology

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Medium, ring, Topology
from intradp_ros.power.power_states import PowerStates
from intradp_ros.schedule import event_simulator
from intradp_ros.schedule.event_simulator import Chunks, Discipline, FAIR, simulate
from intradp_ros.schedule.task_graph import ComputeTask, LoadTask, Task, TaskGraph, TransferTask

A, B, C = (Device(name) for name in 'abc')
CELL = behind_access_point((A, B, C), 8.0, wired='c', port=100.0)


def one_forward_one_backward(stages: int, batches: int, forward: float, backward: float,
                             ) -> TaskGraph:
    """Return the tasks of 1F1B (PipeDream-flush): as many forwards ahead as stages follow."""
    orders = []
    for stage in range(stages):
        ahead = min(batches, stages - stage)
        order = [('f', k) for k in range(ahead)]
        for k in range(batches):
            order.append(('b', k))
            if k + ahead < batches:
                order.append(('f', k + ahead))
        orders.append(order)
    tasks: list[Task] = []
    done: dict[tuple[str, int, int], int] = {}
    while any(orders):
        for stage, order in enumerate(orders):
            if not order:
                continue
            kind, batch = order[0]
            before = [('f', stage - 1, batch)] if kind == 'f' and stage else []
            if kind == 'b':
                before = [('f', stage, batch)]
                before += [('b', stage + 1, batch)] if stage + 1 < stages else []
            if all(key in done for key in before):
                order.pop(0)
                done[kind, stage, batch] = len(tasks)
                tasks.append(ComputeTask(f'd{stage}', forward if kind == 'f' else backward,
                                         tuple(done[key] for key in before)))
    return TaskGraph(tuple(tasks))


@pytest.mark.parametrize('stages, batches', [(1, 1), (2, 5), (4, 4), (5, 16), (4, 2)])
def test_one_forward_one_backward_takes_batches_and_stages_less_one(
        stages: int, batches: int) -> None:
    graph = one_forward_one_backward(stages, batches, 0.25, 0.5)
    topology = Topology(tuple(Device(f'd{k}') for k in range(stages)), (), {})
    found = simulate(graph, topology)
    assert found.makespan == (batches + stages - 1) * 0.75
    assert set(found.busy.values()) == {batches * 0.75}


@pytest.mark.parametrize('discipline', [FAIR, Chunks(), Chunks(2)])
def test_a_saturated_medium_takes_the_time_of_its_bytes(discipline: Discipline) -> None:
    graph = TaskGraph(tuple(TransferTask('a', 'c', 16.0) for _ in range(10)))
    topology = Topology((A, C), (Medium('air', 8.0),), {('a', 'c'): ('air',)})
    found = simulate(graph, topology, discipline)
    assert found.makespan == 20.0
    assert found.carried == {'air': 160.0}
    assert found.in_use == {'air': 20.0}
    assert found.sending['a'] == found.receiving['c'] == 20.0


def test_those_on_a_medium_share_its_rate_and_the_rest_is_for_those_who_stay() -> None:
    graph = TaskGraph((TransferTask('a', 'c', 8.0), TransferTask('b', 'c', 24.0)))
    assert simulate(graph, CELL).finish.tolist() == [2.0, 4.0]


def test_station_to_station_takes_the_air_twice() -> None:
    graph = TaskGraph((TransferTask('a', 'b', 8.0),))
    for discipline in (FAIR, Chunks(), Chunks(1)):
        assert simulate(graph, CELL, discipline).makespan == 2.0
    found = simulate(TaskGraph((TransferTask('a', 'b', 8.0), TransferTask('a', 'c', 8.0))), CELL)
    assert found.finish.tolist() == pytest.approx([3.0, 3.0])
    assert found.carried['air'] == 24.0


def test_shares_are_max_min_fair() -> None:
    topology = Topology((A, B, C), (Medium('x', 10.0), Medium('y', 4.0)), {
        ('a', 'b'): ('x',), ('a', 'c'): ('x', 'y'), ('b', 'c'): ('y',)})
    graph = TaskGraph((TransferTask('a', 'b', 8.0), TransferTask('a', 'c', 2.0),
                       TransferTask('b', 'c', 2.0)))
    assert simulate(graph, topology).finish.tolist() == [1.0, 1.0, 1.0]


def test_chunks_follow_each_other_through_the_media_of_a_path() -> None:
    topology = ring([Device(name) for name in 'abcd'], 1.0)
    graph = TaskGraph((TransferTask('a', 'c', 16.0),))
    assert simulate(graph, topology, Chunks(4)).makespan == (16 / 4 + 1) * 4
    assert simulate(graph, topology, Chunks()).makespan == 32
    assert simulate(graph, topology).makespan == 16


def test_what_comes_first_waits_for_no_more_than_a_chunk() -> None:
    topology = Topology((A, B), (Medium('m', 1.0),), {('a', 'b'): ('m',)})
    graph = TaskGraph((TransferTask('a', 'b', 10.0, priority=1.0),
                       TransferTask('a', 'b', 3.0, priority=0.0)), {1: 2.5})
    assert simulate(graph, topology, Chunks(2)).finish.tolist() == [13.0, 7.0]
    assert simulate(graph, topology, Chunks()).finish.tolist() == [10.0, 13.0]


def test_lead_lag_and_delay_keep_nothing_busy() -> None:
    topology = Topology((A, B), (Medium('m', 1.0, 0.5),), {('a', 'b'): ('m',)})
    graph = TaskGraph((TransferTask('a', 'b', 2.0, lead=1.0, lag=4.0),
                       TransferTask('a', 'b', 0.0, lead=1.0, lag=4.0),
                       TransferTask('a', 'a', 2.0)))
    found = simulate(graph, topology)
    assert found.finish.tolist() == [7.5, 5.5, 0.0]
    assert found.start.tolist() == [1.0, 1.0, 0.0]
    assert found.sending['a'] == 2.0


def test_memory_is_held_from_start_to_the_last_use() -> None:
    topology = Topology((Device('a', disk='ssd'), B), (Medium('ssd', 2.0), Medium('m', 1.0)),
                        {('a', 'b'): ('m',)})
    graph = TaskGraph((
        LoadTask('a', 100.0, until=(2,)),
        ComputeTask('a', 1.0, (0,), holds=10.0, until=(3,)),
        ComputeTask('a', 1.0, (1,), holds=1.0),
        TransferTask('a', 'b', 4.0, (1,), holds=4.0, until=(4,)),
        ComputeTask('b', 1.0, (3,), holds=0.5)), resident={'b': 1000.0})
    assert simulate(graph, topology).peak_memory == {'a': 111.0, 'b': 1004.5}
    again = TaskGraph((ComputeTask('a', 1.0, holds=5.0), ComputeTask('a', 1.0, holds=5.0)))
    assert simulate(again, topology).peak_memory['a'] == 5.0


def test_joules_are_those_of_the_power_states() -> None:
    power = PowerStates(compute=10.0, send=4.0, idle=2.0, source='assumed', receive=3.0)
    topology = Topology((Device('a', power=power), B), (Medium('m', 1.0),), {('a', 'b'): ('m',)})
    graph = TaskGraph((ComputeTask('a', 3.0), TransferTask('a', 'b', 2.0, (0,))))
    assert simulate(graph, topology).joules == {'a': 5 * 2.0 + 3 * 8.0 + 2 * 2.0}


def test_nothing_takes_no_time() -> None:
    found = simulate(TaskGraph(()), CELL)
    assert found.makespan == 0 and set(found.busy.values()) == {0.0}


@pytest.mark.parametrize('tasks, message', [
    ((ComputeTask('z', 1.0),), "no device 'z'"),
    ((LoadTask('a', 1.0),), "'a' has no disk")])
def test_what_is_not_there_is_reported(tasks: tuple[Task, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(TaskGraph(tasks), CELL)


@pytest.mark.parametrize('tasks, message', [
    ((ComputeTask('a', 1.0, (0,)),), 'earlier ones only'),
    ((ComputeTask('a', 1.0, until=(1,)),), 'there are tasks 0 to 0'),
    ((ComputeTask('a', float('nan')),), 'finite numbers'),
    ((TransferTask('a', 'b', -1.0),), 'finite numbers')])
def test_graphs_that_cannot_be_played_are_refused(tasks: tuple[Task, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TaskGraph(tasks)
    with pytest.raises(ValueError, match='task 3 is released'):
        TaskGraph((ComputeTask('a', 1.0),), {3: 1.0})


def assert_like_the_slow_one(seed: int) -> None:
    """Rates shared fairly: any numbers; in line: such that times are exact, with many ties."""
    rng = random.Random(seed)
    topology = random_topology(rng, lambda most: rng.uniform(0.1, most))
    graph = random_tasks(rng, topology, lambda most: rng.uniform(0.1, most))
    compare(graph, topology, 0.0)
    topology = random_topology(rng, lambda most: 2.0 ** rng.randint(-2, 3))
    graph = random_tasks(rng, topology, lambda most: rng.randint(1, int(4 * most)) / 4)
    compare(graph, topology, rng.choice([0.5, 2.0, 1e9]))


def compare(graph: TaskGraph, topology: Topology, chunk: float) -> None:
    slow = SlowSimulator(graph, topology, chunk).run()
    found = simulate(graph, topology, Chunks(chunk) if chunk else FAIR)
    count = range(len(graph.tasks))
    np.testing.assert_allclose(found.start, [slow.start[k] for k in count], rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(
        found.finish, [slow.finish[k] for k in count], rtol=1e-12, atol=1e-11)


def test_equals_the_slow_simulator() -> None:
    for seed in range(100):
        assert_like_the_slow_one(seed)


@pytest.mark.slow
def test_equals_the_slow_simulator_a_thousand_times() -> None:
    for seed in range(100, 1000):
        assert_like_the_slow_one(seed)


def test_is_the_same_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    topology = random_topology(rng, lambda most: rng.uniform(0.1, most))
    graph = random_tasks(rng, topology, lambda most: rng.uniform(0.1, most), 200)
    for discipline in (FAIR, Chunks(1.0)):
        quick = simulate(graph, topology, discipline)
        with monkeypatch.context() as patch:
            patch.setattr(event_simulator, 'machine_code', lambda *_, **__: None)
            event_simulator._player.cache_clear()
            plain = simulate(graph, topology, discipline)
        event_simulator._player.cache_clear()
        np.testing.assert_array_equal(quick.finish, plain.finish)
        assert quick.peak_memory == plain.peak_memory


def test_a_rate_that_changes_holds_from_its_time_on():
    devices = [Device('a'), Device('b')]
    topology = behind_access_point(devices, 100.0, 0.0, ['b'], 1e9)
    graph = TaskGraph((TransferTask('a', 'b', 1000.0), TransferTask('a', 'b', 400.0)))
    changes = {'air': [(2.0, 50.0), (6.0, 400.0), (100.0, 1.0)]}
    played = simulate(graph, topology, Chunks(), changes)
    # 200 bytes in 2 s, 200 in 4 s, 600 in 1.5 s; then 400 in 1 s.
    assert played.finish.tolist() == pytest.approx([7.5, 8.5], abs=1e-5)
    assert played.in_use['air'] == pytest.approx(14.0)


@pytest.mark.parametrize('seed', range(8))
def test_a_rate_that_changes_to_itself_changes_nothing(seed):
    rng = random.Random(seed)
    topology = random_topology(rng, lambda most: rng.uniform(0.1, most))
    graph = random_tasks(rng, topology, lambda most: rng.uniform(0.1, most))
    same = {medium.name: [(t, medium.bytes_per_second) for t in (0.0, 0.3, 0.9, 4.0)]
            for medium in topology.media}
    plain, changed = (simulate(graph, topology, Chunks(0.3), changes) for changes in (None, same))
    assert changed.finish.tolist() == pytest.approx(plain.finish.tolist())


def test_rates_that_cannot_be_are_reported():
    topology = behind_access_point([Device('a'), Device('b')], 100.0)
    graph = TaskGraph((TransferTask('a', 'b', 1.0),))
    with pytest.raises(ValueError, match='ascend'):
        simulate(graph, topology, Chunks(), {'air': [(2.0, 1.0), (1.0, 1.0)]})
    with pytest.raises(ValueError, match='above 0'):
        simulate(graph, topology, Chunks(), {'air': [(2.0, 0.0)]})
    with pytest.raises(ValueError, match='serve chunks'):
        simulate(graph, topology, FAIR, {'air': [(2.0, 5.0)]})
    endless = behind_access_point([Device('a'), Device('b')], float('inf'))
    with pytest.raises(ValueError, match="'air' has no limit"):
        simulate(graph, endless)
