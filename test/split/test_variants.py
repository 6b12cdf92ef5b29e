# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Kernel variants compute what the plain kernels compute, on any rows."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from intradp_ros.graph.capture import capture
from intradp_ros.split.calls.call import Call
from intradp_ros.split.calls.tuning import tuned, Tuning
from intradp_ros.split.calls.variants import (
    can_pack,
    CHANNELS_LAST,
    implementation,
    PACKED,
    Packs,
    Place,
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
@settings(max_examples=12)
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
@settings(max_examples=8)
def test_linear_layers(tokens: int, features: int, bias: bool, cuts: tuple[float, float]) -> None:
    torch.manual_seed(tokens)
    module = nn.Linear(features, 24, bias)
    assert_alike(module, torch.randn(1, tokens, features), PACKED, 1e-5, cuts)


@given(size=st.integers(1, 5), stride=st.integers(1, 3), dilation=st.integers(1, 2),
       padded=st.booleans(), double=st.booleans(), broken=st.booleans(),
       cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)))
@settings(max_examples=15)
def test_maximum_pools_are_the_same_bit_by_bit(
        size: int, stride: int, dilation: int, padded: bool, double: bool, broken: bool,
        cuts: tuple[float, float]) -> None:
    torch.manual_seed(size)
    source = torch.randn(1, 4, 23, 17, dtype=torch.float64 if double else torch.float32)
    if broken:
        source[0, 1, 11, 5] = float('nan')
    module = nn.MaxPool2d(size, stride, size // 2 if padded else 0, dilation)
    assert_alike(module, source, SEPARABLE, 0.0, cuts)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(('size', 'stride', 'groups'), [
    (1, 1, 1), (3, 1, 8), (3, 2, 1), (3, 2, 8), (5, 2, 1)])
def test_convolutions_in_half_precision(dtype: torch.dtype, size: int, stride: int, groups: int,
                                        ) -> None:
    """They have the other layout as a variant; by single rows, too, nothing is made of nothing."""
    torch.manual_seed(0)
    module = nn.Conv2d(8, 16, size, stride, size // 2, groups=groups)
    source = torch.randn(1, 8, 15, 17)
    with torch.inference_mode():
        wanted = module.to(dtype).float()(source.to(dtype).float())
    plain, lean = variant_of(module.to(dtype), source.to(dtype), CHANNELS_LAST)
    assert variants_of(plain.graph, plain.operators[0].operator) == (CHANNELS_LAST,)
    limit = 2 * torch.finfo(dtype).eps * wanted.abs().max().item()
    for split in (plain, lean):
        for start in range(split.operators[0].rows):
            wiped = torch.full((5000,), 1e38)  # memory that the next tensors may get
            del wiped
            got = run(split, source.to(dtype), Region(start, start + 1))
            torch.testing.assert_close(got.float(), wanted.narrow(split.axis, start, 1), rtol=0.0,
                                       atol=limit)


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


@packing
@pytest.mark.parametrize(('inputs', 'groups', 'size', 'stride', 'dilation', 'padding'), [
    (16, 1, 1, 1, 1, 0), (16, 1, 1, 3, 1, 1), (16, 1, 3, 2, 1, 1), (16, 1, 3, 2, 2, 1),
    (16, 1, 4, 2, 1, 1), (8, 8, 4, 3, 2, 2)])
def test_weights_are_packed_for_just_the_rows_that_come(
        inputs: int, groups: int, size: int, stride: int, dilation: int, padding: int) -> None:
    module = nn.Conv2d(inputs, 16, size, stride, padding, dilation, groups)
    plain, _ = variant_of(module, torch.randn(1, inputs, 21, 13), PACKED)
    [name], rows = [op.operator.name for op in plain.operators], plain.operators[0].rows
    for region in (Region(0, rows), Region(0, rows - 1), Region(0, 1), Region(1, 4)):
        lean = tuned(plain, Tuning(True, {name: PACKED}))  # with weights packed for no rows yet
        with CallsSeen('mkldnn::_reorder_convolution_weight') as packed:
            kernel = lean.operators[0].bind(region, lean.graph.parameters)
        need = lean.operators[0].maps[0](region)
        source = torch.randn(1, inputs, need.rows, 13)
        with torch.inference_mode(), CallsSeen('mkldnn::_convolution_pointwise') as convolved:
            kernel([source])
        assert [list(args[-1]) for args in packed.calls] == [
            list(args[0].shape) for args in convolved.calls]


@pytest.mark.parametrize(('variant', 'stride', 'groups', 'region', 'copies'), [
    (CHANNELS_LAST, 1, 32, Region(0, 9), 0), (CHANNELS_LAST, 1, 32, Region(9, 21), 0),
    (CHANNELS_LAST, 2, 1, Region(0, 5), 0), ('plain', 2, 1, Region(0, 5), 0),
    (CHANNELS_LAST, 2, 1, Region(5, 11), 1),  # every other row, but not from the border on
    (CHANNELS_LAST, 1, 1, Region(0, 9), 1), ('plain', 1, 32, Region(0, 9), 1)])
def test_rows_at_a_border_are_copied_only_where_that_is_cheaper(
        variant: str, stride: int, groups: int, region: Region, copies: int) -> None:
    module = nn.Conv2d(32, 32, 3, stride, padding=1, groups=groups)
    source = torch.randn(1, 32, 21, 13).contiguous(memory_format=torch.channels_last)
    plain, tuned_split = variant_of(module, source, CHANNELS_LAST)
    split = plain if variant == 'plain' else tuned_split
    with CallsSeen('aten::constant_pad_nd') as padded:
        rows = run(split, source, region)
    assert len(padded.calls) == copies
    torch.testing.assert_close(rows, module(source)[:, :, region.start:region.stop])
    assert rows.is_contiguous(memory_format=torch.channels_last) or variant == 'plain'


@packing
def test_orders_of_a_weight_are_kept_once() -> None:
    torch.manual_seed(0)
    weight = torch.randn(160, 960, 1, 1)
    packs: Packs = {}
    plain = split_graph(capture(nn.Conv2d(960, 160, 1).eval(), (torch.randn(1, 960, 7, 7),)))
    call = Call.of(plain.graph, plain.graph.operators[0])
    names = [call.argument(a).name for a in ('weight', 'bias')]
    tensors = dict(zip(names, (weight, torch.zeros(160))))
    for rows in range(1, 8):
        place = Place(packs, (1, 960, 7, 7), (1, 160, rows, 7), 2)
        kernel = implementation(PACKED, place)(call, tensors, rows)
        source = torch.randn(1, 960, rows, 7)
        torch.testing.assert_close(kernel([source]), nn.functional.conv2d(source, weight),
                                   rtol=0, atol=1e-3)
    described = {torch.ops.mkldnn._get_mkldnn_serialized_md(p).numpy().tobytes()
                 for p in packs.values()}
    assert len({id(packed) for packed in packs.values()}) == len(described)


class CallsSeen(TorchDispatchMode):
    """Keeps the arguments of the calls of one function."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.calls = name, list[tuple[Any, ...]]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None,
                           ) -> Any:
        if function._schema.name == self.name:
            self.calls.append(args)
        return function(*args, **kwargs or {})
