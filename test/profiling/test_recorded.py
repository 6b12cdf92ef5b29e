# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from intradp_lab.testbed.recorded import profile_from_recording, read_recording
from intradp_ros.runtime.models.model import share_module, SharedModel

#: Name, shape at 32 pixels, milliseconds on the robot; the server takes a tenth.
ROWS = [('_start', (1, 3, 32, 32), 0.0), ('conv2d', (1, 8, 32, 32), 4.0),
        ('batch_norm', (1, 8, 32, 32), 1.0), ('relu', (1, 8, 32, 32), 0.5),
        ('conv2d', (1, 16, 16, 16), 6.0), ('relu_', (1, 16, 16, 16), 0.25),
        ('_end', (1, 16, 16, 16), 0.0)]


def network(size: int = 32) -> SharedModel:
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
    return share_module(layers.eval(), (torch.zeros(1, 3, size, size),))


def written(folder: Path, rows: list[Any]) -> Path:
    path = folder / 'recording.json'
    path.write_text(json.dumps({
        'model': 'Small', 'robot': 'a board', 'server': 'a big machine',
        'ops': [{'name': name, 'output_shapes': [shape], 'robot_ms': ms, 'server_ms': ms / 10}
                for name, shape, ms in rows]}))
    return path


@pytest.mark.parametrize('size, factor', [(32, 1), (64, 4)])
def test_times_find_their_operators_at_any_resolution(
        tmp_path: Path, size: int, factor: int) -> None:
    model = network(size)
    recording = read_recording(written(tmp_path, ROWS))
    robot = profile_from_recording(model.split, model.digest, recording, 'robot')
    server = profile_from_recording(model.split, model.digest, recording, 'server')
    times = [timing.seconds[-1] * 1e3 for timing in robot.timings]
    assert times == pytest.approx([5.0 * factor, 0.5 * factor, 6.0 * factor, 0.25 * factor])
    assert robot.whole_seconds == pytest.approx(10 * server.whole_seconds)
    assert (robot.device, server.device) == ('a board', 'a big machine')
    table = robot.timings[0].table(size)
    assert 0 < table[1] < table[size] / 2 < table[size // 2]


def test_a_recording_of_another_architecture_is_refused(tmp_path: Path) -> None:
    model = network()
    others = [(name.replace('conv2d', 'linear'), *rest) for name, *rest in ROWS]
    recording = read_recording(written(tmp_path, others))
    with pytest.raises(ValueError, match='another architecture'):
        profile_from_recording(model.split, model.digest, recording, 'robot')


@pytest.mark.parametrize('shape, ms', [((1,), -1.0), ((1,), 'soon'), ((), None), ('x', 1.0)])
def test_what_is_no_recording_is_refused(tmp_path: Path, shape: object, ms: object) -> None:
    path = tmp_path / 'recording.json'
    path.write_text(json.dumps({'model': 'Small', 'robot': '', 'server': '', 'ops': [
        {'name': 'relu', 'output_shapes': [shape], 'robot_ms': ms, 'server_ms': 0.0}]}))
    with pytest.raises(ValueError, match='not a recording'):
        read_recording(path)
