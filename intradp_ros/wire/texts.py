# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Long JSON texts that cross the link in addition to inferences: graphs, profiles, schedule books.

A book of 130 kB takes 9 kB in this form: it must not hold up the rows of the
inferences that go on meanwhile.
"""
from __future__ import annotations

import base64
import zlib

from intradp_ros.core.limits import check_text


def packed(text: str) -> str:
    """Return a text compressed by zlib, in base64."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def unpacked(data: str, most: int) -> str:
    """
    Return the JSON text that was packed, of at most so many bytes.

    :raises ValueError: if `data` is nothing that `packed` returns, or the text is refused by
        `limits.check_text`; no more than `most` bytes are ever unpacked.
    """
    if len(data) > most:
        raise ValueError(f'a packed text of {len(data)} characters, at most {most} are taken')
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(base64.b64decode(data, validate=True), most)
    except zlib.error as error:
        raise ValueError(f'not compressed by zlib: {error}') from error
    if not reader.eof or reader.unused_data:
        raise ValueError(f'a compressed text that does not end where it should, or is longer than '
                         f'{most} bytes')
    return check_text(text.decode(), most)
