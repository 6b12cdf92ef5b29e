# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Weights in a mapped file are what they were, and need no memory once they are paged out."""
from __future__ import annotations

from dataclasses import replace
from functools import cache
import gc
from pathlib import Path
import tempfile

from graph.nets import captured
import pytest
from resident import needs_proc, resident
import torch
from torch import nn

from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.paging import LARGE, page_all_out, page_out, paged
from intradp_ros.graph.serialise import digest


@cache
def layers() -> OperatorGraph:
    """Return a graph with a large weight, a larger one, and small biases."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1000)).eval()
    return captured(model, torch.randn(2, 256))


def large(graph: OperatorGraph) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = sorted((t for t in graph.parameters.values() if t.nbytes >= LARGE),
                           key=lambda t: t.nbytes)
    return first, second


def test_the_same_elements_in_other_memory() -> None:
    graph = layers()
    found = paged(graph)
    assert digest(found) == digest(graph)
    for name, tensor in graph.parameters.items():
        assert torch.equal(found.parameters[name], tensor)
        moved = found.parameters[name].data_ptr() != tensor.data_ptr()
        assert moved == (tensor.nbytes >= LARGE)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_bits_of_all_kinds_of_floats(dtype: torch.dtype) -> None:
    """NaN of every kind, infinities, -0 and subnormal numbers too."""
    tensor = torch.randint(0, 256, (2700, 40 * dtype.itemsize), dtype=torch.uint8).view(dtype)
    graph = replace(layers(), parameters={'other': torch.zeros(LARGE), 'weight': tensor})
    found = paged(graph).parameters['weight']
    page_all_out()
    assert found.shape == (2700, 40)
    assert found.dtype == dtype
    assert torch.equal(found.view(torch.uint8), graph.parameters['weight'].view(torch.uint8))


def test_what_cannot_be_mapped_as_it_is_stays() -> None:
    """Other layouts than row-major, integers and small tensors are the very same ones."""
    tensors = {
        'strided': torch.zeros(256, 512).t(), 'repeated': torch.zeros(1).expand(LARGE),
        'integers': torch.zeros(LARGE, dtype=torch.int64), 'small': torch.zeros(10),
        'nothing': torch.zeros(0, 7), 'scalar': torch.tensor(1.0),
        'imagined': torch.zeros(LARGE, device='meta')}
    found = paged(replace(layers(), parameters={**tensors, 'large': torch.ones(LARGE)}))
    assert all(found.parameters[name] is tensor for name, tensor in tensors.items())


@needs_proc
def test_paged_out_weights_take_no_memory_until_they_are_read() -> None:
    first, second = large(paged(layers()))
    total = (first.sum() + second.sum()).item()
    assert resident(first) >= first.nbytes + second.nbytes
    page_out(second)
    assert resident(first) < first.nbytes + LARGE
    page_all_out()
    assert resident(first) == 0
    assert (first.sum() + second.sum()).item() == total
    assert resident(first) >= first.nbytes + second.nbytes


def test_what_is_written_to_weights_is_kept() -> None:
    first, second = large(paged(layers()))
    first.fill_(3.0)
    page_out(first)
    page_out(second)
    assert torch.equal(first, torch.full_like(first, 3.0))


def test_other_tensors_are_left_alone() -> None:
    tensor = torch.randn(LARGE)
    before = tensor.clone()
    page_out(tensor)
    page_all_out()
    assert torch.equal(tensor, before)


@needs_proc
def test_the_file_goes_with_the_weights() -> None:
    def count() -> int:
        gc.collect()
        return Path('/proc/self/maps').read_text().count('(deleted)')

    before = count()
    graph = paged(layers())
    first, second = large(graph)
    del graph, second
    assert count() == before + 1
    del first
    assert count() == before


def test_without_a_place_for_the_file_weights_stay_in_memory(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv('TMPDIR', str(tmp_path / 'missing'))
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'missing'))
    graph = layers()
    assert paged(graph) is graph
    assert 'weights stay in memory' in caplog.text
