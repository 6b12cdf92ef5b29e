# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Frames that wait to be sent: control frames first, then chunks, the most urgent first."""
from __future__ import annotations

from collections import deque, OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count

from intradp_ros.wire.frames import Chunk, Control, Frame

#: Urgency, number of its coming, chunk.
_Waiting = tuple[float, int, Chunk]


def payload_bytes(frame: Frame) -> int:
    """Return the bytes of a chunk's data; 0 for a control frame."""
    return memoryview(frame.data).nbytes if isinstance(frame, Chunk) else 0


class FrameQueue:
    """
    Lanes: one of control frames, and one of chunks for each session.

    Of a lane of chunks the one of the smallest urgency number leaves first,
    of equals the one that came first.  Sessions take turns.  The caller keeps
    threads apart.
    """

    def __init__(self) -> None:
        self._control: deque[Control] = deque()
        self._chunks: OrderedDict[int, list[_Waiting]] = OrderedDict()
        self._numbers = count()
        self.waiting = 0  # bytes of chunks

    def __len__(self) -> int:
        """Count the frames that wait."""
        return len(self._control) + sum(map(len, self._chunks.values()))

    def put(self, frame: Frame, urgency: float = 0.0) -> None:
        """Put a frame into its lane."""
        if isinstance(frame, Control):
            self._control.append(frame)
        else:
            heappush(self._chunks.setdefault(frame.session, []),
                     (urgency, next(self._numbers), frame))
            self.waiting += payload_bytes(frame)

    def next(self) -> Frame | None:
        """Return the frame whose turn it is, or None; it stays in the queue."""
        if self._control:
            return self._control[0]
        return next(iter(self._chunks.values()))[0][2] if self._chunks else None

    def heads(self) -> Iterator[Chunk]:
        """Yield the first chunk of each session, in the order of their turns."""
        return (chunks[0][2] for chunks in self._chunks.values())

    def urgency(self, session: int) -> float:
        """Return how urgent the first chunk of a session is; KeyError if none waits."""
        return self._chunks[session][0][0]

    def pop(self) -> Frame:
        """Remove and return the frame whose turn it is (IndexError if none waits)."""
        if self._control:
            return self._control.popleft()
        if not self._chunks:
            raise IndexError('no frame waits')
        return self.pop_chunk(next(iter(self._chunks)))

    def pop_chunk(self, session: int) -> Chunk:
        """Remove and return the first chunk of a session, whose turn is the last from now on."""
        chunks = self._chunks.pop(session)
        chunk = heappop(chunks)[2]
        if chunks:
            self._chunks[session] = chunks
        self.waiting -= payload_bytes(chunk)
        return chunk

    def abandon(self, session: int, inference: int) -> int:
        """Drop the waiting chunks of a session's inference; return how many."""
        chunks = self._chunks.pop(session, [])
        kept = [waiting for waiting in chunks if waiting[2].inference != inference]
        heapify(kept)
        if kept:
            self._chunks[session] = kept
        self.waiting -= sum(payload_bytes(c) for _, _, c in chunks if c.inference == inference)
        return len(chunks) - len(kept)
