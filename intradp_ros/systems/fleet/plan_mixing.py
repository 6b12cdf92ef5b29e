# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which plans an interruptible job runs for which part of a horizon (Dora, Eq. 7 and 8).

As printed the rates are called latencies, the parts need not fit into the
horizon, and the pause of a switch is scaled with its plan's part.  Here the
parts add up to one at most, and a switch costs its whole pause.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True, slots=True)
class Choice:
    """
    A plan to run: `rate` of work per second, `watts` while it runs.

    `pause` are the seconds of switching to it, 0 for the plan in use.
    """

    name: str
    rate: float
    watts: float
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Mix:
    """Seconds of running by plan, in order, and their joules; `work` is what gets done."""

    seconds: tuple[tuple[str, float], ...]
    joules: float
    work: float


def required_work(left: float, deadline: float, horizon: float) -> float:
    """Return the work that a horizon must do so that what is left is done by the deadline."""
    return left if deadline <= horizon else left * horizon / deadline


def mix_plans(choices: Sequence[Choice], horizon: float, work: float) -> Mix:
    """
    Return the plans, two at most, that do the work in the horizon with the least energy.

    With one limit of time and one of work no more than two are ever needed,
    so all pairs are tried.  If none does the work, the mix that does most.

    Raises
    ------
    ValueError
        If there is no plan, or the horizon is not above zero.

    """
    if not choices or not horizon > 0:
        raise ValueError('mixing needs a plan, and a horizon above 0 seconds')
    mixes = [mix for pair in _pairs(choices) for mix in _of(pair, horizon, work)]
    enough = [mix for mix in mixes if mix.work >= work * (1 - 1e-9)]
    if enough:
        return min(enough, key=lambda mix: mix.joules)
    return max(mixes, key=lambda mix: (mix.work, -mix.joules))


def _pairs(choices: Sequence[Choice]) -> Iterable[tuple[Choice, ...]]:
    yield from ((choice,) for choice in choices)
    yield from combinations(choices, 2)


def _of(pair: tuple[Choice, ...], horizon: float, work: float) -> Iterable[Mix]:
    """Yield the ends of what a plan, or two, can do: just the work, and all the time."""
    room = horizon - sum(choice.pause for choice in pair)
    if room <= 0:
        yield _mix(pair, [0.0] * len(pair))
    elif len(pair) == 1:
        rate = pair[0].rate
        yield _mix(pair, [min(room, work / rate if rate > 0 else room)])
    else:
        a, b = pair
        yield _mix(pair, [room, 0.0])
        yield _mix(pair, [0.0, room])
        if a.rate != b.rate:
            first = (work - b.rate * room) / (a.rate - b.rate)
            if 0 <= first <= room:
                yield _mix(pair, [first, room - first])


def _mix(pair: Sequence[Choice], seconds: Sequence[float]) -> Mix:
    run = list(zip(pair, seconds))
    joules = sum(c.watts * (s + c.pause) for c, s in run)
    return Mix(tuple((c.name, s) for c, s in run), joules, sum(c.rate * s for c, s in run))
