# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp run`: real shared inferences in one process."""
from __future__ import annotations

import time

import cv2
from imagined_accelerator import ACCELERATORS
import numpy as np
import pytest

from intradp_ros.cli import run_model
from intradp_ros.schedule.schedule import ROBOT
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.session.pair import in_process_pair

PNG = b'\x89PNG'


def _noise(folder, height, width):
    """Write a picture of noise, which no encoding makes smaller."""
    path = folder / 'noise.png'
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    cv2.imwrite(str(path), pixels)
    return path


def test_all_modes_give_the_unsplit_result(intradp, tmp_path):
    path = _noise(tmp_path, 96, 64)
    result = intradp('run', 'example_models:dense', '--input', path, '--mbps', 200, '--frames', 3,
                     '--timeline', tmp_path / 'timeline.png', '--json')
    data = result.json
    assert result.status == 0 and data['exact'] and data['eager_ms'] > 0
    assert set(data['modes']) == {'local', 'offload', 'cut', 'shared'}
    for figures in data['modes'].values():
        assert figures['frames'] == 3 and figures['max_rel_diff'] <= 1e-4
        assert 0 < figures['median_ms'] <= figures['p95_ms']
    assert (tmp_path / 'timeline.png').read_bytes().startswith(PNG)


def test_a_table_of_the_planner_is_run_and_one_of_another_model_refused(intradp, tmp_path):
    model = ('example_models:dense', '--input', '1x3x96x64')
    assert intradp('plan', *model, '--robot-slowdown', 2, '--grid', '100:200:2',
                   '-o', tmp_path / 'table.json').status == 0
    result = intradp('run', *model, '--plan', tmp_path / 'table.json', '--mbps', 200,
                     '--frames', 2, '--mode', 'shared', '--json')
    assert result.status == 0 and result.json['exact']
    refused = intradp('run', 'example_models:dense', '--input', '1x3x64x64', '--plan',
                      tmp_path / 'table.json', '--frames', 1)
    assert refused.status == 2 and 'plan for this model' in refused.err
    (tmp_path / 'junk.json').write_text('[]')
    refused = intradp('run', *model, '--plan', tmp_path / 'junk.json')
    assert refused.status == 2 and 'junk.json' in refused.err


@pytest.mark.parametrize('device', ACCELERATORS)
def test_both_sides_on_an_accelerator(intradp, device):
    result = intradp('run', 'example_models:dense', '--input', '1x3x96x64', '--mbps', 200,
                     '--frames', 2, '--device', device, '--json')
    assert result.status == 0 and result.json['exact']
    assert result.json['modes']['offload']['bytes_up'] > 0


def test_shared_learns_as_the_nodes_do(intradp, monkeypatch):
    pairs = []

    def noted(*args, **kwargs):
        pairs.append(in_process_pair(*args, **kwargs))
        return pairs[-1]

    monkeypatch.setattr(run_model, 'in_process_pair', noted)
    assert intradp('run', 'example_models:dense', '--input', '1x3x96x64', '--mbps', 200,
                   '--frames', 6, '--mode', 'local', '--mode', 'shared', '--json').status == 0
    [pair] = pairs
    assert isinstance(pair.robot.choice.experience, LatencyCalibration)
    assert pair.robot.choice.speeds.factor(ROBOT, time.monotonic()) != 1.0


def test_local_sends_nothing_and_offload_the_input(intradp, tmp_path):
    path = _noise(tmp_path, 64, 48)
    data = intradp('run', 'example_models:classifier', '--input', path, '--dtype', 'uint8',
                   '--mbps', 40, '--frames', 2, '--mode', 'local', '--mode', 'offload',
                   '--json').json
    local, offload = data['modes']['local'], data['modes']['offload']
    assert (local['bytes_up'], local['bytes_down']) == (0, 0)
    assert offload['bytes_up'] == 3 * 64 * 48
    assert offload['bytes_down'] == 5 * 4 or offload['recovered']


def test_a_result_beyond_rounding_is_status_1(intradp):
    # Folding the batch normalisation into the convolution rounds otherwise.
    result = intradp('run', 'example_models:amplifier', '--input', '1x3x61x29', '--mbps', 400,
                     '--frames', 1, '--mode', 'local')
    assert result.status == 1 and 'Not exact' in result.out


def test_the_table(intradp):
    result = intradp('run', 'example_models:classifier', '--input', '1x3x64x48', '--mbps', 400,
                     '--frames', 2)
    assert result.status == 0
    assert all(f'\n {mode} ' in result.out for mode in ('local', 'offload', 'cut', 'shared'))
    assert 'eager, unsplit' in result.out
