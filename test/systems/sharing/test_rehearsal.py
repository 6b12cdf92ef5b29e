# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A rehearsal is exact if nothing is lossy, and measures what lossy encodings do."""
from __future__ import annotations

from dataclasses import replace

import pytest
from sharing import hand_made_book, sharing_pair
from small_models import seeded, UNet
import torch

from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.partition.partition import local
from intradp_ros.systems.sharing.session.rehearsal import lossy_difference, rehearse
from intradp_ros.systems.sharing.strategies import (
    OFFLOAD,
    SHARED,
)
from intradp_ros.wire.frames import MalformedFrameError

PICTURE = torch.randn(1, 3, 48, 64, generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope='module')
def model() -> SharedModel:
    return share_module(seeded(UNet, 48, 64), (PICTURE,))


def book_with(model: SharedModel, encoding: str, lossy: str = '') -> ScheduleBook:
    """Return a book in which the values between its stages cross in an encoding."""
    book = hand_made_book(model)
    encodings = tuple((v, encoding) for v in range(len(model.split.rows)))
    return replace(book, lossy=lossy, entries=tuple(
        replace(e, partition=replace(e.partition, encodings=encodings)) for e in book.entries))


def largest_difference(model: SharedModel, book: ScheduleBook) -> float:
    """Return by how much the halves of a book differ from the robot alone, of the spread."""
    (alone,) = rehearse(model, local(len(model.split.operators)), (PICTURE,)).values()
    (shared,) = rehearse(model, book.entries[book.choose(100.0, SHARED)].partition,
                         (PICTURE,)).values()
    return ((shared - alone).abs().max() / (alone.max() - alone.min())).item()


@pytest.mark.parametrize('encoding', ['floats', 'zstd'])
def test_lossless_encodings_change_nothing(model: SharedModel, encoding: str) -> None:
    assert largest_difference(model, book_with(model, encoding)) < 1e-5
    assert lossy_difference(model, book_with(model, encoding), (PICTURE,)) == 0.0


def test_the_difference_is_that_of_the_worst_schedule(model: SharedModel) -> None:
    halves, eighths = (book_with(model, name, name) for name in ('fp16', 'int8'))
    found = [lossy_difference(model, book, (PICTURE,)) for book in (halves, eighths)]
    assert 1e-5 < largest_difference(model, halves) <= found[0] * 1.001 < found[1] < 0.2


def test_what_is_rehearsed_is_what_runs(model: SharedModel) -> None:
    """A shared inference with the same partition gives the same bits, also if they are lossy."""
    book = book_with(model, 'fp16', 'fp16')
    partition = book.entries[book.choose(100.0, OFFLOAD)].partition
    (rehearsed,) = rehearse(model, partition, (PICTURE,)).values()
    with sharing_pair(model, book, lossy='fp16') as pair:
        outcome = pair.robot.infer((PICTURE,), strategy=OFFLOAD)
    assert outcome.stats.shared and torch.equal(outcome.outputs, rehearsed)


def test_lossy_books_need_to_be_allowed(model: SharedModel) -> None:
    with sharing_pair(model) as pair, pytest.raises(ValueError, match='set lossy to'):
        pair.robot.use_book(book_with(model, 'int8', 'int8'))


def test_a_rehearsal_that_fails_does_not_hang(model: SharedModel) -> None:
    """The input is too small: what the robot sends is not what the server expects."""
    with pytest.raises(MalformedFrameError):
        rehearse(model, hand_made_book(model).entries[1].partition, (PICTURE[:, :, :5],))
