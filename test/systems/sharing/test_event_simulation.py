# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The simulator of fleets says of a pair what the judge says."""
from __future__ import annotations

from dataclasses import replace
import random

import numpy as np
import pytest
from synthetic import random_split_graph

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import Medium, Topology
from intradp_ros.link.chunk_size import chunk_bytes_at
from intradp_ros.profiling.profile import TransportCost
from intradp_ros.schedule.cost import CostModel, LinkModel, WireCost
from intradp_ros.schedule.event_simulator import Chunks
from intradp_ros.schedule.event_simulator import simulate as simulate_events
from intradp_ros.schedule.schedule import (
    Compute,
    Receive,
    ROBOT,
    Schedule,
    Send,
    SERVER,
    SIDES,
    Transfer,
)
from intradp_ros.schedule.task_graph import ComputeTask, Task, TaskGraph, TransferTask
from intradp_ros.systems.sharing.judge.simulator import simulate
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Pace, Partition, RowStage
from intradp_ros.wire.codecs.names import NONE

PLAIN = WireCost()


class PairTasks:
    """
    The programs of both sides as tasks.

    The media carry a second's worth a second, since what a transfer takes is
    more than its bytes.
    """

    def __init__(self, schedule: Schedule, cost: CostModel, link: LinkModel) -> None:
        self.schedule, self.cost, self.link = schedule, cost, link
        self.tasks: list[Task] = []
        self.last: dict[str, tuple[int, ...]] = dict.fromkeys(SIDES, ())
        self.sent: dict[int, int] = {}
        programs = {side: list(schedule.programs[side]) for side in SIDES}
        while any(programs.values()):
            for side, steps in programs.items():
                while steps and not (isinstance(steps[0], Receive)
                                     and steps[0].transfer not in self.sent):
                    self._add(side, steps.pop(0))

    def _add(self, side: str, step: Compute | Send | Receive) -> None:
        if isinstance(step, Compute):
            self._work(side, float(self.cost.seconds[side][step.operator][step.region.rows]))
        elif isinstance(step, Send):
            transfer = self.schedule.transfers[step.transfer]
            self.sent[transfer.id] = len(self.tasks)
            occupied, encode, decode = self._taken(transfer)
            self.tasks.append(TransferTask(
                side, transfer.target, occupied, self.last[side], lead=encode,
                lag=self.link.delay + decode))
            self._work(side, self._moving(side, transfer, 'send', encode))
        else:
            transfer = self.schedule.transfers[step.transfer]
            self._work(side, self._moving(side, transfer, 'receive', self._taken(transfer)[2]))
            self._work(side, 0.0, (self.sent[step.transfer],))

    def _work(self, side: str, seconds: float, after: tuple[int, ...] = ()) -> None:
        self.tasks.append(ComputeTask(side, seconds, after))
        self.last[side] = (len(self.tasks) - 1,)

    def _bytes(self, t: Transfer) -> tuple[int, int]:
        plain = self.cost.split.nbytes(t.value, t.region.rows)
        return plain, round(plain * self.cost.wire.get((t.value, NONE), PLAIN).ratio)

    def _taken(self, t: Transfer) -> tuple[float, float, float]:
        plain, nbytes = self._bytes(t)
        wire = self.cost.wire.get((t.value, NONE), PLAIN)
        rate = self.link.up if t.source == ROBOT else self.link.down
        return (self.link.overhead + nbytes / rate, plain * wire.encode.get(t.source, 0.0),
                plain * wire.decode.get(t.target, 0.0))

    def _moving(self, side: str, t: Transfer, way: str, coding: float) -> float:
        if side not in self.cost.moving:
            return 0.0
        moving, (plain, nbytes) = self.cost.moving[side], self._bytes(t)
        size = self.cost.split.graph.values[t.value].dtype.itemsize
        chunks = max(1, -(-plain // (chunk_bytes_at(self.link.up) // size * size)))
        return (chunks * getattr(moving, f'{way}_chunk')
                + nbytes * getattr(moving, f'{way}_byte') + coding)


def random_case(rng: random.Random) -> tuple[CostModel, LinkModel, Partition]:
    split = random_split_graph(rng.randrange(10**6), rng.randint(1, 10),
                               folds=rng.choice([0.0, 0.4]))
    count, costs = len(split.operators), np.random.default_rng(rng.randrange(10**6))
    seconds = {side: tuple(np.r_[0.0, np.sort(costs.random(op.rows))] * 1e-3
                           for op in split.operators) for side in SIDES}
    wire = {(v, NONE): WireCost(rng.uniform(0.3, 1), dict.fromkeys(SIDES, rng.uniform(0, 1e-6)),
                                dict.fromkeys(SIDES, rng.uniform(0, 1e-6)))
            for v in range(len(split.rows)) if rng.random() < 0.3}
    moving = {side: TransportCost(*(rng.uniform(0, 1e-5) for _ in range(4)))
              for side in SIDES if rng.random() < 0.3}
    link = LinkModel(rng.uniform(1e4, 1e7), rng.uniform(1e4, 1e7), rng.choice([0.0, 1e-4]),
                     rng.choice([0.0, 1e-5]), rng.random() < 0.5)
    stops = sorted({rng.randint(1, count) for _ in range(rng.randint(0, 3))} | {count})
    return CostModel(split, seconds, wire, moving), link, Partition(tuple(RowStage(
        stop, rng.choice([0.0, 1.0, rng.random()]), rng.randint(1, 4), rng.randint(1, 4),
        *(Pace(rng.choice([1.0, 0.5, 3.0]), rng.random() < 0.5, rng.random() < 0.5)
          for _ in range(2))) for stop in stops))


def assert_same(seed: int) -> None:
    cost, link, partition = random_case(random.Random(seed))
    schedule = lower(cost.split, partition)
    judged = simulate(schedule, cost, link, trace=True)
    media = ('air', 'air') if link.shared else ('up', 'down')
    topology = Topology((Device(ROBOT), Device(SERVER)),
                        tuple(Medium(name, 1.0) for name in dict.fromkeys(media)),
                        {(ROBOT, SERVER): media[:1], (SERVER, ROBOT): media[1:]})
    tasks = tuple(PairTasks(schedule, cost, link).tasks)
    found = simulate_events(TaskGraph(tasks), topology, Chunks())
    mine = [k for k, t in enumerate(tasks) if isinstance(t, ComputeTask) and t.device == ROBOT]
    assert found.finish[mine].max(initial=0.0) == pytest.approx(judged.latency, rel=1e-12, abs=0)
    for side in SIDES:
        assert found.sending[side] == pytest.approx(judged.sending[side], rel=1e-12, abs=1e-15)


def test_equals_the_judge_of_pairs() -> None:
    for seed in range(150):
        assert_same(seed)


def test_devices_and_link_slower_alike_take_longer_alike() -> None:
    for seed in range(60):
        cost, link, partition = random_case(random.Random(seed))
        link = replace(link, up=link.up / 10, down=link.down / 10)  # chunks of one size at both
        slower = replace(link, up=link.up / 2, down=link.down / 2, delay=2 * link.delay,
                         overhead=2 * link.overhead)
        schedule, both = lower(cost.split, partition), cost.scaled(dict.fromkeys(SIDES, 2.0))
        assert simulate(schedule, both, slower).latency == pytest.approx(
            2 * simulate(schedule, cost, link).latency)


def test_equals_the_judge_of_pairs_a_thousand_times() -> None:
    for seed in range(150, 1000):
        assert_same(seed)
