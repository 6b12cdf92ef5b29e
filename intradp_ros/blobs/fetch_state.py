# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a fetch of blobs knows, what happens to it, and what it wants done (`fetch.py`)."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
import math


@dataclass(frozen=True, slots=True)
class FetchTimes:
    """
    Seconds: a piece of which nothing came for `patience` is given up; a peer that is silent rests.

    Patience with a peer doubles with each silence in a row, and is no less than three times what
    it took lately for something to come.  It rests `rest`, twice as long each time up to
    `longest`; after silences it is asked for fewer pieces at once.  A piece has to be there after
    `slowest`.  Without any progress for `hopeless` the fetch fails.
    """

    patience: float = 1.0
    rest: float = 1.0
    longest: float = 8.0
    slowest: float = 20.0
    hopeless: float = 60.0


@dataclass(frozen=True)
class Blob:
    """
    What is still to be had; its size is asked for first where it is `unknown` at the beginning.

    Pieces up to `asked` were asked for, those at `lost` are to be asked for again, `got`
    bytes are there, of `givers`.  One that is `alone` has only one giver.
    """

    nbytes: int | None
    unknown: bool = False
    alone: bool = False
    asked: int = 0
    lost: tuple[int, ...] = ()
    got: int = 0
    givers: frozenset[str] = frozenset()
    checked: bool = False

    def anew(self) -> Blob:
        """Return the blob without anything that came."""
        return Blob(None if self.unknown else self.nbytes, self.unknown, self.alone)


@dataclass(frozen=True)
class Peer:
    """
    What a peer lacks, how often it was silent in a row, until when it rests, whether it lied.

    `pace` are the seconds that it takes lately until something comes.
    """

    lacks: frozenset[str] = frozenset()
    silences: int = 0
    rests_until: float = -math.inf
    lied: bool = False
    pace: float = 0.0

    def patience(self, times: FetchTimes) -> float:
        """Return for how long something may not come."""
        doubled: float = times.patience * 2.0 ** min(16, self.silences)
        return min(times.slowest, max(doubled, 3 * self.pace))


@dataclass(frozen=True, slots=True)
class Request:
    """A piece that was asked for; of no bytes where the size of the blob is asked for."""

    peer: str
    digest: str
    offset: int
    nbytes: int
    heard: float
    asked: float


@dataclass(frozen=True)
class Fetch:
    """What is to be had, from whom, and what was asked for (by number, which only grows)."""

    blobs: Mapping[str, Blob]
    peers: Mapping[str, Peer]
    most: int
    requests: Mapping[int, Request] = field(default_factory=dict)
    number: int = 0
    progress: float = 0.0


@dataclass(frozen=True, slots=True)
class Tick:
    """Time goes on."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Something of a piece came."""

    number: int


@dataclass(frozen=True, slots=True)
class Late:
    """A peer sends what was asked for once, and is not awaited any more."""

    peer: str


@dataclass(frozen=True, slots=True)
class Came:
    """A piece came whole, and was stored."""

    number: int


@dataclass(frozen=True, slots=True)
class Availability:
    """A peer says how many bytes a blob has, None if it does not have it."""

    peer: str
    number: int
    nbytes: int | None


@dataclass(frozen=True, slots=True)
class Checked:
    """A blob that came whole was compared with its digest."""

    digest: str
    right: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a peer for a piece."""

    number: int
    request: Request


@dataclass(frozen=True, slots=True)
class Check:
    """Compare a blob that came whole with its digest, and say `Checked`."""

    digest: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget what came of a blob."""

    digest: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Give up."""

    reason: str


Event = Tick | Heard | Late | Came | Availability | Checked
Action = Ask | Check | Drop | Failed
Result = tuple[Fetch, tuple[Action, ...]]
