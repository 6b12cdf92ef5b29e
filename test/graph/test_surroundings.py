# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A model that asks files, entropy, clocks, the environment or the mode is refused, with cause."""
from __future__ import annotations

from collections.abc import Callable
import datetime
import os
from pathlib import Path
import secrets
import socket
import subprocess
from threading import Thread
import time
from typing import Any
import uuid

import numpy as np
import pytest
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.held_state import HeldState
from intradp_ros.graph.surroundings import other_time

X = torch.linspace(-1, 1, 12).reshape(1, 3, 2, 2)


class Net(nn.Module):
    def __init__(self, factor: Callable[[], Any]) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor()


def of_a_file() -> float:
    return float(Path(os.devnull).with_name('version').exists()) + len(
        Path('/proc/version').read_text())


def of_a_process() -> float:
    return len(subprocess.run(['true'], capture_output=True).stdout)


def of_a_host() -> float:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b'frame', ('127.0.0.1', 9))
    return 1.0


def of_hour() -> int:
    return int(time.time() // 3600) % 24


def of_day() -> int:
    return datetime.datetime.now().timetuple().tm_yday


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    'a file': (of_a_file, "reads the file '/proc/version'"),
    'another process': (of_a_process, 'runs '),
    'another host': (of_a_host, "sends to \\('127.0.0.1', 9\\)"),
    # one in so many that no two runs are likely to differ
    'entropy': (lambda: secrets.randbelow(2**40) == 7, 'draws random numbers .*entropy'),
    'a fresh generator': (lambda: np.random.default_rng().random() < 1e-9, 'draws .*entropy'),
    'names': (lambda: uuid.uuid4().int % 2**40 == 7, 'draws random numbers .*entropy'),
    'the hour': (of_hour, 'depend on the time of day'),
    'the day': (of_day, 'depend on the time of day'),
    'gradients': (lambda: 2.0 if torch.is_grad_enabled() else 1.0, 'whether gradients are kept'),
    'inference mode': (lambda: 2.0 if torch.is_inference_mode_enabled() else 1.0,
                       'torch.inference_mode'),
}


@pytest.mark.parametrize('name', CASES)
def test_what_asks_for_more_than_its_inputs_is_refused(name: str) -> None:
    factor, cause = CASES[name]
    with pytest.raises(CaptureError, match=cause):
        capture(Net(factor).eval(), X)


class OfVersions(torch.nn.Module):
    """One whose result depends on how often its input was written to."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + x._version)


def test_what_asks_how_often_its_input_was_written_to_is_refused() -> None:
    with pytest.raises(CaptureError, match='how often its input was written to'):
        capture(OfVersions().eval(), X)


def test_a_trial_changes_no_file(tmp_path: Path) -> None:
    path = tmp_path / 'count'
    path.write_text('0')

    def counted() -> int:
        count = int(path.read_text()) + 1
        path.write_text(str(count))
        return count % 3
    with pytest.raises(CaptureError, match='count'):
        capture(Net(counted).eval(), X, effects=True)
    assert path.read_text() == '0'


def test_what_is_read_once_or_measured_in_vain_is_no_obstacle(tmp_path: Path) -> None:
    path, kept, took = tmp_path / 'table', [], []
    path.write_text('3')

    def table() -> float:
        start = time.perf_counter()
        if not kept:
            kept.append(float(path.read_text()))
        took[:] = [time.perf_counter() - start > 1e9]
        return kept[0]
    assert capture(Net(table).eval(), X).method == 'export'


def test_a_tensor_left_for_others_is_refused_where_they_would_see_it() -> None:
    class Leaves(nn.Module):
        seen: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen = x.softmax(1)
            return x * 2
    assert capture(Leaves().eval(), X).method == 'export'
    with pytest.raises(CaptureError, match='leaves a tensor at seen'):
        capture(Leaves().eval(), X, effects=True)


def test_it_is_later_for_the_trial_only() -> None:
    """Other threads of a robot's process have deadlines."""
    seen: list[tuple[float, datetime.datetime]] = []

    def look() -> None:
        seen.append((time.monotonic(), datetime.datetime.now()))

    look()
    with other_time(HeldState()):
        look()
        other = Thread(target=look)
        other.start()
        other.join()
    look()
    (begun, at), (later, then), (true, now), (end, _) = seen
    assert later - begun > 1e5 and then - at > datetime.timedelta(days=1)
    assert begun <= true <= end and now - at < datetime.timedelta(hours=1)
