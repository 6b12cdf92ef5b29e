# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A device's part in the exchange of weights: what it may fetch, and whether it hands out any."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from intradp_ros.blobs.fetch_state import FetchTimes
from intradp_ros.blobs.store import WeightStore
from intradp_ros.graph.manifest import is_digest
from intradp_ros.runtime.model import SharedModel
from intradp_ros.runtime.peer_channel import PeerChannel
from intradp_ros.runtime.pipeline.stage_worker import Log
from intradp_ros.runtime.weights.fetched_models import FetchedModels
from intradp_ros.runtime.weights.fetcher import Wanted, WeightFetcher
from intradp_ros.runtime.weights.frames import held_frame, read_wish
from intradp_ros.runtime.weights.holdings import WeightHoldings
from intradp_ros.runtime.weights.server import WeightServer
from intradp_ros.schedule.stage_plan import PlanError, StagePlan
from intradp_ros.split.calls.kernel_device import HOST, KernelDevice
from intradp_ros.wire.frames import ControlKind, Frame, MalformedFrameError
from intradp_ros.wire.quoting import quoted


@dataclass(frozen=True)
class WeightPolicy:
    """
    Weights are fetched into a `store`, without one never; of models among `only`, if it has any.

    A device that `serves` hands its weights to whoever asks.  What is fetched runs on `device`.
    """

    store: WeightStore | None = None
    only: frozenset[str] = frozenset()
    serves: bool = False
    device: KernelDevice = HOST
    times: FetchTimes = FetchTimes()

    def refusal(self, digest: str) -> str:
        """Return why a model must not be fetched, '' if it may be."""
        if not is_digest(digest):
            return 'it is not named by a SHA-256'
        if self.only and digest not in self.only:
            return 'it is not among those that this device may fetch'
        return ''


class WeightExchange:
    """Fetches what plans need and hands out what is held, as far as the policy lets it."""

    def __init__(self, channel: PeerChannel, models: Mapping[str, SharedModel],
                 policy: WeightPolicy, log: Log) -> None:
        self._channel, self._models, self._policy = channel, models, policy
        holdings = WeightHoldings(models, policy.store)
        self._server = WeightServer(channel, holdings) if policy.serves else None
        self._fetcher = WeightFetcher(channel, policy.store, log, policy.times) \
            if policy.store else None
        self._fetched = FetchedModels(channel.name, holdings, policy.device)

    @property
    def served(self) -> int:
        """Bytes of weights that were handed out."""
        return self._server.nbytes if self._server else 0

    def model(self, plan: StagePlan, done: Callable[[str], None]) -> SharedModel | None:
        """
        Return the model of a plan, with the weights that are needed here.

        Where some are not here they are fetched, in the background; None is returned, and `done`
        is called later: with '', so that this may be asked anew, or with the reason
        why they are not to be had.

        Raises
        ------
        PlanError
            If the model must not be fetched, or the plan does not fit it.
        GraphFormatError
            If what is told of the model describes no valid graph.

        """
        if self._fetcher is None or (refusal := self._policy.refusal(plan.digest)):
            have = ', '.join(digest[:12] for digest in self._models) or 'none'
            raise PlanError(
                f'{self._channel.name} has no model {quoted(plan.digest[:12])}, it has {have}: '
                'load the same model, weights and input shape everywhere, or let it be fetched '
                f'({refusal if self._fetcher else "this device fetches none"})')
        lacking = self._fetched.lacking(plan)
        if not lacking.blobs and (model := self._fetched.model(plan)):
            return model
        peers = frozenset((plan.source, *plan.devices)) - {self._channel.name}
        self._fetcher.want(Wanted(lacking.blobs, peers, lacking.needed, done))
        return None

    def handle(self, peer: str, frame: Frame) -> None:
        """Take a frame about weights; MalformedFrameError if it makes no sense."""
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
