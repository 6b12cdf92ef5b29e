# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A device's part in the exchange of blobs: what it may fetch, and whether it hands out any."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from intradp_ros.blobs.digests import is_digest
from intradp_ros.blobs.fetch_state import FetchTimes
from intradp_ros.blobs.store import BlobStore
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.runtime.weights.fetcher import Log, Wanted, WeightFetcher
from intradp_ros.runtime.weights.frames import (
    held_frame,
    read_state_wish,
    read_wish,
    StateWish,
    Wish,
)
from intradp_ros.runtime.weights.holdings import WeightHoldings
from intradp_ros.runtime.weights.server import WeightServer
from intradp_ros.runtime.weights.state import State
from intradp_ros.runtime.weights.state_finder import StateFinder
from intradp_ros.wire.frames import Control, ControlKind, Frame
from intradp_ros.wire.sanitise import quoted

if TYPE_CHECKING:
    from intradp_ros.runtime.models.model import SharedModel


@dataclass(frozen=True)
class WeightPolicy:
    """
    Weights are fetched into a `store`, without one never; of models among `only`, if it has any.

    A device that `serves` hands its weights, and the state of its roles, to anyone who asks.
    It takes at most `state_bytes` of other devices' state at a time.
    """

    store: BlobStore | None = None
    only: frozenset[str] = frozenset()
    serves: bool = False
    times: FetchTimes = FetchTimes()
    state_bytes: int = 1 << 30

    def refusal(self, digest: str) -> str:
        """Return why a model must not be fetched, '' if it may be."""
        if self.store is None:
            return 'this device fetches none'
        if digest and not is_digest(digest):
            return 'it is not named by a SHA-256'
        if self.only and digest not in self.only:
            return 'it is not among those that this device may fetch'
        return ''


class WeightExchange(WeightHoldings):
    """
    The blobs of this device: fetches what is lacking and hands out what is held, by its policy.

    Safe to call from several threads.
    """

    def __init__(self, channel: PeerChannel, models: Mapping[str, SharedModel],
                 policy: WeightPolicy, log: Log) -> None:
        super().__init__(models, policy.store)
        self._channel, self._policy = channel, policy
        self._server = WeightServer(channel, self) if policy.serves else None
        self._fetcher = WeightFetcher(channel, policy.store, log, policy.times)
        self._finder = StateFinder(channel, self._fetcher, policy.state_bytes)

    @property
    def served(self) -> int:
        """Bytes that were handed out."""
        return self._server.nbytes if self._server else 0

    def refusal(self, model: str) -> str:
        """Return why what belongs to a model must not be fetched, and what to do; '' if it may."""
        reason = self._policy.refusal(model)
        if not reason:
            return ''
        have = ', '.join(digest[:12] for digest in self.models) or 'none'
        return (f'{self._channel.name} has no model {quoted(model[:12])}, it has {have}: load the '
                'same model, weights and input shape everywhere, or let it be fetched '
                f'({reason})')

    def fetch(self, blobs: Mapping[str, int | None], peers: Collection[str],
              done: Callable[[str], None], needed: frozenset[str] = frozenset()) -> Wanted:
        """
        Fetch blobs into the store, after what is fetched now; return the wish, for `drop`.

        `done` is called on a thread of the fetcher with '', or with the reason why they are not
        to be had.  What is `needed` makes no room for them.
        """
        wanted = Wanted(dict(blobs), frozenset(peers) - {self._channel.name}, needed, done)
        if self._policy.store is None:
            done(self._policy.refusal(''))
        else:
            self._fetcher.want(wanted)
        return wanted

    def fetch_state(self, format_: str, wanted: Collection[tuple[str, int]],
                    peers: Collection[str], into: State, done: Callable[[str], None]) -> None:
        """
        Fetch tensors of other devices' state, by name and tag, into that of a role here.

        `done` is called on a thread of this exchange, as that of `fetch`.
        """
        self._finder.find(format_, wanted, frozenset(peers) - {self._channel.name}, into, done)

    def drop(self, wanted: Wanted) -> None:
        """Fetch it no more; its `done` is not called any more, unless it is at this moment."""
        self._fetcher.drop(wanted)

    def handle(self, peer: str, frame: Frame) -> None:
        """Take a frame about blobs; MalformedFrameError if it makes no sense."""
        if getattr(frame, 'kind', None) is ControlKind.FETCH:
            self._asked(peer, frame)  # type: ignore[arg-type]
        elif frame.session == self._finder.session:
            self._finder.handle(peer, frame)
        else:
            self._fetcher.handle(peer, frame)

    def close(self) -> None:
        """Stop."""
        self._finder.close()
        self._fetcher.close()
        if self._server:
            self._server.close()

    def _asked(self, peer: str, frame: Control) -> None:
        wish: Wish | StateWish = read_state_wish(peer, frame) if 'state' in frame.body \
            else read_wish(peer, frame)
        if self._server:
            self._server.ask(wish)
        else:
            self._channel.send(peer, held_frame(wish, None))
