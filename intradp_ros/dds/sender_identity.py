# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which process speaks as whom, by what the middleware knows of the sender."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Seconds of silence after which somebody else may take a number.
FREE_AFTER = 2.0
MAX_KNOWN = 64
_FAST_DDS = 'rmw_fastrtps'
_PARTICIPANT = 12  # leading bytes of a GUID that all writers of a participant share (RTPS 9.3.1)


def participant_of(info: Mapping[str, Any]) -> bytes:
    """Return who published a message, from what `take` says of it; empty if that is unknown."""
    gid = info.get('publisher_gid')
    if not isinstance(gid, dict) or not gid['implementation_identifier'].startswith(_FAST_DDS):
        return b''
    return bytes(gid['data'][:_PARTICIPANT])


class SenderIdentity:
    """
    Numbers (of sessions, or of servers) with the participant that spoke under them first.

    Another participant is not heard under them until that one was silent for
    `FREE_AFTER` seconds.  This needs no key, and keeps off anyone who uses the
    middleware as it is; not one who forges its datagrams.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes, float]] = {}

    def admits(self, number: int, participant: bytes, now: float) -> bool:
        """Return whether a participant may speak under a number, at `now` (seconds); 0 is free."""
        if not participant or not number:
            return True
        first, heard = self._known.get(number, (participant, now))
        if first != participant and now - heard <= FREE_AFTER:
            return False
        if number not in self._known and len(self._known) >= MAX_KNOWN and not self._forget(now):
            return False
        self._known[number] = participant, now
        return True

    def _forget(self, now: float) -> bool:
        """Make room by dropping those that are silent; return whether there is room."""
        self._known = {n: (p, heard) for n, (p, heard) in self._known.items()
                       if now - heard <= FREE_AFTER}
        return len(self._known) < MAX_KNOWN
