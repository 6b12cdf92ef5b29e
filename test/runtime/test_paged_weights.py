# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A side that runs by packed weights keeps no others in memory, and computes the same."""
from __future__ import annotations

from pathlib import Path

import pytest
from resident import needs_proc, resident
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.paging import LARGE
from intradp_ros.graph.serialise import save_graph
from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.program import compile_program, Program
from intradp_ros.schedule.schedule import ROBOT
from intradp_ros.split.calls.tuning import Tuning
from intradp_ros.split.calls.variants import variants_of
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import local


def network() -> nn.Module:
    """Return a network with several large weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(128, 8, 3)).eval()


@pytest.fixture(scope='module')
def source() -> torch.Tensor:
    return torch.randn(1, 3, 24, 32, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope='module')
def graph(source: torch.Tensor) -> OperatorGraph:
    return capture(network(), (source,))


@pytest.fixture
def archive(tmp_path: Path, graph: OperatorGraph) -> Path:
    save_graph(graph, tmp_path / 'model')
    return tmp_path / 'model'


def tuned(model: SharedModel, variant: int) -> SharedModel:
    """Return the model with a variant for every convolution."""
    graph = model.split.graph
    variants = {op.name: variants_of(graph, op)[variant]
                for op in graph.operators if variants_of(graph, op)}
    assert len(variants) == 4
    return model.tuned(Tuning(True, variants))


def program(model: SharedModel) -> Program:
    schedule = lower(model.split, local(len(model.split.operators)))
    return compile_program(model.split, schedule, ROBOT, model.parameters, delivers=True)


def infer(model: SharedModel, compiled: Program, source: torch.Tensor) -> torch.Tensor:
    [result] = Execution(compiled, Recorder(ROBOT)).run({model.split.graph.inputs[0]: source}
                                                        ).values()
    return result


@needs_proc
@pytest.mark.parametrize('variant', [0, -1])
def test_plain_weights_leave_memory_when_packed_ones_are_made(
        archive: Path, source: torch.Tensor, variant: int) -> None:
    plain = ModelSpec(str(archive)).load()
    lean = tuned(plain, variant)
    weights = [t for t in plain.parameters.values() if t.nbytes >= LARGE]
    assert len(weights) == 2
    before = infer(plain, program(plain), source)
    assert resident(weights[0]) >= sum(t.nbytes for t in weights)
    compiled = program(lean)
    assert resident(weights[0]) == 0
    got = infer(lean, compiled, source)
    assert resident(weights[0]) == 0
    torch.testing.assert_close(got, before, rtol=0, atol=1e-5)
    assert torch.equal(infer(plain, program(plain), source), before)
    assert torch.equal(infer(tuned(plain, variant), program(tuned(plain, variant)), source), got)


def test_an_archive_may_be_overwritten_while_its_model_is_in_use(
        archive: Path, source: torch.Tensor) -> None:
    model = tuned(ModelSpec(str(archive)).load(), 0)
    archive.write_bytes(bytes(archive.stat().st_size))
    archive.write_bytes(b'')
    wanted = network()(source)
    torch.testing.assert_close(infer(model, program(model), source), wanted, rtol=0, atol=1e-5)
