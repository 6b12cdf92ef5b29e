# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What tests of the two-sided runtime have in common: books made by hand, pairs, comparison."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
import time
from typing import Any

import torch
from torch.utils import _pytree as pytree

from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.partition.partition import (
    cut,
    local,
    offload,
    Partition,
    RowStage,
)
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.session.pair import in_process_pair, Pair
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.strategies import (
    CUT,
    LOCAL,
    OFFLOAD,
    SHARED,
)

TIMEOUT = 60.0
SOURCE = torch.randn(1, 3, 32, 48, generator=torch.Generator().manual_seed(1))
#: For tests without faults: a busy machine must not look like one.
ENDLESS = PatiencePolicy(silence=TIMEOUT, late_slack=TIMEOUT)
#: For tests of faults: a server that is silent is given up.
SHORT = PatiencePolicy(silence=0.3, away=0.3, late_slack=TIMEOUT)


class FixedRate:
    """A predictor that always says the same, in Mbit/s."""

    def __init__(self, mbps: float) -> None:
        self.rate = mbps * 125e3

    def update(self, rate: float, now: float) -> None:
        """Ignore what is measured."""

    def predict(self, now: float) -> float:
        """Return bytes per second."""
        return self.rate

    def spread(self) -> float:
        """Return that the rate never changes."""
        return 0.0


def hand_made_book(model: SharedModel, shared: Partition | None = None, mbps: float = 100.0,
                   predicted: float = 0.01) -> ScheduleBook:
    """
    Return a book for one bandwidth, whose schedule of `SHARED` is by default halves in bands.

    The robot alone would take twice what all others are predicted to.
    """
    count = len(model.split.operators)
    halves = Partition((RowStage(count // 3, 0.5, 2, 3), RowStage(2 * count // 3, 0.6, 3, 2),
                        RowStage(count, 0.4, 2, 2)))
    entries = {LOCAL: local(count), OFFLOAD: offload(count), CUT: cut(count, count // 2),
               SHARED: shared or halves}
    return ScheduleBook(model.digest, model.split.axis, 0.0, 0.0, tuple(
        Entry(mbps, name, predicted * (2 if name == LOCAL else 1), partition)
        for name, partition in entries.items()))


def sharing_pair(model: SharedModel, book: ScheduleBook | None = None, *,
                 server: SharedModel | None = None, patience: PatiencePolicy = ENDLESS,
                 mbps: float | None = None, lossy: str = '',
                 log: Callable[[str], None] = lambda text: None) -> Pair:
    """Return an in-process pair that has agreed on a book."""
    pair = in_process_pair(model, FixedRate(100.0), server_model=server, mbps=mbps,
                           patience=patience, lossy=lossy, log=log)
    pair.robot.use_book(book or hand_made_book(model))
    assert pair.robot.connection.wait_ready(TIMEOUT)
    return pair


def with_kernels(model: SharedModel, wrap: Callable[[Any], Any]) -> SharedModel:
    """Return the model with every kernel wrapped."""
    return replace(model, split=with_wrapped_kernels(model.split, wrap))


def with_wrapped_kernels(split: SplitGraph, wrap: Callable[[Any], Any]) -> SplitGraph:
    """Return the graph with every kernel wrapped."""
    return replace(split, operators=tuple(
        replace(op, bind=lambda region, parameters, bind=op.bind: wrap(bind(region, parameters)))
        for op in split.operators))


def assert_equal(got: object, wanted: object, tolerance: float = 1e-4) -> None:
    """Compare outputs of any structure; differences relative to the spread; NaN equals NaN."""
    flat, spec = pytree.tree_flatten(wanted)
    ours, our_spec = pytree.tree_flatten(got)
    assert our_spec == spec
    for a, b in zip(ours, flat):
        finite = b[b.isfinite()]
        spread = (finite.max() - finite.min()).item() if finite.numel() else 0.0
        torch.testing.assert_close(a, b, rtol=0.0, atol=tolerance * spread, equal_nan=True)


def infer_until_shared(robot: RobotClient, inputs: Sequence[torch.Tensor], wanted: object,
                       strategy: str = SHARED) -> Outcome:
    """Infer, comparing every result, until the server takes part again."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        outcome = robot.infer(inputs, strategy=strategy)
        assert_equal(outcome.outputs, wanted)
        if outcome.stats.shared:
            return outcome
        time.sleep(0.05)
    raise AssertionError(f'not shared within {TIMEOUT:g} s; {robot.connection.state}')
