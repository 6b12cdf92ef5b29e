# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Split, every reduction is as near to the truth as PyTorch's own, however far from zero."""
from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from single_operator import Parameter, Single
from split.test_reductions import in_pieces, OVER_ROWS, tensor
import torch

from intradp_ros.graph.reference_evaluation import run_graph

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
WEIGHTS = Parameter(tensor(30, 4))
CONTRACTIONS: dict[str, tuple[str, int, tuple[Any, ...]]] = {
    'product': ('matmul.default', 3, (Parameter(tensor(1, 2, 30, 3)),)),
    'linear': ('linear.default', 3, (Parameter(tensor(3, 30)),)),
}


def narrowed(item: Any, dtype: torch.dtype) -> Any:
    return Parameter(item.tensor.to(dtype)) if isinstance(item, Parameter) else item


def errors(single: Single, wide: Single, axis: int, cuts: list[int]) -> tuple[float, float]:
    """Return the largest errors of pieces and of PyTorch, by the spread of the truth."""
    (truth,), (own,) = (run_graph(s.graph, s.inputs) for s in (wide, single))
    (given_,) = in_pieces(single.split(axis), single.inputs, cuts)
    fine = torch.isfinite(own)
    assert torch.equal(fine, torch.isfinite(given_))
    spread = max(float(truth.std(correction=0)), float(truth.abs().max()) * 1e-6, 1e-6)
    worst = [float((x.double() - truth)[fine].abs().max()) / spread if fine.any() else 0.0
             for x in (given_, own)]
    return worst[0], worst[1]


def no_worse(single: Single, wide: Single, axis: int, cuts: list[int]) -> None:
    split, own = errors(single, wide, axis, cuts)
    eps = torch.finfo(single.inputs[0].dtype).eps
    magnitude = float(run_graph(wide.graph, wide.inputs)[0].abs().max())
    spread = float(run_graph(wide.graph, wide.inputs)[0].std(correction=0))
    ulp = eps * magnitude / max(spread, magnitude * 1e-6, 1e-6)  # what rounding a result costs
    assert split <= 3 * own + 2 * ulp + 1e-6, (split, own)


@pytest.mark.parametrize('dtype', DTYPES, ids=str)
@pytest.mark.parametrize('case', OVER_ROWS)
@given(mean=st.sampled_from([0.0, 30.0, 1e4]), scale=st.sampled_from([1e-3, 1.0, 100.0]),
       cuts=st.lists(st.integers(1, 40), max_size=4), seed=st.integers(0, 10**6))
@settings(max_examples=5)
def test_reductions(case: str, dtype: torch.dtype, mean: float, scale: float, cuts: list[int],
                    seed: int) -> None:
    name, rest = OVER_ROWS[case]
    x = (tensor(2, 6, 9, 5, seed=seed) * scale + mean).to(dtype)
    rest = tuple(narrowed(item, dtype) for item in rest)
    wide = tuple(Parameter(i.tensor.double()) if isinstance(i, Parameter) else i for i in rest)
    single = Single(name, x, *rest)
    if single.split(2).folded:
        no_worse(single, Single(name, x.double(), *wide), 2, cuts)


@pytest.mark.parametrize('dtype', DTYPES, ids=str)
@pytest.mark.parametrize('case', CONTRACTIONS)
@given(mean=st.sampled_from([0.0, 100.0]), cuts=st.lists(st.integers(1, 40), max_size=4))
@settings(max_examples=4)
def test_contractions(case: str, dtype: torch.dtype, mean: float, cuts: list[int]) -> None:
    name, axis, rest = CONTRACTIONS[case]
    x = (tensor(1, 2, 4, 30) + mean).to(dtype)
    rest = tuple(narrowed(item, dtype) for item in rest)
    wide = tuple(Parameter(i.tensor.double()) for i in rest)
    no_worse(Single(name, x, *rest), Single(name, x.double(), *wide), axis, cuts)


@pytest.mark.parametrize('odd', [float('inf'), float('-inf'), float('nan'), 1e30, -3e38])
@pytest.mark.parametrize('case', OVER_ROWS)
def test_extreme_numbers_give_what_they_give_unsplit(case: str, odd: float) -> None:
    """One such number among ordinary ones: finite, infinite and NaN stand in the same places."""
    name, rest = OVER_ROWS[case]
    x = tensor(2, 6, 9, 5).float()
    x[1, 2, 3, 4] = odd
    single = Single(name, x, *(narrowed(item, torch.float32) for item in rest))
    split = single.split(2)
    for cuts in ([], [3], [2, 5, 7]):
        (result,), (own,) = in_pieces(split, [x], cuts), run_graph(single.graph, [x])
        torch.testing.assert_close(result, own, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize('parts', [1, 4])
@pytest.mark.parametrize('order', [1.0, 2.0, 3.0, float('inf')])
def test_norms_of_many_large_numbers_are_right_to_the_last_digits(order: float, parts: int,
                                                                 ) -> None:
    x = tensor(2, 6, 90, 50, seed=3).float() + 1e6
    single = Single('linalg_vector_norm.default', x, order)
    (given_,) = in_pieces(single.split(2), single.inputs, [90 // parts] * (parts - 1))
    truth = torch.linalg.vector_norm(single.inputs[0].double(), order)
    assert abs(float(given_) / float(truth) - 1) < 1e-7
    (huge,) = in_pieces(single.split(2), [single.inputs[0] * 1e25], [30])
    assert bool(huge.isinf()) == bool(
        torch.linalg.vector_norm(single.inputs[0] * 1e25, order).isinf())


def test_deviations_beyond_single_precision_leave_no_nan() -> None:
    x = tensor(2, 6, 9, 5).float().sign() * 3.3e38
    single = Single('instance_norm.default', x, None, None, None, None, True, 0.1, 1e-5, False)
    (own,), (split,) = run_graph(single.graph, [x]), in_pieces(single.split(2), [x], [4])
    assert torch.equal(own, split)
