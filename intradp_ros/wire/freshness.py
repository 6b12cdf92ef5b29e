# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Whether what is announced is said by a process that runs now, so that recordings are worth nothing.

Two state machines over (event, time).  A speaker draws a number when it starts, its run, and
counts what it says.  A listener draws a number, too.  What it hears of a run that it does not
know it does not believe: it asks about it, and the speaker says it again with the number of
the question.  From then on it believes the run, as long as its count does not fall.  Another run
takes its place if it answers a later question; a process that has ended can answer none that was
asked afterwards.  No clock is compared with another's, and none orders anything.
"""
from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import TypeVar

#: Seconds until a question is asked again, twice as many each time up to the most.
AGAIN, MOST_AGAIN = 0.5, 60.0
#: Times that a question was asked in vain when it is reported.
IN_VAIN = 4
#: Names whose run is known; announcements that are asked about; askers that a speaker remembers.
MAX_BELIEVED, MAX_OPEN, MAX_ASKERS = 256, 256, 256

_Key = TypeVar('_Key')
_Item = TypeVar('_Item')


@dataclass(frozen=True, slots=True)
class Said:
    """What goes with an announcement: its run, its count, and the question that it answers."""

    run: int
    sequence: int
    asker: int = 0
    question: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """A listener's question number `number`: whether the `run` lives that said `sequence`."""

    asker: int
    number: int
    run: int
    sequence: int


class Verdict(Enum):
    """What becomes of an announcement."""

    TAKEN = 'taken'
    OLD = 'older than another of its sender'
    UNPROVED = 'nobody knows yet whether its sender runs'


@dataclass(frozen=True, slots=True)
class Belief:
    """The run that is believed under a name, its last count, the last question it answered."""

    run: int
    sequence: int
    question: int


@dataclass(frozen=True, slots=True)
class Open:
    """How often something was asked about, and when it is asked about again."""

    times: int
    due: float


@dataclass(frozen=True)
class Listener:
    """
    What a process knows of those that announce.

    `asked` counts its questions.  `believed` is by name; `floor` is the last question that one
    answered whose name was forgotten.  `open` is what waits for an answer.
    """

    own: int
    asked: int = 0
    floor: int = 0
    believed: Mapping[Hashable, Belief] = field(default_factory=lambda: MappingProxyType({}))
    open: Mapping[tuple[Hashable, int, int], Open] = field(
        default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Speaker:
    """
    What a process that announces knows.

    `current` is the count of the last announcement by name, `answered` the last question by
    asker: what was recorded is not answered again.
    """

    run: int
    count: int = 0
    current: Mapping[Hashable, int] = field(default_factory=lambda: MappingProxyType({}))
    answered: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))


def heard(state: Listener, name: Hashable, said: Said, now: float,
          ) -> tuple[Listener, Verdict, Question | None]:
    """Hear an announcement whose seal is right; return what to ask, if anything."""
    known = state.believed.get(name)
    answered = said.question if said.asker == state.own else 0
    if known and known.run == said.run:
        if said.sequence < known.sequence:
            return state, Verdict.OLD, None
        answered = max(answered, known.question)
    elif answered <= max(state.floor, known.question if known else 0):
        about = name, said.run, said.sequence
        if about in state.open:
            return state, Verdict.UNPROVED, None
        state = replace(state, asked=state.asked + 1, open=_with(
            state.open, about, Open(1, now + AGAIN), MAX_OPEN))
        return state, Verdict.UNPROVED, Question(state.own, state.asked, said.run, said.sequence)
    believed = _with(state.believed, name, Belief(said.run, said.sequence, answered),
                     MAX_BELIEVED)
    forgotten = [belief.question for other, belief in state.believed.items()
                 if other not in believed]
    still = {about: item for about, item in state.open.items()
             if about[:2] != (name, said.run)}
    return replace(state, believed=believed, floor=max(state.floor, *forgotten, 0),
                   open=still), Verdict.TAKEN, None


def due(state: Listener, now: float,
        ) -> tuple[Listener, tuple[Question, ...], tuple[Hashable, ...]]:
    """Let time go on; return what to ask again, and the names that were asked for in vain."""
    questions: list[Question] = []
    in_vain: list[Hashable] = []
    still = dict(state.open)
    for about, item in state.open.items():
        if now >= item.due:
            name, run, sequence = about
            questions.append(Question(state.own, state.asked + len(questions) + 1, run, sequence))
            still[about] = Open(item.times + 1, now + min(AGAIN * 2**item.times, MOST_AGAIN))
            if item.times == IN_VAIN:
                in_vain.append(name)
    return (replace(state, asked=state.asked + len(questions), open=still) if questions else state,
            tuple(questions), tuple(in_vain))


def said(state: Speaker, name: Hashable) -> tuple[Speaker, Said]:
    """Announce something anew."""
    count = state.count + 1
    return (replace(state, count=count,
                    current=_with(state.current, name, count, MAX_BELIEVED)),
            Said(state.run, count))


def asked(state: Speaker, question: Question) -> tuple[Speaker, Hashable | None, Said | None]:
    """Take a question whose seal is right; return the name whose last announcement answers it."""
    if question.run != state.run or question.number <= state.answered.get(question.asker, 0):
        return state, None, None
    state = replace(state, answered=_with(state.answered, question.asker, question.number,
                                          MAX_ASKERS))
    for name, sequence in state.current.items():
        if sequence == question.sequence:
            return state, name, Said(state.run, sequence, question.asker, question.number)
    return state, None, None  # a newer one is on its way


def _with(items: Mapping[_Key, _Item], key: _Key, item: _Item, most: int) -> dict[_Key, _Item]:
    """Return a mapping with an item at its end; the first makes room."""
    changed = {other: value for other, value in items.items() if other != key}
    changed[key] = item
    while len(changed) > most:
        del changed[next(iter(changed))]
    return changed
