# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A worker's ways to its trainer and to other devices; with a key all of them are sealed."""
from __future__ import annotations

from collections.abc import Callable, Mapping
import hmac
import time
from typing import Any

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.systems.training.run.meeting import Meeting, MeetingStore, Place
from intradp_ros.systems.training.run.round_groups import Ends
from intradp_ros.systems.training.run.tunnels import (
    listening_port,
    loopback_of,
    shut_door,
    Tunnels,
)
from intradp_ros.systems.training.run.weight_exchange import bring, fetch, given_key

#: Times that a state is brought to the trainer, and seconds between two of them.
ATTEMPTS, REST = 3, 0.5


class WorkerWays:
    """
    Those of one device.

    `trainer` is where the trainer's exchange listens, `address` where this device does, `key`
    that of their streams, b'' for none.

    :raises TunnelError: if the address is none of this device.
    """

    def __init__(self, name: str, trainer: Place, address: str, key: bytes,
                 report: Callable[[dict[str, Any]], None]) -> None:
        self._name, self._trainer, self._key, self._report = name, trainer, key, report
        self._address = address
        self._tunnels = Tunnels(name, address, key)
        self._meeting = Meeting(report, self._tunnels.place)

    def attend(self, trainer: Place, address: str) -> None:
        """Go over to another trainer, and to where this device listens for its plans."""
        self._trainer, self._address = trainer, address
        self._tunnels.close()
        self._tunnels = Tunnels(self._name, address, self._key)
        self._meeting = Meeting(self._report, self._tunnels.place)

    def take(self, order: Mapping[str, Any]) -> None:
        """Take what another device says of itself, from any thread."""
        self._meeting.take(order)

    def ends(self, plan: PlanId, label: str, timeout: float) -> Ends:
        """Return this device's end of a group of a plan."""
        key, tunnels, ends = self._key, self._tunnels, list[Callable[[], None]]()
        own = loopback_of(key, plan, label, self._name) if key else self._address

        def port() -> int:
            if not key:
                return 0
            ends.append(tunnels.admit(own, found := listening_port(own)))
            return found

        def reach(device: str, place: Place, number: int) -> None:
            if key:
                ends.append(tunnels.reach(device, place, loopback_of(key, plan, label, device),
                                          number))

        def close() -> None:
            while ends:
                ends.pop()()

        def met() -> None:
            """Let nobody else come: who is connected stays."""
            if key:
                shut_door(own)
                close()

        def proof(source: str, target: str) -> bytes:
            content = f'gloo {plan.term} {plan.epoch} {label} {source} {target}'
            return hmac.digest(key, content.encode(), 'sha256')
        return Ends(own, MeetingStore(self._meeting, plan, label, timeout, port, reach), close,
                    met, proof if key else None)

    def unreached(self, plan: PlanId) -> list[str]:
        """Return the devices of a plan to whom no connection can be made now."""
        return self._tunnels.unreached(self._meeting.places(plan))

    def given(self, tag: int, layer: int, most: int, digest: str) -> bytes:
        """Return a layer of the trainer's checkpoint; OSError or ValueError if it is not had."""
        return fetch(self._trainer, self._key, given_key(tag, layer), most, digest)

    def bring(self, key: str, body: bytes) -> str:
        """Give the trainer what it asked for; return its digest.  OSError if it is not taken."""
        for attempt in range(ATTEMPTS):
            try:
                return bring(self._trainer, self._key, key, body)
            except OSError:
                if attempt + 1 == ATTEMPTS:
                    raise
                time.sleep(REST)
        raise AssertionError

    def close(self) -> None:
        """Listen no more."""
        self._tunnels.close()
