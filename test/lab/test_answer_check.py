# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Answers that are not the unsplit model's are seen, whatever they hold."""
from __future__ import annotations

import math

import pytest
import torch

from intradp_lab.answer_check import check, exact

WANTED = torch.arange(12.0).view(3, 4)


def changed(place: tuple[int, int], value: float) -> torch.Tensor:
    other = WANTED.clone()
    other[place] = value
    return other


def test_the_same_is_exact() -> None:
    found = check([WANTED.clone(), WANTED], [WANTED, WANTED])
    assert found.difference == 0.0 and found.same_top and exact(found.difference)
    nothing = torch.full((2, 2), math.nan)
    assert exact(check([nothing.clone()], [nothing]).difference)


@pytest.mark.parametrize('given', [
    changed((0, 0), math.nan), changed((2, 3), math.inf), changed((1, 1), 5.1), WANTED[:2],
    WANTED.view(4, 3)])
def test_anything_else_is_not(given: torch.Tensor) -> None:
    assert not exact(check([given], [WANTED]).difference)
    assert not exact(check([WANTED, given], [WANTED, WANTED]).difference)


def test_an_output_too_few_is_not() -> None:
    assert not exact(check([], [WANTED]).difference)


def test_the_largest_must_be_the_same_ones() -> None:
    assert not check([changed((2, 3), 9.5)], [WANTED]).same_top


def test_what_is_no_number_is_not_exact() -> None:
    assert not exact(math.nan) and not exact(math.inf) and exact(1e-6)
