# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
State of other devices, found by name and tag: who has it says its digest, then it is a blob.

So it comes in pieces, from anyone who has it, and goes on where a peer dies, as all blobs do.
What a peer says the digest is, is believed: only devices with the fleet's key are heard.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
import threading
import time

from intradp_ros.runtime.requests.worker_thread import Worker
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.runtime.weights.fetcher import Wanted, WeightFetcher
from intradp_ros.runtime.weights.frames import new_session, read_found, state_frame, StateFound
from intradp_ros.runtime.weights.state import State
from intradp_ros.wire.frames import Control, Frame, MalformedFrameError

#: Seconds after which peers are asked again; after which nobody has it.
AGAIN, HOPELESS = 0.3, 10.0
_WAITING = 16


@dataclass
class _Search:
    """Tensors that are looked for, by the number under which they are asked for."""

    format: str  # noqa: A003
    wanted: dict[int, tuple[str, int]]
    peers: frozenset[str]
    into: State
    done: Callable[[str], None]
    found: dict[int, StateFound] = field(default_factory=dict)
    lack: set[tuple[int, str]] = field(default_factory=set)

    def reason(self) -> str:
        """Return why it is hopeless, '' if it is not: nobody has one of them."""
        for number, (name, tag) in self.wanted.items():
            if number not in self.found and all((number, peer) in self.lack
                                                for peer in self.peers):
                return f'state {name!r} of tag {tag} is not to be had of ' \
                    f'{", ".join(sorted(self.peers)) or "nobody"}'
        return ''


class StateFinder:
    """Looks for one set of tensors after another, on a thread of its own."""

    def __init__(self, channel: PeerChannel, fetcher: WeightFetcher, most: int) -> None:
        self.session = new_session()
        self._channel, self._fetcher, self._most = channel, fetcher, most
        self._number = 0
        self._search: _Search | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._worker: Worker[_Search] | None = None

    def find(self, format_: str, wanted: Collection[tuple[str, int]], peers: frozenset[str],
             into: State, done: Callable[[str], None]) -> None:
        """Fetch tensors into `into`; `done` is called with '' or a reason."""
        with self._changed:
            numbers = range(self._number + 1, self._number + 1 + len(wanted))
            self._number += len(wanted)
            if self._worker is None:
                self._worker = Worker(self._run, lambda error: None, _WAITING,
                                      f'state-{self._channel.name}')
        self._worker.put(_Search(format_, dict(zip(numbers, sorted(wanted))), peers, into, done))

    def handle(self, peer: str, frame: Frame) -> None:
        """Take a peer's answer; MalformedFrameError if nobody asked for it."""
        with self._changed:
            search = self._search
            if search is None or peer not in search.peers or not isinstance(frame, Control) \
                    or frame.inference not in search.wanted:
                raise MalformedFrameError(f'state {frame.inference} is not awaited', 'stale')
            found = read_found(frame)
            if found is None:
                search.lack.add((frame.inference, peer))
            else:
                search.found.setdefault(frame.inference, found)
            self._changed.notify_all()

    def close(self) -> None:
        """Stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._worker:
            self._worker.close()

    def _run(self, search: _Search) -> None:
        with self._changed:
            self._search = search
        reason = self._locate(search)
        with self._changed:
            self._search = None
        if reason:
            search.done(reason)
            return
        blobs: dict[str, int | None] = {
            found.digest: found.nbytes for found in search.found.values() if found.nbytes}
        wanted = Wanted(blobs, search.peers, frozenset(blobs),
                        lambda reason: self._came(search, wanted, reason), self._most)
        self._fetcher.want(wanted)

    def _locate(self, search: _Search) -> str:
        end = time.monotonic() + HOPELESS
        while not self._closed and time.monotonic() < end:
            for number, (name, tag) in search.wanted.items():
                for peer in search.peers if number not in search.found else ():
                    if (number, peer) not in search.lack:
                        self._channel.send(peer, state_frame(
                            self.session, number, search.format, name, tag))
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(search.reason())
                                       or len(search.found) == len(search.wanted), AGAIN)
                if len(search.found) == len(search.wanted):
                    return ''
                if reason := search.reason():
                    return reason
        return 'the device stops' if self._closed else \
            f'nobody of {", ".join(sorted(search.peers))} answered for {HOPELESS:g} s'

    def _came(self, search: _Search, wanted: Wanted, reason: str) -> None:
        for number, (name, tag) in search.wanted.items() if not reason else ():
            found = search.found[number]
            search.into.put(name, tag, found.filled(wanted.found.get(found.digest)))
        search.done(reason)
