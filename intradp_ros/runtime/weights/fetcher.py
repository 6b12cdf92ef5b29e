# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A device fetches blobs into its store, on a thread of its own."""
from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
import queue
import threading
import time

import torch

from intradp_ros.blobs.fetch import begin, is_done, OF_ALL, step, turn_to
from intradp_ros.blobs.fetch_state import (
    Action,
    Ask,
    Availability,
    Came,
    Check,
    Checked,
    Drop,
    Event,
    Failed,
    FetchTimes,
    Heard,
    Late,
    Tick,
)
from intradp_ros.blobs.memory import MemoryPart
from intradp_ros.blobs.store import BlobPart, BlobStore, StoreFullError
from intradp_ros.core.limits import MAX_MODEL_TEXT
from intradp_ros.core.steady import Steady
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.runtime.weights.frames import expected_piece, fetch_frame, new_session, read_held
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.frames import Chunk, Control, Frame, MalformedFrameError
from intradp_ros.wire.sanitise import quoted

Log = Callable[[str], None]
_TICK = 0.1


@dataclass(frozen=True, eq=False)
class Wanted:
    """
    Blobs by digest, with their bytes where these are known, and who may have them.

    What is to `keep` makes no room for them.  `done` is called with '', or with the reason why
    they are not to be had.  Without `memory` they go to the store; with it, at most so many bytes
    are fetched into memory, and are `found` when it is done.
    """

    blobs: Mapping[str, int | None]
    peers: frozenset[str]
    keep: frozenset[str]
    done: Callable[[str], None]
    memory: int = 0
    found: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Dropped:
    """A wish that is fetched no more."""

    wanted: Wanted


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece that came whole."""

    number: int
    data: torch.Tensor


class WeightFetcher:
    """
    Carries what `blobs/fetch.py` decides.

    Wishes are fetched one after another, in their order.  When one ends or is dropped the next
    goes on with what came so far of the same blobs.  `handle` may be called by several threads.
    """

    def __init__(self, channel: PeerChannel, store: BlobStore | None, log: Log,
                 times: FetchTimes = FetchTimes()) -> None:
        self._channel, self._store, self._log, self._times = channel, store, log, times
        self._session = new_session()
        self._wanted: Wanted | None = None
        self._next: deque[Wanted] = deque()
        self._in_memory = False
        self._fetch = begin({}, frozenset(), MAX_MODEL_TEXT, 0.0)
        self._parts: dict[str, BlobPart | MemoryPart] = {}
        self._given: Counter[str] = Counter()
        self._reassembler = Reassembler(self._expected, OF_ALL)
        self._queue: queue.SimpleQueue[
            Wanted | _Dropped | _Piece | Event | None] = queue.SimpleQueue()
        self._steady = Steady('fetching', log)
        self._thread = threading.Thread(target=self._run, name=f'fetch-{channel.name}',
                                        daemon=True)
        self._thread.start()

    def want(self, wanted: Wanted) -> None:
        """Fetch some blobs, after those that are wanted already."""
        self._queue.put(wanted)

    def drop(self, wanted: Wanted) -> None:
        """Fetch what was wanted no more; `done` is not called."""
        self._queue.put(_Dropped(wanted))

    def handle(self, peer: str, frame: Frame) -> None:
        """Take what a peer says or sends; MalformedFrameError if nobody asked for it."""
        request = self._fetch.requests.get(frame.inference)
        if frame.session != self._session or request is None or request.peer != peer:
            if frame.session == self._session:
                self._queue.put(Late(peer))
            raise MalformedFrameError(f'piece {frame.inference} is not awaited', 'stale')
        if isinstance(frame, Control):
            self._queue.put(Availability(peer, frame.inference, read_held(frame)))
            return
        data = self._reassembler.add(frame)
        self._queue.put(Heard(frame.inference) if data is None else
                        _Piece(frame.inference, data))

    def close(self) -> None:
        """Stop; what came of unfinished blobs is dropped."""
        self._queue.put(None)
        self._thread.join()

    def _expected(self, chunk: Chunk) -> ExpectedTransfer | None:
        request = self._fetch.requests.get(chunk.inference)
        return expected_piece(request.nbytes) if request and request.nbytes else None

    def _run(self) -> None:
        ticked = 0.0
        while True:
            try:
                item = self._queue.get(timeout=_TICK if self._wanted else None)
            except queue.Empty:
                item = Tick()
            if item is None:
                break
            self._steady.do(partial(self._take_or_fail, item), None)
            if self._wanted and time.monotonic() - ticked >= _TICK:
                ticked = time.monotonic()
                self._steady.do(partial(self._take_or_fail, Tick()), None)
        self._clear()

    def _take_or_fail(self, item: Wanted | _Dropped | _Piece | Event) -> None:
        try:
            self._take(item)
        except Exception as error:  # noqa: BLE001 - it ends the wish at hand, and nothing else
            cause = 'cannot store what is fetched: ' if isinstance(
                error, OSError | StoreFullError) else f'{type(error).__name__}: '
            self._steady.do(partial(self._end, cause + quoted(error)), None)

    def _take(self, item: Wanted | _Dropped | _Piece | Event) -> None:
        if isinstance(item, Wanted):
            self._next.append(item)
            self._begin_next()
        elif isinstance(item, _Dropped):
            if item.wanted is self._wanted:
                self._wanted = None
                self._begin_next()
            elif item.wanted in self._next:
                self._next.remove(item.wanted)
        elif self._wanted is None:
            pass
        elif isinstance(item, _Piece):
            self._store_piece(self._wanted, item)
        else:
            self._happen(item)

    def _begin_next(self) -> None:
        """Begin the next wish if there is none now; clear up where none is left."""
        while self._wanted is None and self._next:
            self._begin(self._next.popleft())
        if self._wanted is None:
            self._clear()

    def _begin(self, wanted: Wanted) -> None:
        self._wanted = wanted
        if self._in_memory != bool(wanted.memory):
            self._clear()  # what came goes elsewhere
        self._in_memory = bool(wanted.memory)
        lacking = {digest: nbytes for digest, nbytes in wanted.blobs.items()
                   if wanted.memory or self._stored(digest) is None}  # of an earlier wish, too
        total = sum(nbytes or 0 for nbytes in lacking.values())
        limit = wanted.memory or (self._store.limit if self._store else 0)
        if total > limit:
            self._end(f'{total} bytes are needed, the store may have {limit} (store_mb)'
                      if not wanted.memory else f'{total} bytes are needed, memory for {limit}')
            return
        if lacking and self._store and not wanted.memory:
            self._store.check_room(total)
        self._fetch = turn_to(self._fetch, lacking, wanted.peers, time.monotonic())
        for digest in set(self._parts) - set(lacking):
            self._parts.pop(digest).drop()
        self._happen(Tick())

    def _store_piece(self, wanted: Wanted, piece: _Piece) -> None:
        request = self._fetch.requests.get(piece.number)
        blob = self._fetch.blobs.get(request.digest) if request else None
        if request is None or blob is None or blob.nbytes is None:
            return
        part = self._parts.get(request.digest)
        if part is None:
            part = self._parts[request.digest] = self._part(wanted, request.digest, blob.nbytes)
        part.write(request.offset, piece.data)
        self._given[request.peer] += request.nbytes
        self._happen(Came(piece.number))

    def _stored(self, digest: str) -> int | None:
        return self._store.nbytes(digest) if self._store else None

    def _part(self, wanted: Wanted, digest: str, nbytes: int) -> BlobPart | MemoryPart:
        if not wanted.memory and self._store:
            return self._store.part(digest, nbytes, wanted.keep | set(wanted.blobs))
        return MemoryPart(digest, nbytes)

    def _happen(self, event: Event) -> None:
        """Take a step, and do what it says."""
        before, wanted = self._fetch, self._wanted
        self._fetch, actions = step(before, event, time.monotonic(), self._times)
        for number in set(before.requests) - set(self._fetch.requests):
            self._reassembler.drop(number)
        for name, peer in self._fetch.peers.items():
            if peer.lied and not before.peers[name].lied:
                self._log(f'{quoted(name)} sent something else than the weights that were asked '
                          'for: it is asked for no more')
        for action in actions:
            self._act(action)
            if self._wanted is not wanted:
                return  # it has ended
        if wanted and is_done(self._fetch):
            self._end('')

    def _act(self, action: Action) -> None:
        """Do what a step says."""
        if isinstance(action, Failed):
            self._end(action.reason)
        elif isinstance(action, Ask):
            self._channel.send(action.request.peer, fetch_frame(
                self._session, action.number, action.request))
        elif isinstance(action, Check):
            part = self._parts.pop(action.digest)
            right = part.finish()
            if right and self._wanted and isinstance(part, MemoryPart):
                self._wanted.found[action.digest] = part.data
            self._happen(Checked(action.digest, right))
        elif isinstance(action, Drop) and action.digest in self._parts:
            self._parts.pop(action.digest).drop()

    def _end(self, reason: str) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        givers = ', '.join(f'{nbytes} of {quoted(peer)}' for peer, nbytes in self._given.items())
        self._log(f'weights are not to be had: {reason}' if reason else
                  f'{len(wanted.blobs)} blobs fetched; bytes: {givers}')
        self._given.clear()
        wanted.done(reason)
        self._begin_next()

    def _clear(self) -> None:
        """Forget what was asked for; liars stay known."""
        for part in self._parts.values():
            part.drop()
        self._parts.clear()
        self._given.clear()
        for number in self._fetch.requests:
            self._reassembler.drop(number)
        self._fetch = turn_to(self._fetch, {}, frozenset(), time.monotonic())


