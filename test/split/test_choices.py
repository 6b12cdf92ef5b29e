# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Choices among the rows by records: the best ones and look-ups give what torch gives."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from single_operator import check_folded, check_yields_rows, Parameter, Single
import torch

from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.split.reductions.choices import partial_topk, total_topk

SEED = st.integers(0, 10**6)
INFINITE = float('inf')


def distinct(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return numbers no two of which are equal: which of equals torch takes is not said."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.Size(shape).numel()
    return (torch.randperm(count, generator=generator) - count / 3).to(dtype).reshape(shape)


def places(*shape: int, rows: int, seed: int, least: int = 0) -> torch.Tensor:
    return torch.randint(least, rows, shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 7), st.booleans(), st.sampled_from([(0,), (1,), (0, 1)]), SEED)
@settings(max_examples=30)
def test_the_best_rows_and_their_places(
        k: int, largest: bool, read: tuple[int, ...], seed: int) -> None:
    x = distinct(2, 31, 9, seed=seed)
    check_folded(Single('topk.default', x, k, 1, largest, read=read), 1, 0.0)
    check_folded(Single('topk.default', x[:, :, :1], k, -2, largest, read=read), 1, 0.0)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16])
def test_the_best_keep_their_type(dtype: torch.dtype) -> None:
    x = distinct(1, 100, seed=5, dtype=dtype)
    split = check_folded(Single('topk.default', x, 4, read=(0, 1)), 1, 0.0)
    assert [split.graph.values[v].dtype for v in split.graph.output_values] == [dtype, torch.int64]


@pytest.mark.parametrize(('filled', 'largest'), [
    (-INFINITE, True), (INFINITE, False), (float('nan'), True), (float('nan'), False)])
def test_parts_of_fewer_rows_add_nothing(filled: float, largest: bool) -> None:
    """A part's record is filled up; what fills it never stands for a row that is as bad."""
    x = distinct(12, 2, seed=3)
    x[3:] = filled
    parts = [partial_topk(x[a:b], 7, 0, largest, a) for a, b in ((0, 2), (2, 3), (3, 12))]
    best, found = total_topk(torch.cat(parts), 0, largest, x.dtype)
    assert torch.equal(best.nan_to_num(1e9), x.topk(7, 0, largest)[0].nan_to_num(1e9))
    assert torch.equal(x.gather(0, found).nan_to_num(1e9), best.nan_to_num(1e9))
    assert all(len(set(line.tolist())) == 7 for line in found.T)


def test_of_equals_the_first_are_chosen() -> None:
    x = torch.zeros(10)
    parts = [partial_topk(x[a:b], 3, 0, True, a) for a, b in ((0, 1), (1, 10))]
    assert total_topk(torch.cat(parts), 0, True, x.dtype)[1][0] == 0


def test_a_side_alone_takes_those_of_equals_that_torch_does() -> None:
    x = torch.arange(100) % 7 / 7
    split = Single('topk.default', x, 9, read=(0, 1)).split(0)
    assert split.folded
    for found, wanted in zip(run_graph(split.graph, [x]), x.topk(9)):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize('rest', [(4, 2), (31, 1)])
def test_no_choice_among_the_rows_is_not_taken_apart(rest: tuple[int, int]) -> None:
    """Elsewhere it is local, and a record of all rows would save nothing."""
    assert not Single('topk.default', distinct(2, 31, 9, seed=1), *rest).split(1).folded


@given(SEED)
@settings(max_examples=20)
def test_single_elements_by_their_places(seed: int) -> None:
    x = distinct(2, 30, 5, seed=seed)
    index = Parameter(places(2, 3, 5, rows=30, seed=seed))
    check_folded(Single('gather.default', x, 1, index), 1, 0.0)
    check_folded(Single('gather.default', x, -2, index), 1, 0.0)


@given(SEED, st.sampled_from([torch.float32, torch.uint8, torch.bool, torch.int64]))
@settings(max_examples=20)
def test_whole_rows_by_their_places(seed: int, dtype: torch.dtype) -> None:
    x = distinct(2, 30, 4, seed=seed).to(dtype)
    check_folded(Single('index.Tensor', x, [None, places(3, rows=30, seed=seed, least=-30)]), 1,
                 0.0)
    check_folded(Single('index_select.default', x, 1, places(4, rows=30, seed=seed)), 1, 0.0)
    grid = places(2, 2, rows=30, seed=seed).int()
    check_folded(Single('index.Tensor', x, [None, grid]), 1, 0.0)


def test_what_is_no_number_is_found_and_spoils_nothing() -> None:
    x = distinct(30, 4, seed=2)
    x[::2] = float('nan')
    x[1] = INFINITE
    check_folded(Single('index_select.default', x, 0, torch.tensor([0, 1, 3, 4])), 0, 0.0)


def test_many_places_are_any_rows() -> None:
    """Records of them would be larger than the rows that they are looked up in."""
    index = Parameter(places(20, 4, rows=30, seed=1))
    check_yields_rows(Single('gather.default', distinct(30, 4, seed=1), 0, index), 0)
