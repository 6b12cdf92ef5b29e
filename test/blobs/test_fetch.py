# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whatever peers do, nothing wrong is taken; and all is there while one honest peer has it."""
from __future__ import annotations

from dataclasses import dataclass, field
import hashlib
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from intradp_ros.blobs.fetch import begin, is_done, OF_ALL, OF_ONE, PIECE, step, turn_to
from intradp_ros.blobs.fetch_state import (
    Ask,
    Availability,
    Came,
    Check,
    Checked,
    Drop,
    Event,
    Failed,
    Fetch,
    Heard,
    Late,
    Request,
    Tick,
)

MOST = 1 << 30


@dataclass
class Giver:
    """A peer: what it has, whether it alters what it gives, loses it, and when it is there."""

    has: frozenset[str]
    lies: bool = False
    loss: float = 0.0
    there: tuple[float, float] = (0.0, float('inf'))
    size_lies: bool = False
    slow: float = 1.0


@dataclass(repr=False)
class World:
    """Peers, and a device that fetches; bytes stand for themselves, pieces for PIECE bytes."""

    blobs: dict[str, bytes]
    givers: dict[str, Giver]
    fetch: Fetch
    luck: random.Random
    now: float = 0.0
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    right: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[float, str]] = field(default_factory=list)
    made: dict[int, str] = field(default_factory=dict)
    failed: str = ''
    waiting: list[tuple[float, Event, bytes]] = field(default_factory=list)

    def happen(self, event: Event) -> None:
        self.fetch, actions = step(self.fetch, event, self.now)
        self.check()
        for action in actions:
            if isinstance(action, Ask):
                self.ask(action.number, action.request)
            elif isinstance(action, Check):
                self.compare(action.digest)
            elif isinstance(action, Drop):
                self.parts.pop(action.digest, None)
            else:
                assert isinstance(action, Failed)
                self.failed = action.reason

    def check(self) -> None:
        """See that there are not more requests than may be, none of them twice."""
        requests = list(self.fetch.requests.values())
        assert len(requests) <= OF_ALL
        places = [(r.digest, r.offset) for r in requests]
        assert len(set(places)) == len(places)
        for name, peer in self.fetch.peers.items():
            mine = [r for r in requests if r.peer == name]
            assert len(mine) <= OF_ONE
            assert not (peer.lied and mine)

    def ask(self, number: int, request: Request) -> None:
        """Let the peer answer some time later, or never."""
        self.asked.append((self.now, request.peer))
        self.made[number] = request.peer
        giver = self.givers[request.peer]
        first, last = giver.there
        if not first <= self.now < last or self.luck.random() < giver.loss:
            return
        when = self.now + giver.slow * self.luck.choice((0.01, 0.1, 0.4, 1.5))
        if request.digest not in giver.has:
            self.waiting.append((when, Availability(request.peer, number, None), b''))
            return
        data = self.blobs[request.digest]
        if not request.nbytes:
            size = len(data) + (1 if giver.size_lies else 0)
            self.waiting.append((when, Availability(request.peer, number, size), b''))
            return
        assert 0 < request.nbytes <= PIECE
        piece = data[request.offset:request.offset + request.nbytes]
        if giver.lies:
            piece = bytes(len(piece))
        piece = piece.ljust(request.nbytes, b'\0')
        self.waiting.append((when - 0.005, Heard(number), b''))
        self.waiting.append((when, Came(number), piece))

    def compare(self, digest: str) -> None:
        pieces = self.parts.pop(digest)
        data = b''.join(pieces[offset] for offset in sorted(pieces))
        right = hashlib.sha256(data).hexdigest() == digest
        if right:
            self.right[digest] = data
        self.happen(Checked(digest, right))

    def advance(self, seconds: float = 0.1) -> None:
        self.now += seconds
        due = sorted((item for item in self.waiting if item[0] <= self.now), key=lambda i: i[0])
        self.waiting = [item for item in self.waiting if item[0] > self.now]
        for _, event, piece in due:
            if isinstance(event, Came):
                request = self.fetch.requests.get(event.number)
                if request is None:
                    self.happen(Late(self.made[event.number]))
                    continue
                self.parts.setdefault(request.digest, {})[request.offset] = piece
            self.happen(event)
        self.happen(Tick())

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end and not self.failed and not is_done(self.fetch):
            self.advance()


def blob(number: int, nbytes: int) -> bytes:
    return random.Random(number).randbytes(nbytes)


def world(sizes: list[int], givers: dict[str, Giver] | None = None, seed: int = 0,
          unknown: frozenset[int] = frozenset()) -> World:
    """Return a device that lacks blobs of these sizes; without givers, one honest one has all."""
    data = [blob(k, size) for k, size in enumerate(sizes)]
    named = {hashlib.sha256(item).hexdigest(): item for item in data}
    digests = list(named)
    givers = givers or {'a': Giver(frozenset(digests))}
    wanted = {digest: None if k in unknown else len(named[digest])
              for k, digest in enumerate(digests)}
    return World(named, givers, begin(wanted, frozenset(givers), MOST, 0.0), random.Random(seed))


SIZES = st.lists(st.sampled_from([1, 1000, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7]),
                 min_size=1, max_size=8)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw peers of which one, 'z', is honest, has all, and is there in the end."""
    made = world(draw(SIZES), seed=draw(st.integers(0, 10**6)),
                 unknown=draw(st.frozensets(st.integers(0, 7))))
    digests = sorted(made.blobs)
    loss, slow = draw(st.sampled_from([(0.0, 1.0), (0.2, 1.0), (0.0, 4.0)]))
    givers = {'z': Giver(frozenset(digests), loss=loss, slow=slow,
                         there=(draw(st.sampled_from([0.0, 0.0, 5.0])), float('inf')))}
    for name in draw(st.sampled_from(['', 'a', 'ab', 'abc'])):
        first = draw(st.sampled_from([0.0, 1.0]))
        givers[name] = Giver(
            draw(st.frozensets(st.sampled_from(digests))), draw(st.booleans()),
            draw(st.sampled_from([0.0, 0.3, 1.0])),
            (first, first + draw(st.sampled_from([0.3, 2.0, 1e9]))), draw(st.booleans()))
    made.givers = givers
    made.fetch = begin({digest: b.nbytes for digest, b in made.fetch.blobs.items()},
                       frozenset(givers), MOST, 0.0)
    return made


@given(made=worlds())
@settings(max_examples=100)
def test_one_honest_peer_is_enough_whatever_the_others_do(made: World) -> None:
    made.run(600.0)
    assert not made.failed, made.failed
    assert is_done(made.fetch)
    assert made.right == made.blobs
    liars = {name for name, giver in made.givers.items() if giver.lies or giver.size_lies}
    assert {name for name, peer in made.fetch.peers.items() if peer.lied} <= liars


@given(made=worlds(), cut=st.floats(0.0, 6.0))
@settings(max_examples=60)
def test_without_an_honest_peer_it_ends_and_takes_nothing_wrong(made: World, cut: float) -> None:
    made.givers['z'].there = (0.0, cut)
    made.run(900.0)
    assert made.failed or is_done(made.fetch)
    assert all(hashlib.sha256(data).hexdigest() == digest for digest, data in made.right.items())


@given(made=worlds(), after=st.integers(0, 30), index=st.integers(0, 7))
@settings(max_examples=60)
def test_another_want_keeps_what_came_and_drops_the_rest(made: World, after: int, index: int,
                                                         ) -> None:
    for _ in range(after):
        made.advance()
    keep = sorted(made.blobs)[index % len(made.blobs)]
    had = made.fetch.blobs.get(keep)
    sizes = {keep: None if had and had.unknown else len(made.blobs[keep])}
    made.fetch, made.failed = turn_to(made.fetch, sizes, frozenset('z'), made.now), ''
    assert had is None or made.fetch.blobs[keep] == had
    made.right.pop(keep, None)
    made.run(600.0)
    assert made.right[keep] == made.blobs[keep]


def test_another_peer_goes_on_where_one_died() -> None:
    made = world([40 * PIECE])
    (digest,) = made.blobs
    made.givers = {'a': Giver(frozenset((digest,)), there=(0.0, 1.0)),
                   'b': Giver(frozenset((digest,)), there=(1.0, float('inf')))}
    made.fetch = begin({digest: len(made.blobs[digest])}, frozenset('ab'), MOST, 0.0)
    made.run(1.0)
    before = made.fetch.blobs[digest].got
    assert 0 < before < 40 * PIECE
    asked = len(made.asked)
    made.run(100.0)
    assert made.right == made.blobs
    again = [peer for _, peer in made.asked[asked:] if peer == 'b']
    assert len(again) <= 40 - before // PIECE + OF_ALL


def test_a_liar_is_asked_nothing_more() -> None:
    made = world([PIECE] * 30)
    made.givers = {'a': Giver(frozenset(made.blobs), lies=True), 'b': Giver(frozenset(made.blobs))}
    made.fetch = begin(dict.fromkeys(made.blobs, PIECE), frozenset('ab'), MOST, 0.0)
    made.run(100.0)
    assert made.right == made.blobs
    assert made.fetch.peers['a'].lied and not made.fetch.peers['b'].lied
    assert sum(peer == 'a' for _, peer in made.asked) <= 2 * OF_ONE


def test_a_size_above_the_limit_is_refused_before_anything_is_asked() -> None:
    made = world([1000], unknown=frozenset((0,)))
    made.fetch = begin(dict.fromkeys(made.blobs), frozenset('a'), 999, 0.0)
    made.run(100.0)
    assert 'not to be had' in made.failed and not made.parts


def test_a_peer_that_sends_a_little_now_and_then_does_not_hold_up_the_fetch_for_ever() -> None:
    made = world([PIECE])
    made.givers['b'] = Giver(frozenset())
    (digest,) = made.blobs
    made.givers['a'].there = (0.0, 0.0)
    made.happen(Tick())
    ends = []
    while made.now < 200.0 and not made.failed:
        for number in tuple(made.fetch.requests):
            made.happen(Heard(number))
        made.advance(0.5)
        ends.append(made.now)
    assert made.failed and ends[-1] < 100.0
