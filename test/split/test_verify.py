# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The verification itself: it must find a wrong rule, and count what ran in parts."""
from __future__ import annotations

from dataclasses import replace
import math
import random

import pytest
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.graph_errors import GraphInputError
from intradp_ros.split.checks.verify import computed_in, output_error, random_regions, verify
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region, RowMap
from intradp_ros.split.split_graph import split_graph


@pytest.fixture(scope='module')
def split() -> SplitGraph:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1), nn.Flatten(),
        nn.Linear(2 * 12 * 10, 5))
    return split_graph(capture(net.double(), torch.rand(1, 3, 12, 10, dtype=torch.float64)))


@pytest.fixture
def image() -> torch.Tensor:
    return torch.rand(1, 3, 12, 10, dtype=torch.float64)


def test_right_rules_are_exact(split: SplitGraph, image: torch.Tensor) -> None:
    report = verify(split, [image])
    assert report.exact
    assert report.worst is not None and report.worst.spread > 0
    convolutions = 2 * 120 * 27 * 8 + 960 + 2 * 120 * 72 * 2
    linear = 2 * 240 * 5
    assert (report.flops, report.split_flops) == (
        convolutions + linear + 5, convolutions + linear)
    assert (report.operators, report.split_operators) == (5, 4)


def test_wrong_rows_are_found(split: SplitGraph, image: torch.Tensor) -> None:
    second = split.operators[2]
    shifted = second.maps[0].first + 1, second.maps[0].last + 1
    wrong = replace(second, maps=(RowMap(
        shifted[0].clip(0, 11), shifted[1].clip(0, 12)), *second.maps[1:]))
    broken = replace(split, operators=(*split.operators[:2], wrong, *split.operators[3:]))
    with pytest.raises((AssertionError, RuntimeError)):
        assert verify(broken, [image]).exact


def test_wrong_values_are_found(split: SplitGraph, image: torch.Tensor) -> None:
    relu = split.operators[1]
    wrong = replace(
        relu, bind=lambda region, parameters: lambda x: x[0].relu() + 1e-6 * region.start)
    broken = replace(split, operators=(split.operators[0], wrong, *split.operators[2:]))
    report = verify(broken, [image])
    assert not report.exact
    assert report.worst is not None and report.worst.relative > 1e-9


def test_inputs_of_another_shape_are_refused(split: SplitGraph) -> None:
    with pytest.raises(GraphInputError):
        verify(split, [torch.rand(1, 3, 12, 11, dtype=torch.float64)])


def test_one_part_is_refused(split: SplitGraph, image: torch.Tensor) -> None:
    with pytest.raises(ValueError, match='2 or more parts'):
        verify(split, [image], parts=1)


@pytest.mark.parametrize(('rows', 'parts'), [(1, 3), (2, 3), (10, 3), (5, 5)])
def test_random_regions_tile_the_rows(rows: int, parts: int) -> None:
    regions = random_regions(rows, parts, random.Random(0))
    assert len(regions) == min(rows, parts)
    assert [row for region in regions for row in range(*region)] == list(range(rows))
    assert all(isinstance(region, Region) for region in regions)


def test_error_is_relative_to_the_spread() -> None:
    expected = torch.tensor([100.0, 102.0])
    error = output_error('y', expected + torch.tensor([0.0, 1e-3]), expected)
    assert error.absolute == pytest.approx(1e-3, rel=1e-2)
    assert error.relative == pytest.approx(5e-4, rel=1e-2)
    assert not error.exact


@pytest.mark.parametrize(('dtype', 'limit'), [
    (torch.float64, 1e-9), (torch.float32, 1e-4), (torch.bfloat16, 2e-2), (torch.float16, 2e-2)])
def test_what_rounding_explains_depends_on_the_narrowest_dtype(
        dtype: torch.dtype, limit: float) -> None:
    wanted = torch.tensor([0.0, 1.0], dtype=torch.float64)
    for factor, exact in ((0.9, True), (1.1, False)):
        given = wanted + torch.tensor([factor * limit, 0.0], dtype=torch.float64)
        assert output_error('', given, wanted, dtype).exact == exact
        assert not output_error('', wanted + 3e-2, wanted, dtype).exact


def test_graphs_tell_the_narrowest_dtype_on_the_way() -> None:
    class Mixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.to(torch.bfloat16) + 1).float() * 2

    assert computed_in(capture(Mixed(), (torch.rand(2, 3),))) == torch.bfloat16
    assert computed_in(capture(nn.ReLU(), (torch.rand(2, 3),))) == torch.float32
    assert computed_in(capture(nn.ReLU(), (torch.arange(3),))) is None


def test_error_of_a_single_number_is_relative_to_its_magnitude() -> None:
    angle = torch.tensor([[20.0]])
    assert output_error('angle', angle * (1 + 1e-6), angle).exact
    assert not output_error('angle', angle * (1 + 1e-3), angle).exact


def test_one_sided_nan_is_infinitely_wrong_and_shared_nan_is_right() -> None:
    expected = torch.tensor([1.0, math.nan, math.inf, 3.0])
    assert output_error('y', expected.clone(), expected).absolute == 0.0
    given = torch.tensor([1.0, 2.0, math.inf, 3.0])
    assert output_error('y', given, expected).absolute == math.inf


def test_constant_output_must_be_met_exactly() -> None:
    expected = torch.ones(3)
    assert output_error('y', expected.clone(), expected).exact
    assert not output_error('y', expected + 1e-6, expected).exact


def test_both_parts_of_a_complex_number_count() -> None:
    expected = torch.tensor([1 + 2j, 3 - 1j, 2j]).conj()
    assert output_error('y', expected.clone(), expected).absolute == 0.0
    for wrong in (1e-2, 1e-2j):
        error = output_error('y', expected + wrong, expected)
        assert error.absolute == pytest.approx(1e-2, rel=1e-2) and not error.exact
        assert error.dtype == torch.complex64
