# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Long texts: they come back as they were, and nothing else does."""
from __future__ import annotations

import base64
import resource
import zlib

from hypothesis import given
from hypothesis import strategies as st
import pytest

from intradp_ros.core.limits import MAX_BOOK_TEXT, MAX_CONTAINERS, MAX_MODEL_TEXT
from intradp_ros.wire.texts import packed, unpacked


@given(st.text())
def test_a_text_comes_back(text: str) -> None:
    assert unpacked(packed(text), MAX_MODEL_TEXT) == text


def test_repetition_is_cheap() -> None:
    assert len(packed('{"stop": 12, "share": 0.5}' * 1000)) < 400


@pytest.mark.parametrize('data', [
    '', 'no base64!', 'é', 'YWJj', packed('text')[:-4], packed('text') + packed('more'),
    base64.b64encode(zlib.compress(b'\xff\xfe')).decode(),
    base64.b64encode(zlib.compress(b'text') + b'and more').decode()])
def test_anything_else_is_refused(data: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the libraries say of it
        unpacked(data, MAX_BOOK_TEXT)


def test_no_more_is_reserved_than_a_text_may_have() -> None:
    """Of thirty times as much, no more than the first part is looked at."""
    assert len(unpacked(packed(' ' * MAX_BOOK_TEXT), MAX_BOOK_TEXT)) == MAX_BOOK_TEXT
    writer, million = zlib.compressobj(), b' ' * 2**20
    blocks = [writer.compress(million) for _ in range(30 * MAX_BOOK_TEXT // len(million))]
    bomb = base64.b64encode(b''.join([*blocks, writer.flush()])).decode()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match='longer than'):
        unpacked(bomb, MAX_BOOK_TEXT)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4 * MAX_BOOK_TEXT / 1024


def test_a_text_of_nothing_but_lists_is_refused() -> None:
    """Ten kB unpack to a text that takes a quarter of a second to parse."""
    with pytest.raises(ValueError, match='lists and objects'):
        unpacked(packed('[' + '[],' * MAX_CONTAINERS + '[]]'), MAX_BOOK_TEXT)
