# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The digest is the same wherever the graph computes the same, and differs where it does not."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
import os
from pathlib import Path
import subprocess
import sys

from graph.nets import captured, ComputedWeights, prepared, Tied, UNet
import pytest
import torch

from intradp_lab.emulation.slow_device import slow_environment
from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.serialise import (
    digest,
    graph_from_json,
    graph_to_json,
    load_graph,
    save_graph,
)

CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from graph.nets import captured, prepared, UNet
from intradp_ros.graph.serialise import digest
torch.manual_seed(5)
torch.set_num_threads(1)
print(digest(captured(prepared(UNet(), 5), torch.zeros(1, 3, 8, 8))))
"""

FOLDED = """
import sys
sys.path.insert(0, sys.argv[1])
from graph.nets import captured, ComputedWeights
from intradp_ros.graph.serialise import digest
import torch
print(digest(captured(ComputedWeights(), torch.zeros(1, 12, 40))))
"""


def child(program: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, which imports what this one does."""
    return subprocess.run(
        [sys.executable, '-c', program, str(Path(__file__).parents[1])],
        env={**environment, 'PYTHONPATH': ':'.join(filter(None, sys.path))},
        capture_output=True, text=True, check=False)


@pytest.fixture(scope='module')
def graph() -> OperatorGraph:
    torch.manual_seed(5)
    return captured(prepared(UNet(), 5), torch.randn(1, 3, 8, 8))


def test_another_process_and_another_example_give_the_same(graph: OperatorGraph) -> None:
    other = child(CHILD, {'PYTHONHASHSEED': '123'})
    assert other.stdout.strip() == digest(graph), other.stderr
    assert len(digest(graph)) == 64


def test_what_is_computed_from_weights_is_the_same_on_another_processor() -> None:
    """Where this one has no vector instructions either, it shows that processes agree."""
    plain = child(FOLDED, {**os.environ, **slow_environment()})
    assert plain.stdout.strip() == digest(captured(ComputedWeights(), torch.zeros(1, 12, 40))), \
        plain.stderr


def test_name_method_and_memory_format_do_not_matter(graph: OperatorGraph) -> None:
    known = digest(graph)
    assert digest(replace(graph, name='other', method='trace')) == known
    last = {
        name: t.to(memory_format=torch.channels_last) if t.dim() == 4 else t
        for name, t in graph.parameters.items()}
    assert any(not t.is_contiguous() for t in last.values())
    assert digest(replace(graph, parameters=last)) == known
    assert digest(replace(graph, parameters=dict(reversed(list(last.items()))))) == known


def test_serialisation_keeps_it(graph: OperatorGraph, tmp_path: Path) -> None:
    save_graph(graph, tmp_path / 'graph.zip')
    assert digest(load_graph(tmp_path / 'graph.zip')) == digest(graph)
    assert digest(graph_from_json(graph_to_json(graph), graph.parameters)) == digest(graph)


def test_every_parameter_matters(graph: OperatorGraph) -> None:
    seen = {digest(graph)}
    for name, tensor in graph.parameters.items():
        changed = tensor.clone()
        changed.view(-1)[-1] += 1e-3
        seen.add(digest(replace(graph, parameters={**graph.parameters, name: changed})))
    assert len(seen) == 1 + len(graph.parameters)


def test_the_bits_of_a_parameter_matter_not_only_its_value(graph: OperatorGraph) -> None:
    name = next(name for name, t in graph.parameters.items() if t.dim() == 1)
    zeros = {**graph.parameters, name: torch.zeros_like(graph.parameters[name])}
    negative = {**zeros, name: -zeros[name]}
    assert digest(replace(graph, parameters=zeros)) != digest(replace(graph, parameters=negative))


def test_every_operator_and_shape_matters(graph: OperatorGraph) -> None:
    operators = list(graph.operators)
    k = next(k for k, op in enumerate(operators) if op.target == 'aten.relu.default')
    operators[k] = replace(operators[k], target='aten.sigmoid.default')
    torch.manual_seed(5)
    larger = captured(prepared(UNet(), 5), torch.randn(1, 3, 16, 16))
    assert len({digest(graph), digest(replace(graph, operators=tuple(operators))),
                digest(larger)}) == 3


def test_scalars_and_odd_types_are_covered(graph: OperatorGraph) -> None:
    odd = {'scalar': torch.tensor(1.5), 'half': torch.ones(3, dtype=torch.bfloat16),
           'flags': torch.tensor([True, False]), 'none': torch.empty(0, 4)}
    several = replace(graph, parameters={**graph.parameters, **odd})
    flipped = {**several.parameters, 'flags': torch.tensor([True, True])}
    assert digest(several) != digest(replace(several, parameters=flipped))


def test_a_graph_without_data_has_none() -> None:
    graph = captured(Tied(), torch.randn(1, 6))
    with pytest.raises(GraphFormatError, match='has no data'):
        digest(graph_from_json(graph_to_json(graph)))
