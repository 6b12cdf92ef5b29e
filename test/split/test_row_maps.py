# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Rows that operators ask for, against the receptive fields that textbooks give."""
from __future__ import annotations

from typing import Any

import pytest
from single_operator import Parameter, Single
import torch

from intradp_ros.split.regions.region import EMPTY, Region


def image(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def convolution(size: int, stride: int, padding: int, dilation: int = 1, rows: int = 20) -> Single:
    weight = Parameter(image(1, 1, size, size))
    return Single(
        'conv2d.default', image(1, 1, rows, 40), weight, None, [stride] * 2, [padding] * 2,
        [dilation] * 2)


def transposed(size: int, stride: int, padding: int) -> Single:
    weight = Parameter(image(1, 1, size, size))
    return Single(
        'conv_transpose2d.input', image(1, 1, 20, 40), weight, None, [stride] * 2, [padding] * 2)


def resize(name: str, rows: int, *rest: Any) -> Single:
    return Single(f'upsample_{name}2d.vec', image(1, 1, 20, 40), [rows, 40], *rest, None)


TABLE = {
    # operator on 20 rows, rows of its output, rows that these need
    'conv 3': (convolution(3, 1, 1), (5, 8), (4, 9)),
    'conv 3 at the top': (convolution(3, 1, 1), (0, 2), (0, 3)),
    'conv 3 at the bottom': (convolution(3, 1, 1), (17, 20), (16, 20)),
    'conv 3 of one row': (convolution(3, 1, 1), (7, 8), (6, 9)),
    'conv 1': (convolution(1, 1, 0), (5, 8), (5, 8)),
    'conv 1 stride 2': (convolution(1, 2, 0), (2, 5), (4, 9)),
    'conv 7 stride 2': (convolution(7, 2, 3), (3, 5), (3, 12)),
    'conv 3 stride 2': (convolution(3, 2, 1), (0, 5), (0, 10)),
    'conv 4 stride 4': (convolution(4, 4, 0), (1, 3), (4, 12)),
    'conv 3 dilation 2': (convolution(3, 1, 2, 2), (5, 8), (3, 10)),
    'conv 3 dilation 24': (convolution(3, 1, 24, 24), (5, 8), (5, 8)),
    'deconv 2 stride 2': (transposed(2, 2, 0), (4, 8), (2, 4)),
    'deconv 4 stride 2': (transposed(4, 2, 1), (4, 8), (1, 5)),
    'deconv 3 stride 2': (transposed(3, 2, 1), (4, 5), (2, 3)),
    'deconv 3 stride 2, odd row': (transposed(3, 2, 1), (5, 6), (2, 4)),
    'max pool 2': (
        Single('max_pool2d.default', image(1, 1, 20, 40), [2, 2]), (3, 5), (6, 10)),
    'max pool 3 stride 2': (
        Single('max_pool2d.default', image(1, 1, 20, 40), [3, 3], [2, 2], [1, 1]),
        (3, 5), (5, 10)),
    'average pool, rounded up': (
        Single('avg_pool2d.default', image(1, 1, 20, 40), [3, 3], [3, 3], [0, 0], True),
        (6, 7), (18, 20)),
    'adaptive pool, even': (
        Single('adaptive_avg_pool2d.default', image(1, 1, 20, 40), [5, 5]), (1, 3), (4, 12)),
    'adaptive pool, odd': (
        Single('adaptive_avg_pool2d.default', image(1, 1, 20, 40), [7, 7]), (1, 3), (2, 9)),
    'nearest 2': (resize('nearest', 40), (5, 8), (2, 4)),
    'nearest 1.5': (resize('nearest', 30), (3, 6), (2, 4)),
    'bilinear 2': (resize('bilinear', 40, False), (5, 7), (2, 4)),
    'bilinear 2, more rows': (resize('bilinear', 40, False), (4, 8), (1, 5)),
    'bilinear 4 at the top': (resize('bilinear', 80, False), (0, 2), (0, 1)),
    'bilinear aligned': (resize('bilinear', 39, True), (4, 7), (2, 4)),
    'bicubic 2': (resize('bicubic', 40, False), (10, 12), (3, 8)),
    'pixel shuffle': (
        Single('pixel_shuffle.default', image(1, 4, 20, 40), 2), (5, 8), (2, 4)),
    'slice': (Single('slice.Tensor', image(1, 1, 20, 40), 2, 3, 20, 4), (1, 3), (7, 12)),
    'flatten': (Single('view.default', image(1, 1, 20, 40), [1, 1, 800]), (30, 90), (0, 3)),
    'reflect': (
        Single('pad.default', image(1, 1, 20, 40), [0, 0, 3, 3], 'reflect'), (8, 10), (5, 7)),
    'softmax over channels': (Single('softmax.int', image(1, 3, 20, 40), 1), (5, 8), (5, 8)),
}


@pytest.mark.parametrize('name', TABLE)
def test_needs_exactly_the_receptive_field(name: str) -> None:
    single, region, need = TABLE[name]
    local = single.split(2).operators[0]
    assert local.maps[0](Region(*region)) == Region(*need)
    assert local.maps[0](EMPTY) == EMPTY


def test_growing_regions_need_growing_rows() -> None:
    for single, *_ in TABLE.values():
        local = single.split(2).operators[0]
        for stop in range(2, local.rows):
            less, more = (local.maps[0](Region(1, b)) for b in (stop, stop + 1))
            assert more.covers(less)
