# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which sessions of a server end, by when each was heard last; times are of a steady clock."""
from __future__ import annotations

from collections.abc import Mapping

USUAL_SESSIONS = 16
LEASE = 30.0  # seconds of silence after which a session ends
EVICT_AFTER = 2.0  # and after which it makes room for another


def ended(heard: Mapping[int, float], now: float) -> list[int]:
    """Return the sessions of robots that were switched off, say."""
    return [session for session, last in heard.items() if now - last > LEASE]


def gives_way(heard: Mapping[int, float], now: float) -> int | None:
    """Return the session that makes room for another: the most silent; None if all are heard."""
    oldest = min(heard, key=lambda session: heard[session])
    return None if now - heard[oldest] < EVICT_AFTER else oldest
