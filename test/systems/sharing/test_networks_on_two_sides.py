# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Networks on two sides: capture, split, any partition, both programs, the unsplit result."""
from __future__ import annotations

from collections.abc import Mapping
from functools import cache
import random
import threading

from imagined_accelerator import ACCELERATORS
import networks
import pytest
from replaying_device import replaying
import reshaping_networks
import torch
from torch import nn

from intradp_lab.zoo.best_answers import Answer
from intradp_lab.zoo.yolo import ANCHORS, Detector, Size
from intradp_ros.graph.capture import capture
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.models.model import share_graph
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.program import compile_program
from intradp_ros.schedule.schedule import ROBOT, Schedule, SERVER
from intradp_ros.split.calls.accelerator import Accelerator
from intradp_ros.split.checks.calibrate import calibrate
from intradp_ros.split.kernel_device import HOST
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.on_device import split_for
from intradp_ros.split.split_graph import split_graph
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage
from intradp_ros.systems.sharing.session.rehearsal import rehearse

SMALL = Size((8, 16, 16, 32, 32), 1 / 3, ANCHORS, Answer(classes=3, points=2), best=5)
OTHER = {ROBOT: SERVER, SERVER: ROBOT}
NETWORKS = {
    'yolo': (networks.Yolo, (1, 3, 64, 96)),
    'googlenet': (networks.GoogLeNet, (1, 3, 101, 119)),
    'volume': (networks.VolumeNet, (1, 1, 12, 10, 14)),
    'borders': (networks.Borders, (1, 3, 9, 8)),
    'shifted windows': (reshaping_networks.Swin, (1, 3, 72, 104)),
    'tokens': (lambda: reshaping_networks.VisionTransformer(24), (1, 3, 32, 48)),
    'patches': (reshaping_networks.Unfolded, (1, 3, 32, 64)),
    'levels': (reshaping_networks.Levels, (1, 3, 40, 56)),
    'best answers': (lambda: Detector(SMALL), (1, 3, 128, 64)),
}


@cache
def graph_of(name: str) -> OperatorGraph:
    torch.manual_seed(0)
    build, size = NETWORKS[name]
    model: nn.Module = build()
    return capture(calibrate(model, (torch.rand(size),)).double(), torch.rand(size).double())


@pytest.mark.parametrize('seed', range(6))
@pytest.mark.parametrize('axis', [2, 3])
@pytest.mark.parametrize('name', NETWORKS)
def test_any_partition_of_a_network_is_exact(name: str, axis: int, seed: int) -> None:
    graph = graph_of(name)
    split = split_graph(graph, axis)
    x = torch.rand(NETWORKS[name][1], dtype=torch.float64)
    partition = random_partition(len(split.operators), random.Random(seed))
    got = run_both({ROBOT: split, SERVER: split}, lower(split, partition), x)
    for value, expected in zip(graph.output_values, run_graph(graph, [x])):
        torch.testing.assert_close(got[value], expected, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize('seed', range(2))
@pytest.mark.parametrize('there', [(SERVER,), (ROBOT, SERVER)], ids=' and '.join)
@pytest.mark.parametrize('device', ACCELERATORS)
@pytest.mark.parametrize('name', NETWORKS)
def test_sides_with_an_accelerator_are_exact(
        name: str, device: str, there: tuple[str, ...], seed: int) -> None:
    graph = graph_of(name)
    accelerator = Accelerator(device)
    splits = {side: split_for(graph, 2, accelerator if side in there else HOST) for side in OTHER}
    x = torch.rand(NETWORKS[name][1], dtype=torch.float64)
    partition = random_partition(len(splits[ROBOT].operators), random.Random(seed))
    got = run_both(splits, lower(splits[ROBOT], partition), x)
    for value, expected in zip(graph.output_values, run_graph(graph, [x])):
        torch.testing.assert_close(got[value], expected, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('name', NETWORKS)
def test_replayed_programs_are_exact(name: str, seed: int) -> None:
    graph = graph_of(name)
    model, device = replaying(share_graph(graph, 2))
    x = torch.rand(NETWORKS[name][1], dtype=torch.float64)
    partition = random_partition(len(model.split.operators), random.Random(seed))
    got = rehearse(model, partition, [x])
    assert device.calls
    for value, expected in zip(graph.output_values, run_graph(graph, [x])):
        torch.testing.assert_close(got[value], expected, rtol=0.0, atol=1e-9)


def random_partition(operators: int, source: random.Random) -> Partition:
    stops = {*source.sample(range(1, operators), source.randint(0, 3)), operators}
    return Partition(tuple(
        RowStage(stop, source.choice([0.0, 1.0, source.random(), source.random()]),
                 source.randint(1, 4), source.randint(1, 4))
        for stop in sorted(stops)))


def run_both(splits: Mapping[str, SplitGraph], schedule: Schedule, x: torch.Tensor,
             ) -> dict[int, torch.Tensor]:
    """Run both programs, each in its thread; return what the robot delivers."""
    boxes = {
        side: Mailbox(lambda waited: 'stuck' if waited > 60 else None) for side in OTHER}
    results: dict[str, dict[int, torch.Tensor]] = {}

    def run(side: str) -> None:
        split = splits[side]
        program = compile_program(
            split, schedule, side, split.graph.parameters, delivers=side == ROBOT)
        execution = Execution(program, Recorder(side), boxes[side], boxes[OTHER[side]].deliver)
        try:
            results[side] = execution.run({0: x} if side == ROBOT else {})
        except Exception as error:
            boxes[OTHER[side]].fail(f'{side} failed: {error!r}')
            raise

    server = threading.Thread(target=run, args=(SERVER,))
    server.start()
    try:
        run(ROBOT)
    finally:
        server.join()
    return results[ROBOT]
