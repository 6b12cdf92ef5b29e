# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How two processes get to know each other, so that recordings are worth nothing.

A state machine over (event, time).  Each process draws a number when it starts, and challenges
as it goes on.  A greeting that answers a recent challenge, for the first time, was made
just now by a process that runs; all others, which anybody may have recorded, are only
answered.  Two that have answered each other are connected: the number of their connection
follows from both of theirs, and everything that they send carries it.  No clock is compared with
another's.

A process that comes under the same name takes the place of the one before when that was silent
for `SILENT`.  While both speak the first one stays, and both are informed of it.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
import hashlib
import math
import secrets

#: Seconds between greetings: until the other answers, and afterwards.
EAGER, USUAL = 0.2, 0.5
#: Seconds of silence after which another process may take a name.
SILENT = 1.2
#: Seconds of silence after which a process is met anew, under another number: if another came in
#: its place meanwhile, the former number is never heard again.
LOST = 10.0
#: Seconds for which a challenge may be answered, and a conflict counts.
RECENT = 3.0
#: Seconds after which a new challenge is drawn: greetings in between repeat the last, so that a
#: flood of recordings does not wash away what the peer is about to answer.
_NEW = 0.2
#: Challenges and answers that are remembered, and processes whose place was taken.
_CHALLENGES, _ANSWERS, _RETIRED = 16, 64, 64
_BITS = 64


@dataclass(frozen=True, slots=True)
class Greeting:
    """
    What a process says to get to know another.

    `number` is its own, `challenge` is to be answered, `answer` is the last challenge that it
    received (0: none).  `taken` says that it hears another process under the receiver's name.
    """

    number: int
    challenge: int
    answer: int = 0
    taken: bool = False


@dataclass(frozen=True)
class Handshake:
    """
    What a process knows of another.

    `peer` is the number of the one that is heard (0: none), last at `heard`;
    `received` is its last challenge.  `challenges` are the own ones with their times, `answered`
    those that came back, with by whom, `replied` challenges of others with the own that went
    with the reply.  `rival` is another that proved to run under the peer's
    name, from `appeared` to `claimed`; `doubled` is when both were last known to run.
    `refused` is when the peer last said that it hears another process of this one's name.
    `retired` are processes whose place was taken: they never come back.
    """

    own: int
    peer: int = 0
    heard: float = -math.inf
    received: int = 0
    challenges: tuple[tuple[int, float], ...] = ()
    answered: tuple[tuple[int, int], ...] = ()
    replied: tuple[tuple[int, int], ...] = ()
    greeted: float = -math.inf
    retired: tuple[int, ...] = ()
    rival: int = 0
    appeared: float = -math.inf
    claimed: float = -math.inf
    doubled: float = -math.inf
    refused: float = -math.inf


Result = tuple[Handshake, Greeting | None]


def drawn() -> int:
    """Return a random number of 64 bits that is not 0."""
    return secrets.randbits(_BITS) or 1


def connection(state: Handshake) -> int:
    """Return the number of the connection, the same at both ends; 0 without one."""
    if not state.peer:
        return 0
    ends = b''.join(number.to_bytes(8, 'big') for number in sorted((state.own, state.peer)))
    return int.from_bytes(hashlib.blake2s(ends, digest_size=8).digest(), 'big') or 1


def due(state: Handshake, now: float) -> Result:
    """Let time go on; return what to say, if it is time."""
    if state.peer and now - state.heard > LOST:
        state = Handshake(drawn(), greeted=state.greeted, retired=state.retired)
    lately = state.peer and now - state.heard <= SILENT
    if now - state.greeted < (USUAL if lately else EAGER):
        return state, None
    return _greet(replace(state, greeted=now), state.received, now)


def greeted(state: Handshake, greeting: Greeting, now: float) -> Result:
    """Take a greeting whose seal is right; return what to answer at once."""
    number, answer = greeting.number, (greeting.answer, greeting.number)
    if number in (state.own, *state.retired):
        return state, None
    taken = number != state.peer != 0 and now - state.heard <= SILENT
    if answer in state.answered or not any(
            challenge == greeting.answer and now - since <= RECENT
            for challenge, since in state.challenges):
        state, reply = _greet(state, greeting.challenge, now, taken)
        pair = greeting.challenge, reply.challenge
        if pair in state.replied:  # else two would answer each other without end
            return state, None
        return replace(state, replied=(*state.replied, pair)[-_ANSWERS:]), reply
    state = replace(state, answered=(*state.answered, answer)[-_ANSWERS:])
    if number == state.peer and greeting.taken:  # it came to hear another under this name
        return replace(state, peer=0, received=greeting.challenge, refused=now), None
    if number == state.peer:
        return replace(heard(state, now), received=greeting.challenge), None
    if taken:
        again = number == state.rival and now - state.claimed <= RECENT
        return _greet(replace(state, rival=number, claimed=now,
                              appeared=state.appeared if again else now),
                      greeting.challenge, now, taken)
    if greeting.taken:  # it hears another under this name; the next greeting asks again
        return replace(state, received=greeting.challenge, refused=now), None
    return _greet(replace(
        state, peer=number, heard=now, received=greeting.challenge, rival=0, doubled=-math.inf,
        retired=(*state.retired, state.peer)[-_RETIRED:], refused=-math.inf),
        greeting.challenge, now)


def heard(state: Handshake, now: float) -> Handshake:
    """Hear something of the connection."""
    # What was on its way when the rival appeared does not show that both run.
    both = now - state.appeared > USUAL and now - state.claimed <= RECENT
    return replace(state, heard=now, doubled=now if state.rival and both else state.doubled)


def left(state: Handshake) -> Handshake:
    """Hear that the peer leaves: another may take its name at once."""
    return replace(state, heard=-math.inf)


def _greet(state: Handshake, answer: int, now: float, taken: bool = False,
           ) -> tuple[Handshake, Greeting]:
    if not state.challenges or now - state.challenges[-1][1] >= _NEW:
        state = replace(state, challenges=(*state.challenges, (drawn(), now))[-_CHALLENGES:])
    return state, Greeting(state.own, state.challenges[-1][0], answer, taken)
