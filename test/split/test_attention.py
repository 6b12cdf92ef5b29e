# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Scaled dot-product attention."""
from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from single_operator import (
    check_folded,
    check_global,
    check_local,
    check_yields_rows,
    Parameter,
    Single,
)
import torch

from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import Region

SEEDS = st.integers(0, 10**6)
ATTENTION = 'scaled_dot_product_attention.default'


def tensor(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)


@settings(max_examples=80)
@given(st.data(), SEEDS)
def test_attention_is_local_in_queries_and_batches(data: Any, seed: int) -> None:
    batch = [data.draw(st.integers(1, 3)), data.draw(st.integers(2, 3))]
    queries, keys = data.draw(st.integers(2, 9)), data.draw(st.integers(1, 9))
    causal = data.draw(st.booleans())
    mask = None
    if not causal and data.draw(st.booleans()):
        masked = [data.draw(st.sampled_from([1, n])) for n in (*batch, queries, keys)]
        mask = Parameter(tensor(*masked[data.draw(st.integers(0, 2)):]))
    axis = data.draw(st.sampled_from([1, 2]))
    dtype, tolerance = data.draw(st.sampled_from([
        (torch.float64, 1e-9), (torch.float32, 1e-5)]))
    if mask:
        mask = Parameter(mask.tensor.to(dtype))
    operands = [
        tensor(*batch, queries, 4, dtype=dtype), tensor(*batch, keys, 4, dtype=dtype),
        tensor(*batch, keys, 3, dtype=dtype)]
    if axis == 2 and keys != queries:
        operands[1:] = [Parameter(x) for x in operands[1:]]
    single = Single(ATTENTION, *operands, mask, 0.0, causal, scale=0.7)
    assert check_local(single, axis, seed, tolerance).kind is Kind.ROW


def test_every_query_needs_all_keys_and_values() -> None:
    x = tensor(1, 2, 7, 4)
    local = check_local(Single(ATTENTION, x, x, x), 2)
    assert [row_map(Region(2, 3)) for row_map in local.maps] == [
        Region(2, 3), Region(0, 7), Region(0, 7)]


@pytest.mark.parametrize('keys', [5, 7, 9])
def test_causal_query_needs_no_key_behind_it(keys: int) -> None:
    query, key, value = tensor(1, 2, 7, 4), tensor(1, 2, keys, 4), tensor(1, 2, keys, 4)
    local = check_local(Single(ATTENTION, query, key, value, None, 0.0, True), 2)
    assert [row_map(Region(2, 4)) for row_map in local.maps[1:]] == [Region(0, 4)] * 2


def test_causal_queries_against_fixed_keys_are_exact() -> None:
    key, value = Parameter(tensor(2, 9, 4)), Parameter(tensor(2, 9, 5))
    check_local(Single(ATTENTION, tensor(2, 7, 4), key, value, None, 0.0, True), 1)


def test_mask_that_hides_by_booleans_is_cut_with_the_queries() -> None:
    mask = torch.rand(7, 7, generator=torch.Generator().manual_seed(1)) > 0.4
    mask.fill_diagonal_(True)
    x = tensor(1, 2, 7, 4)
    check_local(Single(ATTENTION, x, x, x, Parameter(mask)), 2)


def test_queries_that_carry_no_rows_gather_them_as_records() -> None:
    learned = Parameter(tensor(1, 2, 3, 4))
    key, value = tensor(1, 2, 30, 4), tensor(1, 2, 30, 4) + 1
    split = check_folded(Single(ATTENTION, learned, key, value), 2)
    assert split.operators[-1].rows == 3, 'any of the queries can be had from all records'


def test_queries_without_rows_need_all_keys_that_cannot_be_taken_apart() -> None:
    learned, key, value = Parameter(tensor(1, 4, 3, 4)), tensor(1, 2, 7, 4), tensor(1, 2, 7, 4)
    assert check_yields_rows(Single(ATTENTION, learned, key, value, enable_gqa=True), 2).rows == 3
    check_global(Single(ATTENTION, learned, key, value, None, 0.0, True, enable_gqa=True), 2)


def test_rows_among_the_features_are_local_in_the_values_only() -> None:
    x = tensor(1, 2, 3, 7)
    local = check_local(Single(ATTENTION, x, x, x), 3)
    assert [row_map(Region(2, 3)) for row_map in local.maps] == [
        Region(0, 7), Region(0, 7), Region(2, 3)]


def test_heads_that_share_keys_are_local_in_queries_but_not_in_heads() -> None:
    query, key, value = tensor(2, 4, 7, 4), tensor(2, 2, 7, 4), tensor(2, 2, 7, 4)
    single = Single(ATTENTION, query, key, value, enable_gqa=True)
    check_local(single, 0)
    check_local(single, 2)
    check_global(single, 1)


@pytest.mark.parametrize('causal', [False, True])
def test_attention_as_traced_is_exact(causal: bool) -> None:
    x = tensor(2, 2, 7, 4)
    name = '_scaled_dot_product_flash_attention_for_cpu.default'
    single = Single(name, x, x, x, 0.0, causal)
    check_local(single, 2)
    check_local(single, 0)
    check_global(Single(name, x, x, x, read=(0, 1)), 2)


def test_dropout_makes_attention_global() -> None:
    x = tensor(1, 1, 7, 4)
    split = Single(ATTENTION, x, x, x, None, 0.5).split(2)
    assert split.operators[0].kind is Kind.GLOBAL
