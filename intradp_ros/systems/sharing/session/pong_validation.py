# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a server reports of itself, held to what can be."""
from __future__ import annotations

from intradp_ros.wire.frames import MalformedFrameError
from intradp_ros.wire.sanitise import quoted

MOST_LOAD = 1000.0  # that a server may report


def validated_load(reported: object) -> float:
    """
    Return how many times as long the server says that it computes, for its other sessions.

    Raises
    ------
    MalformedFrameError
        If it cannot be such a number.

    """
    if not isinstance(reported, (int, float)) or not 1.0 <= reported <= MOST_LOAD:
        raise MalformedFrameError(f'a load of {quoted(reported)}, not 1..{MOST_LOAD:g}', 'pong')
    return float(reported)


def validated_digests(books: object) -> dict[int, str]:
    """Return the digests by epoch that a server reported, as far as they are well-formed."""
    reported = books if isinstance(books, list) else []
    return {pair[0]: pair[1] for pair in reported if isinstance(pair, list) and len(pair) == 2
            and type(pair[0]) is int and type(pair[1]) is str}
