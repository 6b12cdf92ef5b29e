# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which of two processes of one name stays: the one that most of the others hear.

Each of the others hears one of the two, and says so to both (`handshake.py`).  Where two begin
at once, some may hear the one and some the other; then who is heard by fewer leaves the name
for a while, so that all come to hear the other.  Of equals chance decides, again and again.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
import math

#: Seconds between two looks; for which a process greets nobody when it leaves, up to twice that.
PERIOD, REST = 1.0, 2.0
#: Seconds for which another must be heard of: who starts anew at once seems another at first.
LASTING = 5.0


@dataclass(frozen=True, slots=True)
class Namesake:
    """
    What a process makes of another of its name.

    It is `aside` until most hear it, greets nobody before `until`, and looked at `looked`.
    `since` is when it began to hear of another.
    """

    aside: bool = False
    until: float = -math.inf
    looked: float = -math.inf
    since: float = math.inf


def look(state: Namesake, heard: int, taken: int, now: float, chance: float,
         ) -> tuple[Namesake, bool]:
    """
    Look whether to stay; return whether to leave those that hear this process.

    `heard` counts the others that hear it, `taken` those that hear another of its name;
    `chance` is a random number from 0 to 1.
    """
    if now - state.looked < PERIOD or now < state.until:
        return state, False
    state = replace(state, looked=now, since=min(state.since, now) if taken else math.inf)
    if heard > taken or taken == heard == 0 and not state.aside:
        return replace(state, aside=False), False
    if not state.aside and now - state.since < LASTING:
        return state, False
    if taken < heard or taken == heard and (chance < 0.5 or not taken):
        return state, False
    leaves = heard > 0
    return replace(state, aside=True, until=now + REST * (1 + chance) if leaves else state.until,
                   ), leaves
