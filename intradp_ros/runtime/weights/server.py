# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A device hands out weights: it answers what its peers ask for, on a thread of its own."""
from __future__ import annotations

from collections import Counter, deque, OrderedDict
import threading

from intradp_ros.blobs.fetch import OF_ONE
from intradp_ros.core.limits import MAX_PEERS
from intradp_ros.runtime.requests.worker_thread import Worker
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.runtime.weights.frames import (
    found_frame,
    held_frame,
    piece_chunks,
    StateWish,
    Wish,
)
from intradp_ros.runtime.weights.holdings import WeightHoldings
from intradp_ros.wire.frames import MalformedFrameError

#: Pieces of one peer that wait to be read, or to be sent: a little more than it asks for at once.
OF_PEER = 2 * OF_ONE


class WeightServer:
    """
    Answers with pieces of what is held.

    Anyone who asks for more than `OF_PEER` pieces at once is refused; what it asked for
    before the last so many is not sent any more.
    """

    def __init__(self, channel: PeerChannel, holdings: WeightHoldings) -> None:
        self._channel, self._holdings = channel, holdings
        self._waiting: Counter[str] = Counter()
        self._sent: OrderedDict[str, deque[tuple[int, int]]] = OrderedDict()
        self._lock = threading.Lock()
        self.nbytes = 0
        self._worker: Worker[Wish | StateWish] = Worker(
            self._answer, self._failed, OF_PEER * MAX_PEERS, f'weights-{channel.name}')

    def ask(self, wish: Wish | StateWish) -> None:
        """Let a wish wait for its turn; MalformedFrameError if its peer has too many."""
        with self._lock:
            if self._waiting[wish.peer] >= OF_PEER:
                raise MalformedFrameError('too many pieces are asked for at once', 'busy')
            self._waiting[wish.peer] += 1
        self._worker.put(wish)

    def close(self) -> None:
        """Answer nothing more."""
        self._worker.close()

    def _answer(self, wish: Wish | StateWish) -> None:
        with self._lock:
            self._waiting -= Counter((wish.peer,))  # forgets who has none
        if isinstance(wish, StateWish):
            found = self._holdings.state(wish.format, wish.name, wish.tag)
            self._channel.send(wish.peer, found_frame(wish, found))
            return
        if not wish.nbytes:
            self._channel.send(wish.peer, held_frame(wish, self._holdings.nbytes(wish.digest)))
            return
        data = self._holdings.find(wish.digest)
        if data is None or wish.offset + wish.nbytes > data.nbytes:
            self._channel.send(wish.peer, held_frame(wish, None))
            return
        sent = self._sent.setdefault(wish.peer, deque())
        self._sent.move_to_end(wish.peer)
        if len(self._sent) > MAX_PEERS:
            self._sent.popitem(last=False)
        if len(sent) >= OF_PEER:  # who does not take them must not fill the queue
            self._channel.abandon(*sent.popleft())
        sent.append((wish.session, wish.number))
        piece = data[wish.offset:wish.offset + wish.nbytes].cpu()
        for chunk in piece_chunks(wish, piece, self._channel.chunk_bytes(wish.peer)):
            self._channel.send(wish.peer, chunk)
        self.nbytes += wish.nbytes

    def _failed(self, error: Exception) -> None:
        """Leave it: the peer asks again, or another."""
