# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the runtime asks of a transport between the devices of a fleet."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from intradp_ros.runtime.transport.channel import LinkReport
from intradp_ros.wire.frames import Frame

PeerHandler = Callable[[str, Frame], None]


class PeerChannel(Protocol):
    """
    One device's non-blocking ways to all others of its fleet, each by the other's name.

    A way has its own queue, window, rate and rejections: a slow peer never
    holds up another.  Of the chunks that wait for any peer with room the one of the
    smallest urgency number leaves first; equals to one peer keep their order,
    peers take turns.  Control frames overtake chunks.  Frames may be lost; they are never altered.
    `listen` names the function that is called with the sender's name and
    every frame; it must return quickly, and may be called by several threads.
    """

    @property
    def name(self) -> str:
        """The device whose channel this is."""

    def open(self, peers: Iterable[str], *, stay: bool = False) -> None:
        """
        Make ready the ways to some devices, which may take a moment.

        Where there are as many ways as may be, silent devices make room, but for those to `stay`.
        """

    def send(self, peer: str, frame: Frame, urgency: float = 0.0) -> None:
        """Queue one frame."""

    def abandon(self, session: int, inference: int) -> None:
        """Drop chunks of a session's inference that still wait, to any peer."""

    def chunk_bytes(self, peer: str) -> int:
        """Return the bytes of a chunk, as the way to that peer is now."""

    def listen(self, handler: PeerHandler) -> None:
        """Call `handler` with every frame from now on."""

    def report(self, peer: str) -> LinkReport:
        """Return what is known of the link with a peer now."""

    def rejected(self) -> Mapping[str, Mapping[str, int]]:
        """Return messages that could not be made into frames, by peer and cause."""

    def doubted(self, peer: str) -> bool:
        """Return whether another process may have sent what came from a peer lately."""

    def conflicts(self) -> Mapping[str, str]:
        """Return, by peer, what is known of two processes of one name: cause and fix."""

    @property
    def aside(self) -> bool:
        """Whether this process leaves its name to another that most of the others hear."""

    def close(self) -> None:
        """Stop; later sends are ignored."""
