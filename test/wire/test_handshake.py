# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Two processes get to know each other; what was recorded proves nothing, floods wash nothing."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from intradp_ros.wire.handshake import (
    connection,
    due,
    EAGER,
    greeted,
    Greeting,
    Handshake,
    heard,
    left,
    LOST,
    SILENT,
    USUAL,
)


class Ends:
    """Processes under the names a and b; what they say reaches all of the other name at once."""

    def __init__(self) -> None:
        self.now, self.said = 0.0, []
        self.ends: dict[int, tuple[str, Handshake]] = {}

    def start(self, name: str, number: int) -> None:
        self.ends[number] = name, Handshake(number)

    def say(self, name: str, greeting: Greeting | None) -> None:
        """Let a greeting of some name reach all of the other, and what follows from it."""
        waiting, count = [(name, greeting)] if greeting else [], 0
        while waiting:
            name, greeting = waiting.pop(0)
            self.said.append((name, greeting))
            count += 1
            assert count < 50, 'greetings without end'
            for number, (other, state) in self.ends.items():
                if other != name:
                    state, answer = greeted(state, greeting, self.now)
                    self.ends[number] = other, state
                    waiting += [(other, answer)] if answer else []

    def go_on(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.1
            for number, (name, state) in list(self.ends.items()):
                state, greeting = due(state, self.now)
                self.ends[number] = name, state
                self.say(name, greeting)

    def connection(self, number: int) -> int:
        return connection(self.ends[number][1])

    def state(self, number: int) -> Handshake:
        return self.ends[number][1]


def met() -> Ends:
    ends = Ends()
    ends.start('a', 1)
    ends.start('b', 2)
    ends.go_on(0.3)
    assert ends.connection(1) == ends.connection(2) != 0
    return ends


def test_a_process_that_starts_anew_is_met_and_its_connection_is_another() -> None:
    ends = met()
    first = ends.connection(1)
    del ends.ends[2]
    ends.start('b', 3)
    ends.go_on(SILENT + 0.5)
    assert ends.connection(1) == ends.connection(3) not in (0, first)
    assert ends.state(1).doubled < 0 and ends.state(3).refused < ends.now - 0.2


def test_who_said_goodbye_makes_room_at_once() -> None:
    ends = met()
    ends.ends[1] = 'a', left(ends.state(1))
    del ends.ends[2]
    ends.start('b', 3)
    ends.go_on(0.3)
    assert ends.connection(1) == ends.connection(3) != 0


def test_of_two_the_first_stays_and_all_know() -> None:
    ends = met()
    first = ends.connection(1)
    ends.start('b', 3)
    ends.go_on(3.0)
    assert ends.connection(1) == ends.connection(2) == first and ends.connection(3) == 0
    assert ends.now - ends.state(1).doubled < 1.0 and ends.now - ends.state(3).refused < 1.0


@given(replays=st.lists(st.tuples(st.integers(0, 400), st.floats(0, 0.7)), max_size=60),
       restart=st.booleans())
@settings(max_examples=60)
def test_recordings_change_nothing(replays: list[tuple[int, float]], restart: bool) -> None:
    """Of this run and of those before, in any order: who is heard stays, and a new one is met."""
    ends = met()
    ends.go_on(1.0)
    if restart:  # of b; what its former process said may be replayed for ever
        del ends.ends[2]
        ends.start('b', 3)
    recorded, now = list(ends.said), 3 if restart else 2
    before = ends.now
    for index, seconds in replays:
        ends.say(*recorded[index % len(recorded)])
        ends.go_on(seconds)
        if restart and ends.now - before < SILENT + 1.0:
            continue
        assert ends.connection(1) == ends.connection(now) != 0
    ends.go_on(max(0.0, before + SILENT + 1.0 - ends.now))
    assert ends.connection(1) == ends.connection(now) != 0
    assert ends.state(1).peer == now and ends.state(1).doubled < 0


def test_a_flood_of_recordings_does_not_keep_another_out() -> None:
    ends = met()
    ends.go_on(1.0)
    recorded = list(ends.said)
    ends.ends.clear()
    ends.start('a', 4)
    ends.start('b', 5)
    for _ in range(20):
        for item in recorded * 5:
            ends.say(*item)
        ends.go_on(0.1)
    assert ends.connection(4) == ends.connection(5) != 0


def test_hearing_the_peer_distinguishes_two_only_after_a_while() -> None:
    ends = met()
    state = heard(ends.state(1), ends.now)
    assert state.doubled < 0


def test_whose_place_was_taken_comes_back_under_another_number_only() -> None:
    """It stood still, another came, and even when that one falls silent the number is dead."""
    ends = met()
    stood_still = ends.ends.pop(2)
    ends.start('b', 3)
    ends.go_on(SILENT + 0.5)
    assert ends.state(1).peer == 3
    del ends.ends[3]
    ends.ends[2] = stood_still
    ends.go_on(SILENT + 1.0)
    assert ends.state(1).peer == 3
    ends.go_on(LOST + SILENT)
    assert ends.state(2).own != 2 and ends.state(1).peer == ends.state(2).own
    assert ends.connection(1) == ends.connection(2) != 0


def test_a_peer_that_was_silent_for_long_is_met_anew_under_other_numbers() -> None:
    """Another may have come in its place: nothing that carries the former number is of use."""
    ends = met()
    first, away = ends.connection(1), ends.ends.pop(2)
    ends.go_on(LOST - 0.5)
    assert ends.connection(1) == first and ends.state(1).own == 1
    ends.go_on(1.0)
    assert ends.connection(1) == 0 and ends.state(1).own != 1
    ends.ends[2] = away
    ends.go_on(SILENT + 1.0)
    assert ends.connection(1) == ends.connection(2) not in (0, first)


def test_who_is_not_answered_greets_more_often() -> None:
    ends = met()
    ends.said.clear()
    ends.go_on(3.0)
    assert sum(name == 'a' for name, _ in ends.said) <= 2 * 3.0 / USUAL + 1  # and its answers
    del ends.ends[2]
    ends.go_on(SILENT)
    ends.said.clear()
    ends.go_on(3.0)
    assert len(ends.said) >= 3.0 / (EAGER + 0.1) - 1 > 3.0 / USUAL + 1  # at steps of 0.1 s
