# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A device's part in the exchange of blobs: what it may fetch, and whether it hands out any."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch

from intradp_ros.blobs.fetch_state import FetchTimes
from intradp_ros.blobs.store import BlobStore
from intradp_ros.graph.manifest import is_digest
from intradp_ros.runtime.model import SharedModel
from intradp_ros.runtime.peer_channel import PeerChannel
from intradp_ros.runtime.weights.fetcher import Log, Wanted, WeightFetcher
from intradp_ros.runtime.weights.frames import held_frame, read_wish
from intradp_ros.runtime.weights.holdings import WeightHoldings
from intradp_ros.runtime.weights.server import WeightServer
from intradp_ros.wire.frames import ControlKind, Frame, MalformedFrameError
from intradp_ros.wire.quoting import quoted


@dataclass(frozen=True)
class WeightPolicy:
    """
    Weights are fetched into a `store`, without one never; of models among `only`, if it has any.

    A device that `serves` hands its weights to whoever asks.
    """

    store: BlobStore | None = None
    only: frozenset[str] = frozenset()
    serves: bool = False
    times: FetchTimes = FetchTimes()

    def refusal(self, digest: str) -> str:
        """Return why a model must not be fetched, '' if it may be."""
        if self.store is None:
            return 'this device fetches none'
        if digest and not is_digest(digest):
            return 'it is not named by a SHA-256'
        if self.only and digest not in self.only:
            return 'it is not among those that this device may fetch'
        return ''


class WeightExchange:
    """
    The blobs of this device: fetches what is lacking and hands out what is held, by its policy.

    Safe to call from several threads.
    """

    def __init__(self, channel: PeerChannel, models: Mapping[str, SharedModel],
                 policy: WeightPolicy, log: Log) -> None:
        self._channel, self._models, self._policy = channel, models, policy
        self._holdings = WeightHoldings(models, policy.store)
        self._server = WeightServer(channel, self._holdings) if policy.serves else None
        self._fetcher = WeightFetcher(channel, policy.store, log, policy.times) \
            if policy.store else None

    @property
    def served(self) -> int:
        """Bytes that were handed out."""
        return self._server.nbytes if self._server else 0

    def refusal(self, model: str) -> str:
        """Return why what belongs to a model must not be fetched, and what to do; '' if it may."""
        reason = self._policy.refusal(model)
        if not reason:
            return ''
        have = ', '.join(digest[:12] for digest in self._models) or 'none'
        return (f'{self._channel.name} has no model {quoted(model[:12])}, it has {have}: load the '
                'same model, weights and input shape everywhere, or let it be fetched '
                f'({reason})')

    def nbytes(self, digest: str) -> int | None:
        """Return the bytes of a blob, None where it is not here."""
        return self._holdings.nbytes(digest)

    def find(self, digest: str) -> torch.Tensor | None:
        """Return a blob as a flat tensor of uint8, to be read only; None where it is not here."""
        return self._holdings.find(digest)

    def offer(self, data: torch.Tensor) -> str:
        """Hand out a tensor's bytes from memory until `withdraw`; return their SHA-256."""
        return self._holdings.offer(data)

    def withdraw(self, digest: str) -> None:
        """Hand out what was offered no more."""
        self._holdings.withdraw(digest)

    def fetch(self, blobs: Mapping[str, int | None], peers: Collection[str],
              done: Callable[[str], None], needed: frozenset[str] = frozenset()) -> Wanted:
        """
        Fetch blobs into the store, after what is fetched now; return the wish, for `drop`.

        `done` is called on a thread of the fetcher with '', or with the reason why they are not
        to be had.  What is `needed` makes no room for them.
        """
        wanted = Wanted(dict(blobs), frozenset(peers) - {self._channel.name}, needed, done)
        if self._fetcher is None:
            done(self._policy.refusal(''))
        else:
            self._fetcher.want(wanted)
        return wanted

    def drop(self, wanted: Wanted) -> None:
        """Fetch it no more; its `done` is not called any more, unless it is at this moment."""
        if self._fetcher:
            self._fetcher.drop(wanted)

    def handle(self, peer: str, frame: Frame) -> None:
        """Take a frame about blobs; MalformedFrameError if it makes no sense."""
        if getattr(frame, 'kind', None) is ControlKind.FETCH:
            wish = read_wish(peer, frame)  # type: ignore[arg-type]
            if self._server:
                self._server.ask(wish)
            else:
                self._channel.send(peer, held_frame(wish, None))
        elif self._fetcher:
            self._fetcher.handle(peer, frame)
        else:
            raise MalformedFrameError('nothing is fetched here', 'stale')

    def close(self) -> None:
        """Stop."""
        if self._fetcher:
            self._fetcher.close()
        if self._server:
            self._server.close()
