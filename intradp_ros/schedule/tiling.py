# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Pieces of folded values: they are joined end to end, and never cut."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from intradp_ros.split.regions.region import EMPTY, Region


def tiling(pieces: Sequence[Region], need: Region) -> list[int] | None:
    """Return the indices of pieces that follow one another from end to end of `need`."""
    last = _reached(pieces, need)
    if need and need.stop not in last:
        return None
    found: list[int] = []
    at = need.stop
    while need and at > need.start:
        found.append(last[at])
        at = pieces[last[at]].start
    return found[::-1]


def missing_piece(pieces: Sequence[Region], need: Region) -> Region:
    """Return the smallest piece with which the others tile `need`; empty if they do."""
    if tiling(pieces, need) is not None:
        return EMPTY
    mirrored = [Region(-stop, -start) for start, stop in pieces]
    starts = (need.start, *_reached(pieces, need))
    stops = (need.stop, *(-at for at in _reached(mirrored, Region(-need.stop, -need.start))))
    gaps = [Region(start, stop) for start, stop in product(starts, stops) if start < stop]
    return min(gaps, key=lambda gap: gap.rows)


def _reached(pieces: Sequence[Region], need: Region) -> dict[int, int]:
    """Return the rows up to which pieces go on from the start of `need`, with the last piece."""
    last: dict[int, int] = {}
    for index in sorted(range(len(pieces)), key=lambda i: pieces[i]):
        start, stop = pieces[index]
        if (start == need.start or start in last) and start < stop <= need.stop:
            last[stop] = index
    return last
