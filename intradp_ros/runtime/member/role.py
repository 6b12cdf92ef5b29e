# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
One system's part on one device: the interface between a fleet's members and the systems.

A *member* is a device's part in a fleet.  It sends heartbeats, takes the coordinator's orders
(PREPARE, COMMIT, ABORT), and fetches blobs.  It knows `PlanId` and the name of a plan's format;
what a plan says is known to the role of that format only::

    PREPARE -> parse -> lacking -> (blobs are fetched -> lacking ...) -> load -> READY
    COMMIT  -> use                          frames of plans that are held -> handle
    ABORT, a plan replaced or let go -> keep          each heartbeat -> busy, latencies, state

Threads
-------
plans
    One for each member.  Calls `parse`, `lacking` and `load`, one plan at a time.  They may
    take seconds; nothing else waits for them but the next plan.
receiving
    Those of the channel; several at once, one for each peer at a time.  Call `handle`, `heard`,
    `keep` and `use`.  These must return at once: what computes, reads a disk or waits for
    somebody belongs on a thread of the role's own.  `keep` and `use` are never called at the
    same time, and come in the order of the plans' numbers.
heartbeat
    Calls `busy`, `latencies` and `keep`, five times a second.  Must return at once.

All that a `Host` offers may be called from any thread, with locks held, and returns at once.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.runtime.transport.peer_channel import PeerChannel
from intradp_ros.runtime.weights.state import State
from intradp_ros.wire.frames import Frame


class Plan(Protocol):
    """A plan that was parsed.  It is never changed, and equal to one of the same contents."""

    @property
    def participants(self) -> tuple[str, ...]:
        """All devices that have a part in it, each once; the one that asks is among them."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data; the value of "format" is that of its role."""


@dataclass(frozen=True)
class Lacking:
    """
    What is to be fetched before a plan can be loaded.

    Attributes
    ----------
    blobs
        SHA-256 of each blob that is needed and not here, with its bytes; None where
        they are not known.
    needed
        All blobs that the plan needs here, so that none of them makes room for another.
    model
        SHA-256 that names what they belong to; '' if nothing does.  A device's
        parameter `fetch_only` lists those that it may fetch.
    state
        Name and tag of each tensor of another device's `State` that is needed here.
    peers
        Whom to ask in addition to the plan's participants.

    """

    blobs: Mapping[str, int | None] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()
    model: str = ''
    state: frozenset[tuple[str, int]] = frozenset()
    peers: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Whether anything is to be fetched."""
        return bool(self.blobs or self.state)


@dataclass(frozen=True, slots=True)
class Computes:
    """
    What a role computes with, as planners of its system call it, and bytes that plans may use.

    Both are empty where the role does not know; a limit of the device counts before this one.
    """

    arithmetic: str = ''
    memory: float = 0.0


class Blobs(Protocol):
    """Blobs that this device has, by SHA-256: of its catalogue, of its store, and offered ones."""

    def nbytes(self, digest: str) -> int | None:
        """Return the bytes of a blob, None where it is not here."""

    def find(self, digest: str) -> torch.Tensor | None:
        """Return a blob as a flat tensor of uint8, to be read only; None where it is not here."""

    def offer(self, data: torch.Tensor) -> str:
        """Hand out a tensor's bytes from memory until `withdraw`; return their SHA-256."""

    def withdraw(self, digest: str) -> None:
        """Hand out what was offered no more."""

    def fetch(self, blobs: Mapping[str, int | None], peers: Collection[str],
              done: Callable[[str], None]) -> object:
        """
        Fetch blobs into the store, after what is fetched now; return the wish.

        `done` is called on a thread of the fetcher with '', or with the reason why they are not
        to be had.
        """


class Host(Protocol):
    """What a member offers to its roles."""

    @property
    def name(self) -> str:
        """The device's name in the fleet."""

    @property
    def channel(self) -> PeerChannel:
        """The ways to the others; those to the participants of a plan are open when it loads."""

    @property
    def blobs(self) -> Blobs:
        """The blobs that are here."""

    def log(self, text: str) -> None:
        """Log a line for people."""

    def reject(self, cause: str, text: str) -> None:
        """Count something malformed by a short word; log each cause at most once a second."""

    def held(self) -> tuple[PlanId, ...]:
        """Return the plans that are held here, of any format, the newest last."""

    def release(self, oldest: PlanId) -> None:
        """Say that nothing of plans before this one is in flight: `keep` follows without them."""

    def changed(self) -> None:
        """Say that what this device publishes of itself has changed."""


class Role(Protocol):
    """
    One system on one device; see above for who calls what, and on which thread.

    Inherit from it: methods that a system does not need do nothing then.
    """

    #: Name of the plans that it understands: the value of "format" in their JSON.
    format: str  # noqa: A003
    #: Tensors that outlive plans here (cache, weights, optimiser), by name and tag.
    state: State

    def parse(self, data: Any) -> Plan:
        """
        Return the plan that plain data describe; nothing in them is trusted.

        Look at counts and sizes before anything is built of them (`core/limits.py`).

        :raises PlanError: (`cluster/plan_id.py`) If they describe none; the text names cause and
            fix, and goes to the coordinator.
        """

    def lacking(self, plan: Plan) -> Lacking:
        """
        Return what this device needs for a plan and does not have.

        Called again when that was fetched, until nothing is lacking: so a manifest may
        name further blobs.  State that was fetched is in `state` by then.

        :raises PlanError: if the plan cannot be run here.
        """

    def load(self, id: PlanId, plan: Plan) -> None:  # noqa: A002
        """
        Make ready for a plan, next to the one in use; hold it from now on.

        READY is sent when it returns.  Where `keep` is called without the plan meanwhile, it
        may return early, or fail: nobody waits for it any more.

        :raises Exception: of any kind, if it cannot be; the text goes to the coordinator with
            REFUSE.
        """

    def use(self, id: PlanId, boundary: int) -> None:  # noqa: A002
        """Use a plan that is loaded, from a boundary (frame, token, round) on; 0: from now on."""

    def keep(self, ids: Collection[PlanId]) -> None:
        """Let go of all plans but these; those of other roles and in loading are there, too."""

    def handle(self, peer: str, frame: Frame) -> None:
        """
        Take a frame of a plan that is held: its `session` and `epoch` are those of the `PlanId`.

        Whether the peer may send it is for the role to see.  A PING was answered already; it is
        given here for its body.

        :raises MalformedFrameError: if it makes no sense; it is counted and dropped.
        """

    def heard(self, peer: str) -> None:
        """Learn that a frame of any kind came from a device: it is there."""
        return None

    def busy(self) -> float:
        """Return the seconds of work done so far, for the load in heartbeats."""
        return 0.0

    def computes(self) -> Computes:
        """Return what it computes with, for heartbeats."""
        return Computes()

    def latencies(self) -> tuple[float, ...]:
        """Return seconds from request to answer since the last call; infinite without results."""
        return ()

    def close(self) -> None:
        """Stop; nothing is called any more.  May wait for the role's own threads."""
        return None


#: Makes a device's part; what else it needs is bound beforehand (see `nodes/fleet/systems.py`).
RoleMaker = Callable[[Host], Role]
