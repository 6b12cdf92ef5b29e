# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Tokens that may come next, looked up in what a request has so far, to be checked in one round.

A token's logits have the same bits whatever is computed with it: so drafts change no answer, only
how many tokens a round gives.  How often they are right is learned from all tokens that are drawn,
drafted or not; what further tokens cost is measured by rounds, with drafts and without.  Where
they do not pay, none are made.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
import statistics

#: Tokens that are drafted at most for each request: by default (none: that drafts never slow prose
#: was not shown on a quiet machine), and ever.
DRAFTS, MOST_DRAFTS = 0, 15
#: Tokens that must be alike before a place; from how many on likeness counts as long.
_ALIKE, _LONG = 3, 8
#: Part by which older outcomes count less with each new one.
_FORGET = 0.97
#: What a further token is thought to cost until that is measured, in parts of a round; by how
#: much drafts must be better to be made.
_GUESS, _CLEARLY = 0.05, 1.05
#: Times of rounds that are kept for each number of tokens; rounds after which they are measured
#: again, for what else the devices do changes.
_TIMES, _AGE = 5, 200


@dataclass
class Outcomes:
    """How often the next token was the one looked up, where that much was alike: right, all."""

    right: float = 1.0
    all: float = 2.0  # noqa: A003

    def add(self, right: bool) -> None:
        """Learn an outcome."""
        self.right = _FORGET * self.right + right
        self.all = _FORGET * self.all + 1.0

    @property
    def chance(self) -> float:
        """Return how likely the next one is right."""
        return min(0.98, self.right / self.all)


@dataclass
class Lookup:
    """
    What a request has so far, by its last tokens; and how often that predicted the next one.

    `outcomes` are those of places as alike as the one that `find` found last.
    """

    seen: dict[tuple[int, ...], int] = field(default_factory=dict)
    known: int = 0
    short: Outcomes = field(default_factory=Outcomes)
    long: Outcomes = field(default_factory=Outcomes)
    is_long: bool = False

    @property
    def outcomes(self) -> Outcomes:
        """Return how often what is looked up was right, where that much is alike."""
        return self.long if self.is_long else self.short

    @property
    def chance(self) -> float:
        """Return how likely the next token is the one that was found last."""
        return self.outcomes.chance

    def find(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return `most` tokens that came after the like of the last ones; none if none did."""
        for end in range(max(_ALIKE, self.known), len(tokens)):
            self.seen[tuple(tokens[end - _ALIKE:end])] = end
        self.known = max(self.known, len(tokens))
        place = self.seen.get(tuple(tokens[len(tokens) - _ALIKE:])) \
            if len(tokens) > _ALIKE else None
        if place is None:
            return []
        alike = _ALIKE
        while alike < min(place, _LONG) and tokens[place - alike - 1] == \
                tokens[len(tokens) - alike - 1]:
            alike += 1
        self.is_long = alike == _LONG
        found = list(tokens[place:place + most])
        while len(found) < most:  # what repeats itself goes on so
            found.append(found[len(found) - (len(tokens) - place)])
        return found


class Pace:
    """Seconds of rounds by how many tokens are computed in one, those of all lanes together."""

    def __init__(self) -> None:
        self._times: dict[int, deque[float]] = {}
        self._measured: dict[int, int] = {}
        self._rounds = 0

    def add(self, tokens: int, seconds: float) -> None:
        """Learn what a round of so many tokens took."""
        self._rounds += 1
        self._times.setdefault(tokens, deque(maxlen=_TIMES)).append(seconds)
        self._measured[tokens] = self._rounds
        for count, measured in list(self._measured.items()):
            if self._rounds - measured > _AGE:
                del self._measured[count], self._times[count]

    def seconds(self, tokens: int) -> float | None:
        """Return what so many tokens take, between and beyond those that are known."""
        if tokens in self._times:
            return statistics.median(self._times[tokens])
        below = max((count for count in self._times if count < tokens), default=None)
        above = min((count for count in self._times if count > tokens), default=None)
        if below is None:
            return None
        least = statistics.median(self._times[below])
        if above is not None:
            part = (tokens - below) / (above - below)
            return least + part * max(0.0, statistics.median(self._times[above]) - least)
        before = max((count for count in self._times if count < below), default=None)
        slope = _GUESS * least if before is None else max(
            0.0, (least - statistics.median(self._times[before])) / (below - before))
        return least + slope * (tokens - below)

    def worthwhile(self, tokens: int, drawn: float, chance: float, most: int) -> int:
        """
        Return how many tokens to draft for a request in a round, at most `most`; 0: none pays.

        The round has `tokens` so far, from which `drawn` are expected to be drawn.  Rounds
        without drafts of it are measured first.
        """
        alone = self.seconds(tokens)
        if alone is None or tokens == round(drawn) and tokens not in self._times:
            return 0
        best, best_rate, expected = 0, _CLEARLY * drawn / alone, drawn
        for count in range(1, most + 1):
            expected += chance ** count
            together = self.seconds(tokens + count)
            if together and expected / together > best_rate:
                best, best_rate = count, expected / together
        return best


def expected_of(chance: float, count: int) -> float:
    """Return how many of so many drafted tokens are expected to be right."""
    return sum(chance ** number for number in range(1, count + 1))
