# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The split axis that is chosen, and the dimensions of other inputs that match it."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from intradp_ros.graph.capture import capture
from intradp_ros.split.axes import axes_to_try, AxisCandidate, best_first, matching_dim
from intradp_ros.split.split_graph import axis_candidates, split_graph

Tensor = torch.Tensor


class Function(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def candidates(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> list[AxisCandidate]:
    inputs = tuple(torch.rand(shape) for shape in shapes)
    return list(axis_candidates(capture(Function(function), inputs)))


@pytest.mark.parametrize(('shape', 'axes'), [
    ((1, 3, 48, 64), [3, 2]),
    ((2, 3, 64, 64), [2, 3]),
    ((6, 3, 64, 48), [2, 3, 0]),
    ((480, 640, 3), [1, 0]),
    ((1, 1, 256, 32, 256), [2, 4, 3]),
    ((1, 197, 768), [2, 1]),
    ((1, 3, 2), [1, 2]),
    ((1, 1), [0]),
    ((), []),
])
def test_dimensions_of_several_rows_are_tried(shape: tuple[int, ...], axes: list[int]) -> None:
    assert axes_to_try(shape) == axes


@pytest.mark.parametrize(('own', 'dim'), [
    ((1, 1, 480, 640), 2),  # depth as large as the image
    ((1, 64, 60, 80), 2),  # a state at an eighth of the size
    ((1, 64, 15, 20), 2),
    ((1, 1, 3, 3), None),  # a matrix
    ((1, 3, 1, 640), None),
    ((480, 640), 0),
    ((1, 480, 640), 1),
    ((1, 2, 1, 480, 640), 3),
    ((480,), 0),
    ((1, 1, 480), 2),
    ((2, 480, 1, 480, 1, 1), None),
    ((1, 7), None),
    ((), None),
])
def test_other_inputs_are_cut_along_what_matches(own: tuple[int, ...], dim: int | None) -> None:
    assert matching_dim(own, (1, 3, 480, 640), 2) == dim


def test_colours_last_and_depth_are_cut_alike() -> None:
    assert matching_dim((480, 640), (480, 640, 3), 0) == 0
    assert matching_dim((480, 640), (480, 640, 3), 1) == 1
    assert matching_dim((64, 64), (64, 64, 3), 1) == 1


def test_windows_of_columns_are_cut_along_the_height() -> None:
    def windows(x: Tensor) -> Tensor:
        _, channels, height, width = x.shape
        x = x.reshape(1, channels, height // 4, 4, width // 4, 4).permute(0, 2, 4, 3, 5, 1)
        x = x.reshape(-1, 16, channels)
        return F.scaled_dot_product_attention(x, x, x)

    best, other = candidates(windows, (1, 4, 16, 32))
    assert (best.axis, other.axis) == (2, 3)
    assert best.barriers == 0
    assert best.exchanged < other.exchanged


def test_of_equal_shares_the_fewest_bytes_are_exchanged() -> None:
    weight = torch.rand(4, 3, 5, 1)
    best, other = candidates(lambda x: F.conv2d(x, weight, padding=(2, 0)), (1, 3, 400, 400))
    assert (best.axis, best.exchanged) == (3, 0)
    # of the 400 columns of 3 colours in float32, two rows on either side of the middle
    assert (other.axis, other.exchanged) == (2, 4 * 3 * 400 * 4)
    assert other.share == pytest.approx(1 - 1 / 400)


def test_tokens_are_cut_rather_than_features() -> None:
    weight = torch.rand(96, 64)
    best, other = candidates(lambda x: F.linear(F.linear(x, weight), weight.T), (1, 50, 64))
    assert (best.axis, best.barriers, best.exchanged) == (1, 0, 0)
    assert (other.axis, other.barriers) == (2, 2)


def test_several_cameras_are_cut_within_their_images_or_one_by_one() -> None:
    weight = torch.rand(4, 3, 3, 3)
    found = candidates(lambda x: F.conv2d(x, weight, padding=1), (6, 3, 32, 64))
    assert [c.axis for c in found] == [3, 2, 0]
    assert [c.exchanged == 0 for c in found] == [False, False, True]


def test_shares_that_hardly_differ_are_equal() -> None:
    split = split_graph(capture(Function(torch.relu), torch.rand(8, 16)), 0)
    far, near, best = (AxisCandidate(replace(split, axis=k), share, moved, 0) for k, share, moved
                       in ((0, 0.5, 0), (1, 0.97, 7), (2, 0.99, 9)))
    assert best_first([far, best, near]) == (near, best, far)


def test_an_image_and_its_depth_meet_row_by_row() -> None:
    def fused(image: Tensor, depth: Tensor, scale: Tensor) -> Tensor:
        return image * scale + depth.unsqueeze(0).unsqueeze(0)

    shapes = (1, 3, 24, 40), (24, 40), (3, 1, 1)
    graph = capture(Function(fused), tuple(torch.rand(shape) for shape in shapes))
    split = split_graph(graph, 2)
    assert split.dims[:3] == (2, 0, None)
    assert all(local.rows == 24 for local in split.operators)
