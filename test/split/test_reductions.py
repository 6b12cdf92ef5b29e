# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Reductions over the rows: records of any parts give the whole result, also far from zero."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from single_operator import check_folded, Parameter, Single
import torch

from intradp_ros.graph.operator_graph import Operator, Value, ValueRef
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.split.checks.verify import run_part
from intradp_ros.split.local_operator import Kind, SplitGraph
from intradp_ros.split.reductions import contractions
from intradp_ros.split.regions.region import Region

EXACT = 1e-9
INFINITE = float('inf')


def tensor(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def in_pieces(split: SplitGraph, inputs: Sequence[torch.Tensor], cuts: Sequence[int],
              ) -> list[torch.Tensor]:
    """Run all operators whole, save those that fold: these in pieces that end at `cuts`."""
    values = dict(zip(split.graph.inputs, inputs))
    for local in split.operators:
        outputs = local.operator.outputs
        borders = sorted({0, local.rows, *(c % local.rows for c in cuts)})
        regions = [Region(0, local.rows)]
        if outputs[0] in split.folded:
            regions = [Region(a, b) for a, b in zip(borders, borders[1:])]
        parts: list[Any] = [run_part(split, local, region, values) for region in regions]
        if isinstance(parts[0], torch.Tensor):
            parts = [[torch.cat(parts) if len(parts) > 1 else parts[0]]]
        values.update({v: x for v, x in zip(outputs, parts[0]) if v is not None})
    return [values[v] for v in split.graph.output_values]


def check(single: Single, axis: int, cuts: Sequence[int], tolerance: float = EXACT,
          inputs: Sequence[torch.Tensor] | None = None) -> None:
    """Compare pieces (of other `inputs` than the single's own, if given) with the whole."""
    split = single.split(axis)
    assert split.folded
    for result, expected in zip(in_pieces(split, inputs or single.inputs, cuts),
                                run_graph(single.graph, single.inputs)):
        spread = max(1.0, float(expected.double().std(correction=0)))
        torch.testing.assert_close(result, expected, rtol=0.0, atol=tolerance * spread,
                                   equal_nan=True)


CUTS = st.lists(st.integers(1, 40), max_size=4)
SEED = st.integers(0, 10**6)
ATTENTION = 'scaled_dot_product_attention.default'

OVER_ROWS: dict[str, tuple[str, tuple[Any, ...]]] = {
    'sum': ('sum.dim_IntList', ([2, 3],)),
    'sum of all': ('sum.default', ()),
    'mean': ('mean.dim', ([-2, -1], True)),
    'mean of rows': ('mean.dim', ([2],)),
    'mean of all': ('mean.default', ()),
    'amax': ('amax.default', ([2],)),
    'amin': ('amin.default', ([0, 2], True)),
    'max': ('max.default', ()),
    'max along rows': ('max.dim', (2, True)),
    'prod': ('prod.dim_int', (2,)),
    'logsumexp': ('logsumexp.default', ([2, 3],)),
    'norm': ('linalg_vector_norm.default', (2, [2, 3], True)),
    'norm of order 3': ('linalg_vector_norm.default', (3, [2])),
    'largest absolute': ('linalg_vector_norm.default', (INFINITE, [1, 2])),
    'smallest absolute': ('linalg_vector_norm.default', (-INFINITE, None)),
    'var': ('var.correction', ([2, 3],)),
    'var of all': ('var.default', ()),
    'std': ('std.dim', ([2, 3], False, True)),
    'var and mean': ('var_mean.dim', ([2, 3], True)),
    'softmax': ('softmax.int', (2,)),
    'log softmax': ('_log_softmax.default', (-2, False)),
    'pool to one': ('adaptive_avg_pool2d.default', ([1, 1],)),
    'pool to a row': ('adaptive_avg_pool2d.default', ([1, 3],)),
    'largest of all': ('adaptive_max_pool2d.default', ([1, 1],)),
    'window of all rows': ('avg_pool2d.default', ([9, 2], [1, 1], [0, 1])),
    'largest in all rows': ('max_pool2d.default', ([9, 3], [2, 2], [0, 1], 1, True)),
    'group norm': ('group_norm.default', (2, Parameter(tensor(6)), Parameter(tensor(6)))),
    'norm of one group': ('group_norm.default', (1, Parameter(tensor(6)), Parameter(tensor(6)))),
    'instance norm': (
        'instance_norm.default', (Parameter(tensor(6)), None, None, None, True, 0.1, 1e-5, False)),
    'layer norm': (
        'layer_norm.default', ([6, 9, 5], Parameter(tensor(6, 9, 5)), Parameter(tensor(6, 9, 5)))),
    'layer norm without weights': ('layer_norm.default', ([9, 5],)),
}


@pytest.mark.parametrize('case', OVER_ROWS)
@given(cuts=CUTS, seed=SEED)
@settings(max_examples=8)
def test_records_of_any_pieces_give_the_whole(case: str, cuts: list[int], seed: int) -> None:
    name, rest = OVER_ROWS[case]
    check(Single(name, tensor(2, 6, 9, 5, seed=seed), *rest), 2, cuts)


@pytest.mark.parametrize('case', [
    'var', 'std', 'softmax', 'log softmax', 'group norm', 'instance norm', 'layer norm', 'mean'])
@given(cuts=CUTS, seed=SEED)
@settings(max_examples=6)
def test_far_from_zero_nothing_is_lost(case: str, cuts: list[int], seed: int) -> None:
    """
    A mean of 1e6 at a spread of 1: sums of squares would keep 4 digits of a variance.

    The numbers themselves are known to 1e-10, of which a few may be lost on the way.
    """
    name, rest = OVER_ROWS[case]
    far = 1e6 + tensor(2, 6, 9, 5, seed=seed)
    single = Single(name, far, *rest)
    check(single, 2, cuts, 1e-8)
    # torch itself loses these digits in a group norm of channels last
    check(single, 2, cuts, 1e-8, [far.contiguous(memory_format=torch.channels_last)])


@pytest.mark.parametrize(('name', 'rest'), [
    ('any.default', ()), ('all.dim', (2,)), ('any.dims', ([2, 3],))])
def test_truth_of_rows(name: str, rest: tuple[Any, ...]) -> None:
    check(Single(name, tensor(1, 3, 9, 4) > 1.2, *rest), 2, [4])
    check(Single(name, tensor(1, 3, 9, 4) < 9, *rest), 2, [4])


def test_whole_numbers_add_up_without_overflow() -> None:
    pixels = torch.full((1, 3, 9, 40), 255, dtype=torch.uint8)
    single = Single('sum.dim_IntList', pixels, [2, 3])
    check(single, 2, [2, 5])
    assert single.split(2).graph.values[1].dtype == torch.int64


@given(st.sampled_from([torch.float16, torch.bfloat16]), CUTS)
@settings(max_examples=10)
def test_narrow_numbers_are_added_in_single_precision(dtype: torch.dtype, cuts: list[int]) -> None:
    x = (tensor(1, 4, 40, 9) + 2).to(dtype)
    for name, rest in (
            ('mean.dim', ([2, 3],)), ('softmax.int', (2,)), ('group_norm.default', (2,))):
        single = Single(name, x, *rest)
        records = min(single.split(2).folded)
        wide = torch.float64 if name == 'group_norm.default' else torch.float32
        assert single.split(2).graph.values[records].dtype == wide
        check(single, 2, cuts, 2e-2)


def test_infinite_scores_weigh_nothing() -> None:
    """Also where a whole piece is masked, or a whole column."""
    x = tensor(1, 4, 9, 5)
    x[:, :, :4] = -INFINITE
    x[:, 0] = -INFINITE
    for name in ('softmax.int', 'log_softmax.int', 'logsumexp.default'):
        check(Single(name, x, [2] if name.startswith('logs') else 2), 2, [2, 4])


@given(CUTS, SEED, st.booleans())
@settings(max_examples=20)
def test_flattened_rows_into_a_linear_layer(cuts: list[int], seed: int, batch: bool) -> None:
    x = tensor(2 if batch else 1, 3, 9, 4, seed=seed)
    flat = Flat(x, Parameter(tensor(5, 108)), Parameter(tensor(5)))
    for axis in (2, 3):
        check(flat, axis, cuts)
        split = flat.split(axis)
        assert [local.kind for local in split.operators] == [Kind.ROW, Kind.GLOBAL]


def test_weights_too_large_to_be_laid_out_anew_give_the_same(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contractions, 'COPIED_BYTES', 0)
    flat = Flat(tensor(2, 3, 9, 4, seed=1), Parameter(tensor(5, 108)), Parameter(tensor(5)))
    for axis in (2, 3):
        check(flat, axis, [2, 3])


class Flat(Single):
    """A linear layer behind flattened rows."""

    def __init__(self, x: torch.Tensor, weight: Parameter, bias: Parameter | None) -> None:
        super().__init__('linear.default', x.flatten(1), weight, bias)
        self.inputs = [x]
        (source, result) = self.values
        flat = Value(2, 'flat', source.shape, source.dtype)
        reshape = Operator(0, 'flatten', 'aten.view.default',
                           (ValueRef(0), list(source.shape)), {}, (2,))
        linear = replace(self.graph.operators[0], id=1,
                         args=(ValueRef(2), *self.graph.operators[0].args[1:]))
        self.values = [replace(source, shape=tuple(x.shape)), result, flat]
        self.graph = replace(
            self.graph, values=tuple(self.values), operators=(reshape, linear))


@given(CUTS, SEED)
@settings(max_examples=15)
def test_products_that_contract_the_rows(cuts: list[int], seed: int) -> None:
    keys, values = tensor(1, 2, 30, 4, seed=seed), tensor(1, 2, 30, 3, seed=seed + 1)
    rows_last = keys.transpose(-1, -2).contiguous()
    check(Single('matmul.default', rows_last, Parameter(values)), 3, cuts)
    check(Single('matmul.default', Parameter(rows_last), values), 2, cuts)
    check(Single('mm.default', Parameter(rows_last[0, 0]), values[0, 0]), 0, cuts)
    check(Single('addmm.default', Parameter(tensor(3)), rows_last[0, 0],
                 Parameter(values[0, 0]), beta=0.5, alpha=2), 1, cuts)
    check(Single('linear.default', rows_last, Parameter(tensor(3, 30))), 3, cuts)


def test_a_product_larger_than_what_it_contracts_stays_whole() -> None:
    split = Single('linear.default', tensor(1, 4, 30), Parameter(tensor(20, 30))).split(2)
    assert not split.folded
    assert split.operators[0].kind is Kind.GLOBAL


@pytest.mark.parametrize('mask', [None, 'added', 'hiding', 'broadcast'])
@given(cuts=CUTS, seed=SEED)
@settings(max_examples=6)
def test_learned_queries_gather_keys_as_records(
        mask: str | None, cuts: list[int], seed: int) -> None:
    keys, values = tensor(1, 2, 21, 4, seed=seed) * 9, tensor(1, 2, 21, 5, seed=seed + 1)
    masks = {'added': tensor(1, 2, 3, 21), 'hiding': tensor(3, 21) > 0.5,
             'broadcast': tensor(1, 1, 3, 1)}
    chosen = None if mask is None else Parameter(masks[mask])
    single = Single(ATTENTION, Parameter(tensor(1, 2, 3, 4)), keys, values, chosen)
    split = check_folded(single, 2)
    assert sum(split.graph.values[v].nbytes for v in split.folded) == 2 * 3 * 7 * 8
    check(single, 2, cuts)


def test_a_fully_masked_query_gets_what_torch_gives() -> None:
    hidden = torch.ones(3, 21, dtype=torch.bool)
    hidden[1] = False
    single = Single(ATTENTION, Parameter(tensor(1, 2, 3, 4)), tensor(1, 2, 21, 4),
                    tensor(1, 2, 21, 5), Parameter(hidden))
    check(single, 2, [4, 9])


def test_single_precision_keeps_four_digits_of_the_spread() -> None:
    x = (100 + tensor(1, 32, 64, 64)).float()
    for name, rest in (('group_norm.default', (8,)), ('mean.dim', ([2, 3],)),
                       ('softmax.int', (2,)), ('var.correction', ([2, 3],))):
        check(Single(name, x, *rest), 2, [7, 8, 31], 1e-4)


def test_captured_graph_and_ids_of_its_values_stay() -> None:
    single = Single('mean.dim', tensor(1, 3, 9, 4), [2, 3])
    split = single.split(2)
    assert split.captured is single.graph
    assert split.graph.outputs == single.graph.outputs
    assert split.nbytes(2, 5) == split.nbytes(2, 9) == 3 * 8
    assert (split.nbytes(2, 0), split.shape(2, 4), split.rows[2]) == (0, (1, 1, 3), 9)
