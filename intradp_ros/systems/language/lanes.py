# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The form of what a round computes, which `head` chooses: lanes of packed tokens, their pages."""
from __future__ import annotations

from dataclasses import dataclass
import struct

#: Tokens of a page of keys and values.
PAGE = 16
#: Parts of a lane, tokens and pages of a part, number of a page.
MAX_PARTS, MAX_COUNT, MAX_PAGES = 256, 1 << 16, 1 << 24
_PART = struct.Struct('<IIHB')
_RUN = struct.Struct('<II')


@dataclass(frozen=True, slots=True)
class Part:
    """
    `count` tokens of one request, the first of them at position `start`.

    `pages` are those of all its tokens so far, in order, these included.  The
    hidden states of its last `wanted` tokens go back to the head.
    """

    start: int
    count: int
    pages: tuple[int, ...]
    wanted: int = 1

    @property
    def stop(self) -> int:
        """Return the position after its last token."""
        return self.start + self.count


@dataclass(frozen=True, slots=True)
class Lane:
    """Parts whose tokens are computed together, packed in this order."""

    parts: tuple[Part, ...]

    @property
    def tokens(self) -> int:
        """Return the number of its tokens."""
        return sum(part.count for part in self.parts)

    @property
    def last_rows(self) -> list[int]:
        """Return the rows of the tokens that are wanted."""
        rows: list[int] = []
        end = 0
        for part in self.parts:
            end += part.count
            rows += range(end - part.wanted, end)
        return rows


def lane_bytes(lane: Lane) -> bytes:
    """Return a lane as bytes: pages as runs of consecutive numbers."""
    out = [struct.pack('<H', len(lane.parts))]
    for part in lane.parts:
        runs = page_runs(part.pages)
        out.append(_PART.pack(part.start, part.count, len(runs), part.wanted))
        out.extend(_RUN.pack(*run) for run in runs)
    return b''.join(out)


def read_lane(data: bytes) -> tuple[Lane, int]:
    """
    Return a lane, and how many bytes it took.

    :raises ValueError: if the bytes are none, or say something impossible.
    """
    try:
        (count,), at = struct.unpack_from('<H', data), 2
        if count > MAX_PARTS:
            raise ValueError(f'a lane of {count} parts')
        parts = []
        for _ in range(count):
            start, tokens, runs, wanted = _PART.unpack_from(data, at)
            at += _PART.size
            pages: list[int] = []
            for _ in range(runs):
                first, length = _RUN.unpack_from(data, at)
                at += _RUN.size
                if first + length > MAX_PAGES or len(pages) + length > MAX_COUNT:
                    raise ValueError('too many pages')
                pages.extend(range(first, first + length))
            part = Part(start, tokens, tuple(pages), wanted)
            if not 1 <= tokens <= MAX_COUNT or part.stop > PAGE * len(pages):
                raise ValueError('tokens without pages')
            if wanted > tokens:
                raise ValueError('more tokens are wanted than there are')
            parts.append(part)
    except struct.error:
        raise ValueError('a lane that ends early') from None
    return Lane(tuple(parts)), at


def page_runs(pages: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return pages as runs: the first of each, and its length."""
    runs: list[tuple[int, int]] = []
    for page in pages:
        if runs and page == sum(runs[-1]):
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((page, 1))
    return runs
