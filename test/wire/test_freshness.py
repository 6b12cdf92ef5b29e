# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Announcements of processes that start and end in any order, with recordings of everything."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from intradp_ros.wire.freshness import (
    asked,
    due,
    heard,
    IN_VAIN,
    Listener,
    MAX_BELIEVED,
    MAX_OPEN,
    Question,
    Said,
    said,
    Speaker,
    Verdict,
)

NAMES = ('robot', 'server')
STEPS = st.lists(st.tuples(st.sampled_from(
    ('speak', 'speak', 'stop', 'start', 'restart', 'replay', 'replay', 'replay', 'lose', 'wait')),
    st.integers(0, 10**6)), min_size=15, max_size=60)


class Domain:
    """
    One speaker and one listener at most under each name; all that is said is recorded.

    What is announced is latched: a listener that starts hears the last that each living speaker
    said.  Each listener has a clock of its own that begins anywhere.
    """

    def __init__(self, names: tuple[str, ...] = NAMES) -> None:
        self.names, self.numbers, self.now = names, iter(range(1, 10**6)), 0.0
        self.speakers: dict[str, Speaker] = {}
        self.listeners: dict[str, Listener] = {}
        self.clocks: dict[str, float] = {}
        self.taken: dict[str, dict[str, Said]] = {}
        self.recorded: list[tuple[str, Said] | Question] = []
        self.ended: dict[int, float] = {}
        self.began: dict[str, float] = {}
        self.runs: dict[str, list[int]] = {name: [] for name in names}
        self.deaf = False

    def start_speaker(self, name: str) -> None:
        self.stop_speaker(name)
        self.speakers[name] = Speaker(next(self.numbers))
        self.runs[name].append(self.speakers[name].run)
        self.speak(name)

    def stop_speaker(self, name: str) -> None:
        if name in self.speakers:
            self.ended[self.speakers.pop(name).run] = self.now

    def start_listener(self, name: str, clock: float) -> None:
        self.listeners[name], self.clocks[name] = Listener(next(self.numbers)), clock
        self.taken[name], self.began[name] = {}, self.now
        for speaker, state in self.speakers.items():
            if speaker in state.current:
                self.hear(name, speaker, Said(state.run, state.current[speaker]))

    def speak(self, name: str) -> None:
        if name in self.speakers:
            self.speakers[name], announced = said(self.speakers[name], name)
            self.announced(name, announced)

    def announced(self, name: str, item: Said) -> None:
        self.recorded.append((name, item))
        for listener in list(self.listeners):
            self.hear(listener, name, item)

    def hear(self, listener: str, name: str, item: Said) -> None:
        state, verdict, question = heard(
            self.listeners[listener], name, item, self.now + self.clocks[listener])
        self.listeners[listener] = state
        if verdict is Verdict.TAKEN:
            self.check_taken(listener, name, item)
            self.taken[listener][name] = item
        if question:
            self.ask(question)

    def check_taken(self, listener: str, name: str, item: Said) -> None:
        """Nothing of a run that ended before the listener began, of one before, or older."""
        before = self.taken[listener].get(name)
        assert self.ended.get(item.run, self.now) >= self.began[listener]
        if before and before.run == item.run:
            assert item.sequence >= before.sequence
        elif before:
            runs = self.runs[name]
            assert runs.index(item.run) > runs.index(before.run)

    def ask(self, question: Question) -> None:
        self.recorded.append(question)
        if self.deaf:
            return
        for speaker in list(self.speakers):
            self.speakers[speaker], name, answer = asked(self.speakers[speaker], question)
            if answer:
                assert name == speaker
                self.announced(speaker, answer)

    def replay(self, number: int) -> None:
        if self.recorded:
            item = self.recorded[number % len(self.recorded)]
            if isinstance(item, Question):
                self.ask(item)
            else:
                self.announced(*item)

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        for listener in list(self.listeners):
            state, questions, _ = due(self.listeners[listener], self.now + self.clocks[listener])
            self.listeners[listener] = state
            for question in questions:
                self.ask(question)

    def check_all_known(self) -> None:
        for taken in self.taken.values():
            for name, speaker in self.speakers.items():
                assert (taken[name].run, taken[name].sequence) == (
                    speaker.run, speaker.current[name])


@given(steps=STEPS, clocks=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_order_of_starts_and_recordings(steps: list[tuple[str, int]],
                                            clocks: list[float]) -> None:
    """Who is believed lives, or has lived since; in the end everybody knows the newest of all."""
    domain = Domain()
    domain.start_listener('planner0', clocks[0])
    domain.start_speaker(NAMES[0])
    for what, number in steps:
        name = NAMES[number % 2]
        if what == 'speak':
            domain.speak(name)
        elif what == 'stop':
            domain.stop_speaker(name)
        elif what == 'start':
            domain.start_speaker(name)
        elif what == 'restart':
            domain.start_listener(f'planner{number % 2}', clocks[number % len(clocks)])
        elif what == 'replay':
            domain.replay(number)
        elif what == 'lose':  # questions, for a while
            domain.deaf = not domain.deaf
        domain.go_on((number % 7) / 10)
    domain.deaf = False
    for _ in range(20):  # what waits is asked again within 60 s
        domain.go_on(10.0)
    domain.check_all_known()


def test_what_a_run_said_before_and_answers_to_others_are_not_taken() -> None:
    domain = Domain(('server',))
    domain.start_listener('other', 5.0)
    domain.start_speaker('server')
    for _ in range(3):
        domain.speak('server')
    for number in range(len(domain.recorded)):
        domain.replay(number)
    domain.check_all_known()
    domain.stop_speaker('server')
    domain.start_listener('planner', 0.0)
    domain.go_on(1.0)
    for number in range(len(domain.recorded)):
        domain.replay(number)
    assert not domain.taken['planner']


def test_a_flood_of_recordings_keeps_nobody_out() -> None:
    """Of more runs than a listener remembers, before and after the true one speaks."""
    domain = Domain(('server',))
    for _ in range(2 * MAX_OPEN):
        domain.start_speaker('server')
    domain.stop_speaker('server')
    flood, random = list(domain.recorded), Random(3)
    domain.start_listener('planner', -1e9)
    for order in (flood, random.sample(flood, len(flood))):
        for item in order:
            domain.announced(*item)
        domain.start_speaker('server')
        domain.check_all_known()
    for item in flood:
        domain.announced(*item)
    domain.check_all_known()
    assert len(domain.listeners['planner'].open) <= MAX_OPEN


def test_names_that_were_forgotten_do_not_come_back_by_recordings() -> None:
    """An answer of a run that ended is worth nothing, though its name makes room for others."""
    names = ('server', *(f'robot{n}' for n in range(MAX_BELIEVED)))
    domain = Domain(names)
    domain.start_listener('planner', 0.0)
    domain.start_speaker('server')
    old = list(domain.recorded)
    domain.start_speaker('server')  # takes its place
    for name in names[1:]:
        domain.start_speaker(name)
    assert 'server' not in domain.listeners['planner'].believed
    for item in old:
        if not isinstance(item, Question):
            domain.announced(*item)
    assert domain.taken['planner']['server'].run == domain.speakers['server'].run
    domain.speak('server')
    assert domain.taken['planner']['server'].sequence == 2


def test_a_recorded_question_is_answered_once() -> None:
    speaker, announced = said(Speaker(5), 'a')
    question = Question(9, 3, 5, announced.sequence)
    speaker, name, answer = asked(speaker, question)
    assert name == 'a' and answer == Said(5, 1, 9, 3)
    for other in (question, replace(question, number=2), replace(question, run=4),
                  replace(question, number=4, sequence=7)):
        speaker, _, answer = asked(speaker, other)
        assert answer is None


def in_vain(seconds: float) -> Iterator[object]:
    state, _, question = heard(Listener(1), 'a', Said(7, 1), 0.0)
    assert question
    now = 0.0
    while now < seconds:
        now += 0.1
        state, _, names = due(state, now)
        yield from names


def test_who_does_not_answer_is_reported_once() -> None:
    assert list(in_vain(600.0)) == ['a'] and IN_VAIN > 1
