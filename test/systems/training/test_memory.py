# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The memory of processes that train is what their plan counts."""
from __future__ import annotations

from pathlib import Path
import threading

import pytest

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import Medium, Topology
from intradp_ros.systems.training.plan.prepared import prepare
from intradp_ros.systems.training.plan.training_plan import TrainingPlan, TrainingStage
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service.process_fleet import ProcessFleet

#: What a plan may be wrong by.
WITHIN = 1.1
TASK = """
import torch
from torch import nn
import torch.nn.functional as F
from intradp_ros.systems.training.base.task import TensorData, TrainingTask


def task():
    net = nn.Sequential(*(part for _ in range(10) for part in (nn.Linear(1536, 1536), nn.ReLU())))
    data = TensorData((torch.randn(32, 1536),), torch.randint(0, 10, (32,)))
    return TrainingTask(
        net, lambda x, y: F.cross_entropy(x, y, reduction='none'),
        lambda named: torch.optim.Adam([p for _, p in named], lr=1e-4), data, batch=8, grain=GRAIN,
        micro_batches=2, rounds=16)
"""


def memory_of(pid: int) -> float:
    """Return the bytes of a process, those shared with others in part."""
    lines = Path(f'/proc/{pid}/smaps_rollup').read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith('Pss:'))


PLANS: dict[str, list[tuple[int, int, tuple[tuple[str, int], ...]]]] = {
         'one alone': [(0, 10, (('a', 1),))],
         'two stages': [(0, 5, (('a', 1),)), (5, 10, (('b', 1),))],
         'all share all': [(0, 10, (('a', 1), ('b', 1)))]}


@pytest.mark.slow
@pytest.mark.parametrize('name', PLANS)
def test_workers_take_the_memory_that_their_plan_counts(tmp_path, name):
    (tmp_path / 'large.py').write_text(TASK.replace('GRAIN', '2' if name[0] == 'a' else '4'))
    both = ('a', 'b')
    made = prepare(f'{tmp_path}/large.py:task', Topology(
        tuple(Device(device, speed=1.0, memory_bytes=8e9) for device in both),
        (Medium('wire', 1e9),), {('a', 'b'): ('wire',), ('b', 'a'): ('wire',)}))
    assert sum(made.table.weight_bytes) > 9e7, 'far more than what a process itself varies by'
    assert len(made.graph.layers) == 10
    plan = TrainingPlan(tuple(TrainingStage(*one) for one in PLANS[name]), made.task.grains, 2)
    stage_by = {device: (stage, device) for stage in made.stages(plan) for device in stage.devices}
    counted = {device: made.costs.stage_memory(*stage_by[device]) for device in stage_by}
    peak, over = dict.fromkeys(counted, 0.0), threading.Event()
    with ProcessFleet(made.name, made.task, made.graph, made.topology, lambda *_: plan, made.table,
                      Settings(timeout=60)) as fleet:
        def watch() -> None:
            while not over.wait(0.02):
                for device in peak:
                    pid = fleet.links[device].process.pid
                    peak[device] = max(peak[device], memory_of(pid))
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            fleet.trainer.run(300)
            assert fleet.trainer.collect()
        finally:
            over.set()
            watcher.join()
    for device, nbytes in counted.items():
        assert 0.6 * nbytes < peak[device] < WITHIN * nbytes, (
            f'{device} took {peak[device] / 1e6:.0f} MB, {nbytes / 1e6:.0f} were counted')
