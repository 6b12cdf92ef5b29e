# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Heights are added where times are off the line, and kernels are chosen by all heights."""
from __future__ import annotations

from dataclasses import replace
import time
from typing import Any

import pytest
import torch
from torch import nn

from intradp_ros.profiling.measure import look_between, measure_profile
from intradp_ros.profiling.parts import heights, OperatorParts, parts_of, time_part
from intradp_ros.profiling.profile import Profile
from intradp_ros.profiling.rounds import bind_whole, given
from intradp_ros.profiling.tune import best_of
from intradp_ros.runtime.models.model import share_module
from intradp_ros.split.local_operator import LocalOperator, SplitGraph

pytestmark = pytest.mark.usefixtures('one_thread')

SOURCE = torch.randn(1, 4, 64, 8)
SLOW, LONG = range(18, 31), 10e-3


def with_cliff() -> SplitGraph:
    """Return a graph of one convolution that is slow at some heights."""
    split = share_module(nn.Conv2d(4, 4, 1).eval(), (SOURCE,), 2).split
    [op] = split.operators

    def bind(region: Any, parameters: Any) -> Any:
        kernel = op.bind(region, parameters)

        def slowed(x: Any) -> Any:
            end = time.thread_time() + LONG
            while region.rows in SLOW and time.thread_time() < end:
                pass
            return kernel(x)

        return slowed

    return replace(split, operators=(replace(op, bind=bind),))


def with_caches() -> SplitGraph:
    """Return a graph of two convolutions, of which one is slow when the other ran before it."""
    layers = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)).eval()
    split = share_module(layers, (SOURCE,), 2).split
    ran: list[int] = []

    def remembering(op: LocalOperator) -> LocalOperator:
        def bind(region: Any, parameters: Any) -> Any:
            kernel, own = op.bind(region, parameters), op.operator.id

            def slow_at_first(x: Any) -> Any:
                end = time.thread_time() + LONG
                while ran[-1:] != [own] and time.thread_time() < end:
                    pass
                ran[:] = [own]
                return kernel(x)

            return slow_at_first

        return replace(op, bind=bind)

    return replace(split, operators=tuple(map(remembering, split.operators)))


def test_what_the_first_call_takes_counts_at_every_height() -> None:
    """In an inference every call is the first one since other operators ran."""
    profile = measure_profile(with_caches(), [SOURCE], budget=0.1)
    for timing in profile.timings:
        assert len(timing.rows) >= 5
        assert all(0.9 * LONG < seconds < 1.5 * LONG for seconds in timing.seconds)
        assert timing.once == pytest.approx(LONG, rel=0.1)
    assert profile.scale == pytest.approx(1, abs=0.1)


def test_one_row_is_always_measured() -> None:
    """What a kernel takes for any rows at all is most of what it takes for few."""
    shared = share_module(nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU()).eval(), (SOURCE,), 2)
    for op in bind_whole(shared.split):
        measured = OperatorParts.of(shared.split, op)
        assert [part.rows for part in measured.parts] == [1, 4, 8, 16, 32, 64]
        assert measured.first is not None and measured.first.rows == 4
        assert [part.rows for part in measured.lower] == [4, 4, 1, 8, 16, 32]


def test_heights_are_added_at_a_cliff() -> None:
    split = with_cliff()
    with torch.inference_mode():
        bound = bind_whole(split)
        parts = [parts_of(split, bound[0].local, False, heights(64))]
        values = given(split, [SOURCE])
        for part in parts[0] * 3:
            time_part(split, bound[0], part, values)
        assert [part.rows for part in parts[0]] == [4, 8, 16, 32, 64]
        look_between(split, bound, parts, [SOURCE])
    rows = [part.rows for part in parts[0]]
    assert rows == sorted(set(rows)) and {4, 8, 16, 32, 64} <= {*rows}
    slow = [part.rows for part in parts[0] if part.least > LONG / 2]
    assert slow and all(row in SLOW for row in slow)


@pytest.mark.parametrize('rows', [2, 3, 5])
def test_no_height_comes_twice(rows: int) -> None:
    """Else the profile is refused by all that hear it: nothing is ever planned."""
    shared = share_module(nn.Conv2d(4, 4, 1).eval(), (torch.randn(1, 4, rows, 64),), 2)
    with torch.inference_mode():
        bound = bind_whole(shared.split)
        parts = [parts_of(shared.split, bound[0].local, False, heights(rows))]
        known = [part.rows for part in parts[0]]
        for number, part in enumerate(parts[0]):
            part.took(0.1 + number % 2)  # far from any line, so that looks are kept
        inputs = [torch.randn(1, 4, rows, 64)]
        look_between(shared.split, bound, parts, inputs)
    found = [part.rows for part in parts[0]]
    assert found == sorted(set(found)) and {*known} <= {*found}


def test_a_profile_has_typical_times_and_the_shortest() -> None:
    shared = share_module(nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU()).eval(), (SOURCE,))
    profile = measure_profile(shared.split, [SOURCE], budget=0.1)
    assert 0 < profile.least_seconds <= profile.whole_seconds and profile.spread >= 0
    for timing in profile.timings:
        assert all(least <= typical for least, typical in zip(timing.least, timing.seconds))
        assert len(timing.least) == len(timing.rows)
    assert Profile.from_json(profile.to_json()) == profile


def test_a_kernel_must_be_good_at_every_height() -> None:
    plain, faster, cliff = [1.0, 2.0, 4.0], [0.9, 1.9, 3.9], [0.8, 1.6, 7.0]
    assert best_of([plain, faster]) == 1
    assert best_of([plain, faster, cliff]) == 1
    assert best_of([plain, cliff]) == 0
    assert best_of([cliff]) == 0
