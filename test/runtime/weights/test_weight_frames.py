# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What devices say of blobs and of tensors is possible, or refused at once."""
from __future__ import annotations

from typing import Any

import pytest
import torch

from intradp_ros.core.limits import MAX_BLOB, MAX_DIMENSIONS, MAX_ELEMENTS
from intradp_ros.runtime.weights.frames import (
    found_frame,
    read_found,
    read_held,
    read_state_wish,
    read_wish,
    state_frame,
    StateFound,
)
from intradp_ros.wire.frames import Control, ControlKind, MalformedFrameError

DIGEST = 'a' * 64


def held(**body: Any) -> Control:
    return Control(ControlKind.HELD, 1, body=body)


def tensor(shape: list[int], nbytes: int) -> Control:
    return held(blob=DIGEST, dtype=[2, 32], shape=shape, bytes=nbytes)


def test_what_is_possible_is_read() -> None:
    wish = read_state_wish('a', state_frame(1, 2, 'toy', 'first', 3))
    found = StateFound(DIGEST, torch.float32, (2, 3))
    assert read_found(found_frame(wish, found)) == found
    assert read_found(tensor([1] * MAX_DIMENSIONS, 4)) is not None
    assert read_held(held(bytes=MAX_BLOB)) == MAX_BLOB and read_held(held(bytes=None)) is None


@pytest.mark.parametrize('frame', [
    tensor([1] * (MAX_DIMENSIONS + 1), 4), tensor([MAX_ELEMENTS + 1, 0], 0),
    tensor([1 << 20, 1 << 20], 1 << 42), tensor([2], 4), tensor([-1], -4), tensor([1], -4),
    held(blob=DIGEST, dtype=[2, 257], shape=[1], bytes=4),
    held(blob='b', dtype=[2, 32], shape=[1], bytes=4)], ids=str)
def test_impossible_tensors_are_refused(frame: Control) -> None:
    with pytest.raises(MalformedFrameError):
        read_found(frame)


@pytest.mark.parametrize('nbytes', [MAX_BLOB + 1, -1, 1.0, True, 'x', 10 ** 400], ids=str)
def test_impossible_sizes_of_blobs_are_refused(nbytes: Any) -> None:
    with pytest.raises(MalformedFrameError):
        read_held(held(bytes=nbytes))
    with pytest.raises(MalformedFrameError):
        read_wish('a', Control(ControlKind.FETCH, 1, body={
            'blob': DIGEST, 'offset': nbytes, 'bytes': 1}))
    with pytest.raises(MalformedFrameError):
        read_wish('a', Control(ControlKind.FETCH, 1, body={
            'blob': DIGEST, 'offset': 0, 'bytes': nbytes}))
