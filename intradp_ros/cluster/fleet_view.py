# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What heartbeats say of a fleet's network and batteries, for planners of any system."""
from __future__ import annotations

from collections.abc import Iterable
import threading

from intradp_ros.cluster.fleet_messages import Heartbeat
from intradp_ros.cluster.network_state import Estimate, NetworkState
from intradp_ros.cluster.topology import Topology
from intradp_ros.link.outlook import MOVED, RateOutlook

#: A rate that was measured longer ago (s) says nothing any more; the declared one counts.
TRUSTED = 30.0
#: A device with a smaller share of its battery is low; it is not any more with so much more.
RESERVE, RECOVERED = 0.1, 0.05


class FleetView:
    """
    Media and batteries of a declared topology as its devices report them.

    Any thread may call it; nothing here takes long.  Devices in `kept` are never low.
    """

    def __init__(self, topology: Topology, kept: Iterable[str] = ()) -> None:
        self._topology, self._kept = topology, frozenset(kept)
        self._network = NetworkState(topology)
        self._reported: dict[tuple[str, str], float] = {}
        self._low: frozenset[str] = frozenset()
        self._memory: dict[str, float] = {}
        self._arithmetic: dict[str, str] = {}
        self._rates: dict[str, float] = {}
        self._outlooks = {medium.name: RateOutlook() for medium in topology.media}
        self._lock = threading.Lock()

    @property
    def low(self) -> frozenset[str]:
        """Devices whose batteries are low."""
        return self._low

    def heard(self, beat: Heartbeat, now: float) -> None:
        """Take what a device measured of its links, and its battery."""
        with self._lock:
            self._measured(beat, now)
            if beat.device not in self._topology.names:
                return
            self._arithmetic[beat.device] = beat.computes
            self._memory.pop(beat.device, None)
            if beat.free_memory > 0:  # 0: it sets no limit
                self._memory[beat.device] = beat.free_memory
            if beat.battery is not None:
                least = RESERVE + (RECOVERED if beat.device in self._low else 0.0)
                low = beat.battery < least and beat.device not in self._kept
                self._low = self._low | {beat.device} if low else self._low - {beat.device}

    def memory(self) -> dict[str, float]:
        """Return the bytes that plans may use of devices, where they said a limit."""
        with self._lock:
            return dict(self._memory)

    def arithmetic(self) -> dict[str, str]:
        """Return what devices compute with, where they said it."""
        with self._lock:
            return {name: how for name, how in self._arithmetic.items() if how}

    def media(self, now: float) -> dict[str, Estimate]:
        """Return what the media give now."""
        with self._lock:
            return self._media(now)

    def rates(self, now: float) -> dict[str, float]:
        """
        Return the rates to plan for (bytes/s) of the media that are not as declared.

        A rate stays as it was returned last until it moves by more than `MOVED`.
        """
        with self._lock:
            media = self._media(now)
            for medium in self._topology.media:
                found = media[medium.name]
                if found.age > TRUSTED:
                    self._rates.pop(medium.name, None)
                    continue
                known = self._rates.get(medium.name, medium.bytes_per_second)
                self._outlooks[medium.name].saw(found.value, now)
                if abs((rate := self._outlooks[medium.name].rate(now)) / known - 1) > MOVED:
                    self._rates[medium.name] = rate
            return dict(self._rates)

    def known_rates(self) -> dict[str, float]:
        """Return what `rates` returned last."""
        with self._lock:
            return dict(self._rates)

    def _media(self, now: float) -> dict[str, Estimate]:
        return {medium.name: self._network.medium(medium.name, now)
                for medium in self._topology.media}

    def _measured(self, beat: Heartbeat, now: float) -> None:
        names = self._topology.names
        for peer, link in beat.links.items():
            ends = (beat.device, peer)
            # The same figure is reported again until there is a newer one.
            if peer in names and beat.device in names \
                    and self._reported.get(ends) != link.bytes_per_second:
                self._reported[ends] = link.bytes_per_second
                self._network.transferred(*ends, link.bytes_per_second, now)
                self._network.probed(*ends, 2 * link.delay, now)
