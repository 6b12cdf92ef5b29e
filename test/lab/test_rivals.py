# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What others do, against brute force and the simulator."""
from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from synthetic import random_split_graph

from intradp_lab.rivals.blocks import Blocks
from intradp_lab.rivals.entries import RIVALS, with_rivals
from intradp_lab.rivals.spso_ga import spso_ga
from intradp_lab.rivals.tensor_parallel import tensor_parallel
from intradp_ros.power.power_states import XAVIER_NX
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.program import compile_program
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.baselines.minimum_cut import min_cut, placed
from intradp_ros.systems.sharing.baselines.simple import best_local, best_offload
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.make_book import book_of, PlanningProblem
from intradp_ros.systems.sharing.judge.energy import energy
from intradp_ros.systems.sharing.judge.simulator import simulate, Simulation
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition
from intradp_ros.systems.sharing.search.pool import Aim

LINK = LinkModel(8e4, 1.2e5, delay=1e-3, overhead=2e-4)


def random_cost(seed: int, count: int) -> CostModel:
    split = random_split_graph(seed, count)
    random = np.random.default_rng(seed)
    return CostModel(split, {side: tuple(
        scale * random.random() * np.arange(op.rows + 1) / op.rows for op in split.operators)
        for side, scale in ((ROBOT, 8e-3), (SERVER, 1e-3))})


def played(cost: CostModel, partition: Partition, link: LinkModel = LINK) -> Simulation:
    return simulate(lower(cost.split, partition), cost, link)


def one_after_another(split: SplitGraph, cost: CostModel, on_server: tuple[bool, ...],
                      link: LinkModel, returns: bool = False) -> float:
    """Return robot time + transfers + server time; infinite if rows wrongly go back."""
    def crossing(value: int, rate: float) -> float:
        return split.graph.values[value].nbytes / rate + link.overhead + link.delay

    producer, total = split.graph.producer, 0.0
    for op, server in zip(split.operators, on_server):
        total += cost.seconds[SERVER if server else ROBOT][op.operator.id][-1]
        if not returns and any(on_server[producer[v]] and not server
                               for v in op.operator.inputs if v in producer):
            return float('inf')
    for value, readers in split.graph.consumers.items():
        here = value in producer and on_server[producer[value]]
        if not here and any(on_server[i] for i in readers):
            total += crossing(value, link.up)
        if here and (value in split.graph.output_values
                     or any(not on_server[i] for i in readers)):
            total += crossing(value, link.down)
    return total


@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(1e3, 1e7), st.booleans())
@settings(max_examples=60)
def test_the_minimum_cut_is_the_best_of_all_cuts(seed: int, count: int, rate: float,
                                                 returns: bool) -> None:
    cost = random_cost(seed, count)
    link = LinkModel(rate, 2 * rate, 1e-3, 2e-4)
    found = min_cut(cost, link, returns=returns)
    on_server = tuple(stage.share == 0 for start, stage in zip(
        (0, *(s.stop for s in found.stages)), found.stages) for _ in range(start, stage.stop))
    best = min(one_after_another(cost.split, cost, choice, link, returns)
               for choice in product((False, True), repeat=count))
    assert one_after_another(cost.split, cost, on_server, link, returns) == pytest.approx(
        best, abs=1e-8)


@given(st.integers(0, 10**6), st.integers(1, 10), st.booleans(), st.data())
@settings(max_examples=60)
def test_placements_take_no_less_than_the_simulator_says(
        seed: int, count: int, server: bool, data: st.DataObject) -> None:
    """Rows that nobody reads are left out only by the simulator; of a chain all are read."""
    cost = random_cost(seed, count)
    blocks = Blocks.of(cost)
    choice = np.array(data.draw(st.lists(st.booleans(), min_size=len(blocks.blocks),
                                         max_size=len(blocks.blocks))))
    got = blocks.play(choice[:, None], LINK)
    partition = placed(choice[blocks.member])
    for side in (ROBOT, SERVER):  # raises if a row is read that is nowhere
        compile_program(cost.split, lower(cost.split, partition), side, {},
                        delivers=side == ROBOT)
    wanted = played(cost, partition)
    assert wanted.busy[ROBOT] <= got.robot_busy[0] + 1e-9
    assert wanted.bytes_up <= got.bytes_up[0] and wanted.bytes_down <= got.bytes_down[0]
    everywhere = np.full((len(blocks.blocks), 1), server)
    alone = best_offload(cost, LINK) if server else best_local(cost, LINK)
    assert alone.latency <= blocks.play(everywhere, LINK).latency[0] * (1 + 1e-9)


def chain_cost() -> CostModel:
    """Find a chain all of whose rows are needed and read at once."""
    return next(cost for cost in (random_cost(seed, 3) for seed in range(1000))
                if all(len(r) == 1 for v, r in cost.split.graph.consumers.items() if r)
                and len(cost.split.graph.output_values) == 1
                and all((m.last > m.first).all() and m.first[0] == 0
                        and m.last[-1] == cost.split.rows[v]
                        and (m.first[1:] <= m.last[:-1]).all()
                        for op in cost.split.operators
                        for v, m in zip(op.operator.inputs, op.maps)))


def test_placements_of_a_chain_take_exactly_that() -> None:
    cost = chain_cost()
    blocks = Blocks.of(cost)
    for choice in product((False, True), repeat=len(blocks.blocks)):
        array = np.array(choice)
        got, wanted = blocks.play(array[:, None], LINK), played(cost, placed(array[blocks.member]))
        assert got.latency[0] == pytest.approx(wanted.latency)
        assert (got.bytes_up[0], got.bytes_down[0]) == (wanted.bytes_up, wanted.bytes_down)


@given(st.integers(0, 10**6))
@settings(max_examples=15)
def test_the_swarm_spends_least_energy_within_its_deadline(seed: int) -> None:
    cost = random_cost(seed, 8)
    both = [best_local(cost, LINK), best_offload(cost, LINK)]
    deadline = max(j.latency for j in both) * 1.01
    found = spso_ga(cost, LINK, deadline=deadline, seed=seed)
    assert found == spso_ga(cost, LINK, deadline=deadline, seed=seed)
    least = min(energy(XAVIER_NX, played(cost, j.partition), LINK) for j in both)
    assert energy(XAVIER_NX, played(cost, found), LINK) <= least * 1.05


def test_an_impossible_deadline_is_missed_by_as_little_as_possible() -> None:
    cost = chain_cost()
    fastest = min(best_local(cost, LINK).latency, best_offload(cost, LINK).latency)
    assert played(cost, spso_ga(cost, LINK, deadline=1e-9)).latency <= fastest * (1 + 1e-9)


def test_tensor_parallelism_gathers_behind_every_heavy_layer() -> None:
    split = random_split_graph(3)
    cost = CostModel(split, {side: tuple(np.ones(op.rows + 1) for op in split.operators)
                             for side in (ROBOT, SERVER)})
    schedule = tensor_parallel(cost)
    for side in (ROBOT, SERVER):  # raises if a row is read that is nowhere
        compile_program(split, schedule, side, {}, delivers=side == ROBOT)
    assert simulate(schedule, cost, LINK).bytes_up > 0


def test_a_table_with_rivals_keeps_its_own_schedules() -> None:
    setting = PlanningProblem(random_cost(2, 6), 1e-3, 2e-4, aim=Aim(seed=1))
    book = book_of(setting, 'd' * 64, (0.1, 1.0, 10.0))
    found = with_rivals(book, setting)
    assert found.entries[:len(book.entries)] == book.entries
    assert ScheduleBook.from_json(found.to_json()) == found
    assert found.others == RIVALS and not book.others and found.knows_speeds
    for name in RIVALS:
        for mbps in (0.01, 0.2, 0.9, 40.0):
            entry = found.entries[found.choose(mbps, name)]
            assert entry.strategy == (name if mbps > 0.05 else 'local')
        for entry in (e for e in found.entries if e.strategy == name):
            taken = played(setting.cost, entry.partition, setting.link(entry.mbps))
            assert taken.latency == pytest.approx(entry.predicted)
