# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A server's channel to several robots, each at the end of a link of its own."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
import threading

from intradp_ros.runtime.transport.channel import Channel, LinkReport
from intradp_ros.wire.frames import Chunk, Control, Frame


class JoinedChannel:
    """
    Several channels as one; a `Channel`.

    Frames go where those of their session came from.  Links may be added and
    removed at any time.  The handler is called by one thread at a time.
    """

    def __init__(self) -> None:
        self._links: dict[int, Channel] = {}
        self._joined: list[Channel] = []
        self._handler: Callable[[Frame], None] | None = None
        self._handling = threading.Lock()

    def join(self, link: Channel) -> None:
        """Add a robot's link."""
        self._joined.append(link)

        def take(frame: Frame) -> None:
            with self._handling:
                self._links[frame.session] = link
                if self._handler:
                    self._handler(frame)
        link.listen(take)

    def part(self, link: Channel) -> None:
        """Close a link of a robot that has gone."""
        link.close()
        self._joined.remove(link)
        with self._handling:
            self._links = {s: found for s, found in self._links.items() if found is not link}

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk on any link, at least."""
        return min((link.chunk_bytes for link in self._joined), default=1)

    def chunk_bytes_of(self, session: int) -> int:
        """Return the bytes of a chunk on the link of a session."""
        link = self._links.get(session)
        return link.chunk_bytes_of(session) if link else self.chunk_bytes

    @property
    def waiting(self) -> int:
        """Bytes of chunks that wait on the link where most do."""
        return max((link.waiting for link in tuple(self._joined)), default=0)

    @property
    def rejected(self) -> Mapping[str, int]:
        """Messages of all links that could not be made into frames, by cause."""
        return sum((Counter(link.rejected) for link in tuple(self._joined)), Counter[str]())

    def send(self, frame: Chunk | Control) -> None:
        """Queue one frame on the link of its session."""
        link = self._links.get(frame.session)
        if link:
            link.send(frame)

    def abandon(self, session: int, inference: int) -> None:
        """Drop chunks of a session's inference that still wait."""
        link = self._links.get(session)
        if link:
            link.abandon(session, inference)

    def listen(self, handler: Callable[[Frame], None]) -> None:
        """Call `handler` with every frame from now on."""
        self._handler = handler

    def report(self) -> LinkReport:
        """Return nothing: links differ."""
        return LinkReport()

    def close(self) -> None:
        """Stop; later sends are ignored."""
        self._handler = None
        for link in tuple(self._joined):
            self.part(link)
