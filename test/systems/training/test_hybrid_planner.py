# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Plans of training rounds: near the best of all, within memory, and told about as they run."""
from collections import Counter
from dataclasses import replace
import time

import numpy as np
import pytest
from training_cases import best_of_all_shares, random_costs, random_shape, rounds_dealt

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, dedicated_links
from intradp_ros.schedule.event_simulator import simulate
from intradp_ros.schedule.stage_plan import PlanError
from intradp_ros.systems.training.layers.layer_table import (
    LayerTable,
    LayerTimes,
    TableError,
)
from intradp_ros.systems.training.plan.allocation import allocate
from intradp_ros.systems.training.plan.baselines import baseline_seconds, hetpipe
from intradp_ros.systems.training.plan.hybrid_plan import HybridStage
from intradp_ros.systems.training.plan.hybrid_planner import (
    judged,
    of_round,
    plan_round,
    stages_of,
)
from intradp_ros.systems.training.plan.replanning import keepers_of
from intradp_ros.systems.training.plan.round_costs import crossings, RoundCosts
from intradp_ros.systems.training.plan.round_estimate import round_seconds, steps_of
from intradp_ros.systems.training.plan.round_tasks import round_tasks
from intradp_ros.systems.training.plan.stage_actions import passes, stage_actions
from intradp_ros.systems.training.plan.training_plan import TrainingStage


def small(seed):
    costs = random_costs(seed, 4, 3 if seed % 3 else 2, 2 + seed % 4, images=seed % 5 == 0)
    return replace(costs, micro_batch=5)


def check_near_the_best(seeds):
    shapes = Counter()
    for seed in seeds:
        costs = small(seed)
        best = best_of_all_shares(costs)
        if best is None:
            with pytest.raises(PlanError, match='fits on no set'):
                plan_round(costs)
            continue
        plan = plan_round(costs)
        assert plan.seconds <= 1.02 * best, f'seed {seed}'
        several = any(len(stage.shares) > 1 for stage in plan.stages)
        shapes[len(plan.stages) > 1, several] += 1
    assert sum(shapes.values()) > len(seeds) / 2
    assert len(shapes) >= 3, shapes  # of alone, data parallel, pipelines, both


def test_plans_are_within_two_percent_of_the_best_of_all():
    check_near_the_best(range(60))


@pytest.mark.slow
def test_plans_of_300_cases_are_within_two_percent_of_the_best_of_all():
    check_near_the_best(range(300))


@pytest.mark.parametrize('half', [True, False])
def test_the_estimate_is_near_the_simulator(half):
    errors = []
    for seed in range(24):
        costs = random_costs(seed, 10, 2 + seed % 5, 4 + seed % 13, half)
        rng = np.random.default_rng(seed)
        for _ in range(3):
            if stages := stages_of(costs, random_shape(costs, rng)):
                told = round_seconds(steps_of(costs, stages), costs.micro_batches)
                errors.append(abs(told / judged(costs, stages).seconds - 1))
    assert len(errors) > 30
    assert np.mean(errors) <= 0.05


def test_no_plan_is_above_the_memory_of_a_device():
    planned = 0
    for seed in range(18):
        costs = random_costs(seed, 8, 2 + seed % 4, 1 + seed % 6)
        try:
            plan = plan_round(costs)
        except PlanError:
            continue
        planned += 1
        tasks = round_tasks(costs, [(plan.stages, costs.micro_batches)])
        held = simulate(tasks, costs.topology).peak_memory
        for name, nbytes in plan.memory.items():
            assert held[name] <= nbytes * (1 + 1e-9)
            assert nbytes <= costs.topology.device(name).memory_bytes
    assert planned > 6


def test_stages_cover_all_layers_and_each_has_the_whole_micro_batch():
    for seed in range(5):
        costs = random_costs(seed, 8, 4, 6)
        try:
            stages = plan_round(costs).stages
        except PlanError:
            continue
        assert [stage.first for stage in stages] == [0, *(s.last for s in stages[:-1])]
        assert stages[-1].last == costs.layers
        names = [name for stage in stages for name in stage.devices]
        assert len(names) == len(set(names))
        for stage in stages:
            assert sum(samples for _, samples in stage.shares) == costs.micro_batch


def test_each_stage_goes_forward_k_times_then_back_and_forward_in_turn():
    assert ' '.join(map(str, passes(3, 5))) == 'F0 F1 F2 B0 F3 B1 F4 B2 B3 B4'
    assert ' '.join(map(str, stage_actions(1, 3, 4))) == 'F0 F1 F2 B0 F3 B1 B2 B3 S U'
    assert Counter(map(str, passes(9, 2))) == Counter(['F0', 'F1', 'B0', 'B1'])


def chain(devices, layers=6, batch=10, block=3, **more):
    times = {d.name: LayerTimes((1,), ((1e-3 / d.speed,) * layers,), ((2e-3 / d.speed,) * layers,))
             for d in devices}
    table = LayerTable(tuple('abcdefgh'[:layers]), (1e3,) * layers, (1e6,) * layers,
                       (0.0,) * layers, (1e3,) * (layers + 1), (1e3,) * (layers + 1), times)
    return RoundCosts(table, behind_access_point(devices, 1e7), batch, 4, block, **more)


def test_whole_blocks_go_by_speed_and_the_bad_move_is_not_made():
    costs = chain([Device('slow'), Device('quick', speed=3.0)], batch=16, block=1)
    times = [LayerTimes((1, 16), ((1e-3,) * 6, (16e-3 / s,) * 6), ((1e-3,) * 6, (16e-3 / s,) * 6))
             for s in (1, 3)]
    table = replace(costs.table, times=dict(zip(('slow', 'quick'), times)))
    shares = dict(allocate(replace(costs, table=table), ('slow', 'quick'), 0, 6, 1))
    best = min(range(1, 16), key=lambda k: max(
        sum(replace(costs, table=table).seconds('slow', 0, 6, k)),
        sum(replace(costs, table=table).seconds('quick', 0, 6, 16 - k))))
    assert shares == {'slow': best, 'quick': 16 - best}


def test_a_round_is_dealt_so_that_the_busiest_device_is_done_first():
    dealt = 0
    for seed in range(40):
        costs = replace(random_costs(seed, 4, 3, 2 + seed % 4), micro_batch=5)
        best = {stage.devices: judged(costs, (stage,)).seconds for stage in rounds_dealt(costs)}
        for names, seconds in best.items():
            stages = of_round(costs, names)
            within = all(costs.stage_memory(stages[0], name) <= costs.topology.device(
                name).memory_bytes for name in stages[0].devices)
            binds = any(costs.most_samples(name, 0, costs.layers, 1) < 5 for name in names)
            found = judged(costs, stages).seconds
            assert within and found <= seconds * (1.02 if binds else 1 + 1e-9), seed
            assert sum(n for _, n in stages[0].shares) == costs.samples
            dealt += 1
    assert dealt > 20


def test_whole_micro_batches_go_to_devices_where_few_calls_are_quickest():
    """What HetPipe does for two devices: a call of all grains costs less than calls of some."""
    devices = [Device('a'), Device('b', speed=3.0)]
    costs = chain(devices, batch=6, block=2)
    called = {d.name: LayerTimes((2, 6), *(tuple((f * (n + 4) / d.speed,) * 6 for n in (2, 6))
                                           for f in (0.1, 0.2))) for d in devices}
    costs = replace(costs, table=replace(costs.table, times=called, weight_bytes=(1e3,) * 6))
    plan = plan_round(costs)
    assert plan.stages[0].of_round and dict(plan.stages[0].shares) == {'a': 6, 'b': 18}
    assert plan.seconds <= baseline_seconds(costs, hetpipe(costs)) * (1 + 1e-9)
    assert plan.seconds < 0.95 * judged(costs, stages_of(costs, ((0, ('a', 'b')),))).seconds


def test_memory_limits_samples_and_too_little_of_it_fits_nothing():
    costs = chain([Device('a', memory_bytes=12e6 + 4 * 7e3), Device('b')])
    assert dict(allocate(costs, ('a', 'b'), 0, 6, 1))['a'] == 3
    with pytest.raises(PlanError, match='fits on no set'):
        plan_round(chain([Device('a', memory_bytes=1e6)]))


def test_samples_fan_out_over_uneven_groups():
    moves = crossings((('a', 4), ('b', 4)), (('c', 3), ('d', 3), ('e', 2)))
    assert moves == {('a', 'c'): 3, ('a', 'd'): 1, ('b', 'd'): 2, ('b', 'e'): 2}
    assert crossings((('a', 4),), (('a', 4),)) == {}


def test_images_stay_where_they_are_when_the_air_is_slow():
    devices = [Device('a'), Device('b', speed=1.2)]
    free = chain(devices, block=5)
    table = replace(free.table, border_bytes=(1e6, *free.table.border_bytes[1:]))
    plan = plan_round(RoundCosts(table, free.topology, 10, 4, 5, {'a': 1.0}))
    assert plan.stages[0].devices == ('a',)
    assert plan_round(RoundCosts(table, free.topology, 10, 4, 5, {'b': 1.0})).stages[
        0].devices == ('b',)


def test_samples_are_dealt_so_that_images_use_all_links():
    """Half of all images cross, whatever the shares: equal ones use both directions."""
    devices = [Device('a'), Device('b', speed=2.0)]
    free = chain(devices, batch=12, block=1)
    costs = replace(free, table=replace(free.table, border_bytes=(1e6, *[1e3] * 6),
                                        weight_bytes=(1e3,) * 6),
                    topology=dedicated_links(devices, 1e7), images={'a': 0.5, 'b': 0.5})
    assert of_round(costs, ('a', 'b'))[0].shares == (('a', 24), ('b', 24))
    by_speed = [HybridStage(0, 6, (('a', 16), ('b', 32)), 1, of_round=True)]
    assert judged(costs, of_round(costs, ('a', 'b'))).seconds < 0.85 * judged(
        costs, by_speed).seconds


def test_many_layers_and_devices_are_planned_soon():
    rng = np.random.default_rng(0)
    devices = [Device(f'd{k}', speed=(1.0, 1.6, 2.5)[k % 3], memory_bytes=(4e9, 8e9)[k % 2])
               for k in range(8)]
    work = rng.uniform(0.1, 1.0, 213) * 1e-4
    times = {d.name: LayerTimes((1, 64), tuple(tuple((b * work / d.speed).tolist())
                                               for b in (1, 64)),
                                tuple(tuple((2 * b * work / d.speed).tolist()) for b in (1, 64)))
             for d in devices}
    weights = tuple((rng.uniform(0, 2, 213) * 6e4).tolist())
    borders = tuple((rng.uniform(1, 20, 214) * 1e4).tolist())
    table = LayerTable(tuple(map(str, range(213))), (4e5,) * 213, weights, weights, borders,
                       borders, times)
    costs = RoundCosts(table, behind_access_point(devices, 12.5e6), 64, 16)
    begun = time.process_time()
    plan = plan_round(costs)
    seconds = time.process_time() - begun
    alone = judged(costs, [HybridStage(0, 213, (('d2', 64),), 1)])
    assert plan.seconds < alone.seconds
    print(f'213 layers, 8 devices: {seconds:.2f} s of the processor; {plan.shape}')
    assert seconds < 60  # no gate on speed: machines differ; 2 s is measured in the bench


def test_tables_come_back_from_text_and_bad_ones_are_refused():
    table = random_costs(1, 4, 2, 2).table
    assert LayerTable.from_json(table.to_json()) == table
    for text in ('', '[]', '{"format": "x"}', '[' * 100_000, table.to_json().replace('1,', '1.5,'),
                 table.to_json().replace('"l0", ', ''), table.to_json().replace('"l0"', 'NaN, 1')):
        with pytest.raises(TableError):
            LayerTable.from_json(text)
    with pytest.raises(TableError, match='finite'):
        replace(table, weight_bytes=(float('nan'),) * len(table.layers))
    with pytest.raises(TableError, match='measure them there'):
        costs = random_costs(1, 4, 2, 2)
        replace(costs, table=replace(table, times={}))
    with pytest.raises(TableError, match='add up to 1'):
        replace(random_costs(1, 4, 2, 2), images={'d0': 0.5})


def test_of_idle_devices_the_quickest_with_room_has_the_copies_of_what_one_trains_alone():
    def keepers(shares, room=0.999, tags=2):
        costs = chain(devices := [Device('a'), Device('near'), Device('far'), Device('mid')],
                      tags=tags)
        needed = (tags + 1) * (sum(costs.table.weight_bytes) + sum(costs.table.optimiser_bytes))
        devices[1] = Device('near', memory_bytes=room * needed)
        free = dedicated_links(devices, 1e4)
        media = tuple(replace(one, bytes_per_second={'near': 9e4, 'mid': 5e4}.get(
            one.name[2:], 1e4)) for one in free.media)
        costs = replace(costs, topology=replace(free, media=media))
        return keepers_of(costs, [TrainingStage(0, 6, shares)])
    assert keepers((('a', 4),)) == ('mid',), 'there is no room on near'
    assert keepers((('a', 4),), room=1.001) == ('near',)
    assert keepers((('a', 2), ('mid', 2))) == (), 'each of them has all of it'
