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

from intradp_ros.wire.texts import LONGEST_TEXT, packed, unpacked


@given(st.text())
def test_a_text_comes_back(text: str) -> None:
    assert unpacked(packed(text)) == text


def test_repetition_is_cheap() -> None:
    assert len(packed('{"stop": 12, "share": 0.5}' * 1000)) < 400


@pytest.mark.parametrize('data', [
    '', 'no base64!', 'é', 'YWJj', packed('text')[:-4], packed('text') + packed('more'),
    base64.b64encode(zlib.compress(b'\xff\xfe')).decode(),
    base64.b64encode(zlib.compress(b'text') + b'and more').decode()])
def test_anything_else_is_refused(data: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the libraries say of it
        unpacked(data)


def test_no_more_is_reserved_than_a_text_may_have() -> None:
    """Of thirty times as much, no more than the first part is looked at."""
    assert len(unpacked(packed(' ' * LONGEST_TEXT))) == LONGEST_TEXT
    writer, million = zlib.compressobj(), b' ' * 2**20
    blocks = [writer.compress(million) for _ in range(30 * LONGEST_TEXT // len(million))]
    bomb = base64.b64encode(b''.join([*blocks, writer.flush()])).decode()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match='longer than'):
        unpacked(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4 * LONGEST_TEXT / 1024
