# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which robots a server takes, and when sessions end that are silent; times in seconds."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from intradp_ros.wire.frames import PROTOCOL
from intradp_ros.wire.sanitise import quoted

USUAL_SESSIONS = 16
LEASE = 30.0  # seconds of silence after which a session ends
EVICT_AFTER = 2.0  # and after which it makes room for another


def refusal(greeting: Mapping[str, Any], models: Iterable[str], names: Mapping[str, str],
            find: Callable[[str, int], object]) -> str | None:
    """
    Say why a robot is refused, naming what both sides have; None to take it.

    `models` are the digests of the catalogue, `names` what users call them;
    `find` raises ValueError for an axis along which a model cannot be split.
    """
    protocol, wanted = greeting.get('protocol'), greeting.get('digest')
    if protocol != PROTOCOL:
        return f'the robot speaks protocol {quoted(protocol)}, this server {PROTOCOL}'
    if not isinstance(wanted, str) or wanted not in models:
        have = ', '.join(f'{names.get(digest, "a model")} ({digest[:12]})'
                         for digest in models) or 'none'
        return (f'the robot has a model of digest {quoted(wanted)[:12]}, this server has '
                f'{have}: load the same model, weights and input shape on both')
    axis = greeting.get('axis')
    if not isinstance(axis, int):
        return f'the split axis is {quoted(axis)}, wanted a number'
    try:
        find(wanted, axis)
    except ValueError as error:
        return f'the model cannot be split along this axis: {error}'
    return None


def ended(heard: Mapping[int, float], now: float) -> list[int]:
    """Return the sessions of robots that were switched off, say."""
    return [session for session, last in heard.items() if now - last > LEASE]


def gives_way(heard: Mapping[int, float], now: float) -> int | None:
    """Return the session that makes room for another: the most silent; None if all are heard."""
    oldest = min(heard, key=lambda session: heard[session])
    return None if now - heard[oldest] < EVICT_AFTER else oldest
