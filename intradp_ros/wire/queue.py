# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Frames that wait to be sent: control frames first, then chunks, each in order."""
from __future__ import annotations

from collections import deque

from intradp_ros.wire.frames import Chunk, Control, Frame


def payload_bytes(frame: Frame) -> int:
    """Return the bytes of a chunk's data; 0 for a control frame."""
    return memoryview(frame.data).nbytes if isinstance(frame, Chunk) else 0


class FrameQueue:
    """Two first-in-first-out lanes; the caller keeps threads apart."""

    def __init__(self) -> None:
        self._control: deque[Control] = deque()
        self._chunks: deque[Chunk] = deque()

    def __len__(self) -> int:
        """Count the frames that wait."""
        return len(self._control) + len(self._chunks)

    def put(self, frame: Frame) -> None:
        """Append a frame to its lane."""
        if isinstance(frame, Control):
            self._control.append(frame)
        else:
            self._chunks.append(frame)

    def next(self) -> Frame | None:
        """Return the frame whose turn it is, or None; it stays in the queue."""
        if self._control:
            return self._control[0]
        return self._chunks[0] if self._chunks else None

    def pop(self) -> Frame:
        """Remove and return the frame whose turn it is (IndexError if none waits)."""
        return self._control.popleft() if self._control else self._chunks.popleft()

    def abandon(self, session: int, inference: int) -> int:
        """Drop the waiting chunks of a session's inference; return how many."""
        kept = [chunk for chunk in self._chunks
                if (chunk.session, chunk.inference) != (session, inference)]
        dropped = len(self._chunks) - len(kept)
        self._chunks = deque(kept)
        return dropped
