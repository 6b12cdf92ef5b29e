# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Who may change a fleet's plan through the service `plan_model`.

ROS has no way to say who calls a service, but SROS2.  So where there is a key, what
changes something has to be sealed: the coordinator's answers carry a challenge, and the next
request a MAC over itself and that.  A challenge is good for one request.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
import os
import struct

from intradp_ros.core.shared_key import is_mac, mac_of, SharedKey
from intradp_ros.srv import PlanModel
from intradp_ros.wire.handshake import drawn
from intradp_ros.wire.rejections import Rejections

#: Seconds for which a challenge is good; seconds between two plans that anybody asks for.
GOOD, PAUSE = 30.0, 1.0


def sros2_enforces(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the middleware lets only those call that a policy names."""
    return (environment.get('ROS_SECURITY_ENABLE', '').lower() == 'true'
            and environment.get('ROS_SECURITY_STRATEGY', '') == 'Enforce')


class OperatorCheck:
    """Checks requests; `open_` takes everybody's, as does one without a key."""

    def __init__(self, key: SharedKey | None, open_: bool, warn: Callable[[str], None]) -> None:
        self._key, self._open, self._warn = key, open_, warn
        self._challenge, self._since, self._planned = 0, 0.0, float('-inf')
        self._rejections = Rejections()

    def challenge(self, now: float) -> int:
        """Return what the next request is to be sealed with; 0 without a key."""
        if self._key and (not self._challenge or now - self._since > GOOD / 2):
            self._challenge, self._since = drawn(), now
        return self._challenge

    def check(self, request: PlanModel.Request, now: float) -> None:
        """
        Check who asks.

        Raises
        ------
        ValueError
            If a stranger asks for a change, or anybody too often for plans that change nothing.

        """
        if self._key is None or self._open:
            return
        challenge, good = self._challenge, now - self._since <= GOOD
        if len(request.mac):
            if challenge and good and is_mac(request.mac, _mac(self._key, request, challenge)):
                self._challenge = 0
                return
        elif request.what == PlanModel.Request.TELL:
            if now - self._planned < PAUSE:
                raise ValueError(f'plans are computed once in {PAUSE:.0f} s: ask again')
            self._planned = now
            return
        if self._rejections.count('plan_model', now):
            self._warn('a request to plan_model that is not sealed with our key is refused')
        raise ValueError('the request is not sealed with the key of this fleet: use "intradp '
                         'fleet ask" with its key_file, or start the coordinator with '
                         'plan_service: open')


def sealed_request(key: SharedKey, request: PlanModel.Request, challenge: int,
                   ) -> PlanModel.Request:
    """Return a request with its seal; `challenge` is that of the last answer."""
    request.mac = array('B', _mac(key, request, challenge))
    return request


def _mac(key: SharedKey, request: PlanModel.Request, challenge: int) -> bytes:
    texts = [text.encode() for text in (request.qoe, *request.without)]
    head = struct.pack(f'<BQI{len(texts)}I', request.what, challenge, len(texts),
                       *map(len, texts))
    return mac_of(key.derived('PlanModel'), (head, *texts))
