# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Frames that are asked for, handed out in their order when they have ended."""
from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
import threading
import time
from typing import Any

from intradp_ros.nodes.sensors.sensor_inputs import Scene
from intradp_ros.runtime.requests.infer_requests import InferEnd, Tensors


@dataclass(eq=False)
class Frame:
    """A frame of the sensor; times are of the monotonic clock."""

    headers: Sequence[Any]
    scenes: Sequence[Scene]
    tensors: Tensors
    began: float
    deadline: float
    number: int = 0
    withdraw: Callable[[], None] | None = None
    end: InferEnd | None = None


class FrameOrder:
    """At most `most` frames in flight; each goes to `out` once, after all before it."""

    def __init__(self, most: int, out: Callable[[Frame], None]) -> None:
        self._most, self._out = most, out
        self._frames: deque[Frame] = deque()
        self._changed = threading.Condition()
        self._count = 0
        self.counts: Counter[str] = Counter()

    def begin(self, frame: Frame) -> None:
        """Take a frame, which has no end yet."""
        with self._changed:
            self._count += 1
            frame.number = self._count
            self._frames.append(frame)

    def end(self, frame: Frame, end: InferEnd) -> None:
        """Take the end of a frame, and hand out what may be by now."""
        with self._changed:
            if frame.end is not None:
                return
            frame.end = end
            self.counts[end.fate.value] += 1
            while self._frames and self._frames[0].end is not None:
                self._out(self._frames.popleft())
            self._changed.notify_all()

    def in_flight(self) -> list[Frame]:
        """Return the frames without an end."""
        with self._changed:
            return [frame for frame in self._frames if frame.end is None]

    def wait_for_room(self, seconds: float) -> bool:
        """Wait until another frame may be asked for."""
        end = time.monotonic() + seconds
        with self._changed:
            return self._changed.wait_for(
                lambda: len(self._frames) < self._most, end - time.monotonic())
