# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Frames that wait to be sent: control frames first, then chunks, each in order."""
from __future__ import annotations

from collections import deque, OrderedDict

from intradp_ros.wire.frames import Chunk, Control, Frame


def payload_bytes(frame: Frame) -> int:
    """Return the bytes of a chunk's data; 0 for a control frame."""
    return memoryview(frame.data).nbytes if isinstance(frame, Chunk) else 0


class FrameQueue:
    """
    First-in-first-out lanes: one of control frames, and one of chunks for each session.

    Sessions take turns.  The caller keeps threads apart.
    """

    def __init__(self) -> None:
        self._control: deque[Control] = deque()
        self._chunks: OrderedDict[int, deque[Chunk]] = OrderedDict()
        self.waiting = 0  # bytes of chunks

    def __len__(self) -> int:
        """Count the frames that wait."""
        return len(self._control) + sum(map(len, self._chunks.values()))

    def put(self, frame: Frame) -> None:
        """Append a frame to its lane."""
        if isinstance(frame, Control):
            self._control.append(frame)
        else:
            self._chunks.setdefault(frame.session, deque()).append(frame)
            self.waiting += payload_bytes(frame)

    def next(self) -> Frame | None:
        """Return the frame whose turn it is, or None; it stays in the queue."""
        if self._control:
            return self._control[0]
        return next(iter(self._chunks.values()))[0] if self._chunks else None

    def pop(self) -> Frame:
        """Remove and return the frame whose turn it is (IndexError if none waits)."""
        if self._control:
            return self._control.popleft()
        session, chunks = self._chunks.popitem(last=False) if self._chunks else (0, deque[Chunk]())
        chunk = chunks.popleft()
        if chunks:
            self._chunks[session] = chunks
        self.waiting -= payload_bytes(chunk)
        return chunk

    def abandon(self, session: int, inference: int) -> int:
        """Drop the waiting chunks of a session's inference; return how many."""
        chunks = self._chunks.pop(session, deque())
        kept = deque(chunk for chunk in chunks if chunk.inference != inference)
        if kept:
            self._chunks[session] = kept
        self.waiting -= sum(payload_bytes(c) for c in chunks if c.inference == inference)
        return len(chunks) - len(kept)
