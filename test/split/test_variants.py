# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Kernel variants compute what the plain kernels compute, on any rows."""
from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.split.calls.tuning import tuned, Tuning
from intradp_ros.split.calls.variants import (
    can_pack,
    CHANNELS_LAST,
    PACKED,
    SEPARABLE,
    variants_of,
)
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region
from intradp_ros.split.split_graph import split_graph

packing = pytest.mark.skipif(not can_pack(), reason='this build of torch packs no weights')


def variant_of(module: nn.Module, source: torch.Tensor, variant: str,
               ) -> tuple[SplitGraph, SplitGraph]:
    """Return a module of one operator, split as it is and with a variant of its kernel."""
    plain = split_graph(capture(module.eval(), (source,)))
    [op] = plain.operators
    assert variant in variants_of(plain.graph, op.operator)
    return plain, tuned(plain, Tuning(True, {op.operator.name: variant}))


def run(split: SplitGraph, source: torch.Tensor, region: Region) -> torch.Tensor:
    """Run the only operator for one region."""
    [op] = split.operators
    rows = split.cut(op.operator.inputs[0], source, op.maps[0](region))
    with torch.inference_mode():
        result: torch.Tensor = op.bind(region, split.graph.parameters)([rows])
    return result


def assert_alike(module: nn.Module, source: torch.Tensor, variant: str, tolerance: float,
                 cuts: Sequence[float]) -> None:
    """Compare all rows, and the rows between two cuts (shares of the height)."""
    plain, lean = variant_of(module, source, variant)
    rows = plain.operators[0].rows
    start = min(rows - 1, int(min(cuts) * rows))
    for region in (Region(0, rows), Region(start, max(start + 1, int(max(cuts) * rows)))):
        for layout in (torch.contiguous_format, torch.channels_last):
            laid = source if source.dim() != 4 else source.contiguous(memory_format=layout)
            wanted, got = run(plain, source, region), run(lean, laid, region)
            assert got.dtype == wanted.dtype
            torch.testing.assert_close(
                got, wanted, rtol=0.0, atol=tolerance * wanted.nan_to_num().abs().max().item(),
                equal_nan=True)


@pytest.mark.parametrize('variant', [
    CHANNELS_LAST, pytest.param(PACKED, marks=packing)])
@given(channels=st.sampled_from([(3, 8, 1), (16, 16, 16), (16, 24, 4), (32, 8, 1)]),
       size=st.sampled_from([1, 2, 3, 5]), stride=st.integers(1, 3), dilation=st.integers(1, 2),
       padding=st.integers(0, 3), bias=st.booleans(),
       cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)), seed=st.integers(0, 99))
@settings(max_examples=12, deadline=None)
def test_convolutions(variant: str, channels: tuple[int, int, int], size: int, stride: int,
                      dilation: int, padding: int, bias: bool, cuts: tuple[float, float],
                      seed: int) -> None:
    torch.manual_seed(seed)
    inputs, outputs, groups = channels
    module = nn.Conv2d(inputs, outputs, size, stride, padding, dilation, groups, bias)
    assert_alike(module, torch.randn(1, inputs, 21, 13), variant, 1e-5, cuts)


@pytest.mark.parametrize('variant', [
    CHANNELS_LAST, pytest.param(PACKED, marks=packing)])
@pytest.mark.parametrize('module', [
    nn.Conv3d(4, 8, 3, (1, 2, 1), 1), nn.Conv3d(4, 4, 3, padding='same', groups=4)])
def test_volumes(variant: str, module: nn.Module) -> None:
    torch.manual_seed(0)
    assert_alike(module, torch.randn(1, 4, 16, 8, 8), variant, 1e-5, (0.3, 0.7))


@pytest.mark.parametrize('variant', [
    CHANNELS_LAST, pytest.param(PACKED, marks=packing)])
@pytest.mark.parametrize(('size', 'padding'), [(3, 'same'), (4, 'same'), (3, 'valid')])
def test_padding_by_name(variant: str, size: int, padding: str) -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(8, 8, size, padding=padding)
    assert_alike(module, torch.randn(1, 8, 20, 12), variant, 1e-5, (0.0, 0.5))


@packing
@given(tokens=st.integers(2, 40), features=st.sampled_from([3, 16, 64]), bias=st.booleans(),
       cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)))
@settings(max_examples=8, deadline=None)
def test_linear_layers(tokens: int, features: int, bias: bool, cuts: tuple[float, float]) -> None:
    torch.manual_seed(tokens)
    module = nn.Linear(features, 24, bias)
    assert_alike(module, torch.randn(1, tokens, features), PACKED, 1e-5, cuts)


@given(size=st.integers(1, 5), stride=st.integers(1, 3), dilation=st.integers(1, 2),
       padded=st.booleans(), double=st.booleans(), broken=st.booleans(),
       cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)))
@settings(max_examples=15, deadline=None)
def test_maximum_pools_are_the_same_bit_by_bit(
        size: int, stride: int, dilation: int, padded: bool, double: bool, broken: bool,
        cuts: tuple[float, float]) -> None:
    torch.manual_seed(size)
    source = torch.randn(1, 4, 23, 17, dtype=torch.float64 if double else torch.float32)
    if broken:
        source[0, 1, 11, 5] = float('nan')
    module = nn.MaxPool2d(size, stride, size // 2 if padded else 0, dilation)
    assert_alike(module, source, SEPARABLE, 0.0, cuts)


def test_what_is_not_certain_has_no_variants() -> None:
    """Double precision, transposed convolutions, pools that round up, weights computed."""

    class Computed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.conv2d(x, x[:, :, :3, :3])

    modules = [nn.Conv2d(3, 3, 3).double(), nn.ConvTranspose2d(3, 3, 3),
               nn.MaxPool2d(3, 2, ceil_mode=True), Computed(), nn.Linear(9, 2).double()]
    for module in modules:
        double = any(p.dtype == torch.float64 for p in module.parameters())
        source = torch.randn(1, 3, 9, 9, dtype=torch.float64 if double else torch.float32)
        graph = capture(module.eval(), (source,))
        convolving = [op for op in graph.operators if 'slice' not in op.target]
        assert [variants_of(graph, op) for op in convolving] == [()] * len(convolving)


def test_the_model_keeps_its_weights_as_they_are() -> None:
    source = torch.randn(1, 8, 12, 12)
    plain, lean = variant_of(nn.Conv2d(8, 8, 3, padding=1), source, CHANNELS_LAST)
    before = {name: t.clone() for name, t in plain.graph.parameters.items()}
    run(lean, source, Region(2, 7))
    for name, tensor in lean.graph.parameters.items():
        assert tensor.is_contiguous()
        assert torch.equal(tensor, before[name])
