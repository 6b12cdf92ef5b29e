# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The orders of a process that asks a fleet, and what it saw."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
import json
from pathlib import Path
from typing import Any

from intradp_ros.core.atomic_write import write_atomically


@dataclass(frozen=True)
class Asking:
    """
    How the device `name` asks: so many frames, every `interval` seconds (0: as there is room).

    The first `alone` of them are asked for one at a time, without the interval.  It ends sooner at
    SIGUSR1.  Inputs are random, or frames of the `video`.  With a `profile`
    its own operators are emulated at `speed`, and answers are not compared.
    One that `serves` hands its weights to who asks for them.  With a `key_file`
    it seals what it says.
    """

    fleet: str
    name: str
    model: str
    output: str
    frames: int = 30
    interval: float = 0.0
    alone: int = 0
    video: bool = False
    profile: str = ''
    speed: float = 1.0
    inflight: int = 0
    silence: float = 0.6
    patience: float = 60.0
    coordinators: tuple[str, ...] = ('coordinator',)
    serves: bool = False
    key_file: str = ''

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class SeenAnswer:
    """An answer: seconds from the first asking, how it came, and the largest difference."""

    inference: int
    asked: float
    latency: float
    pipelined: bool
    answered: bool
    reason: str
    epoch: int
    difference: float


def save_answers(answers: Sequence[SeenAnswer], path: Path) -> None:
    """Write what was seen."""
    write_atomically(path, json.dumps([asdict(answer) for answer in answers]))


def load_answers(path: Path) -> list[SeenAnswer]:
    """Read what was seen."""
    data: list[dict[str, Any]] = json.loads(path.read_text())
    return [SeenAnswer(**item) for item in data]
