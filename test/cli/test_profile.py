# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp profile`: measured once, written and printed as what `intradp plan` reads."""
from __future__ import annotations

import json

from imagined_accelerator import ACCELERATORS
import pytest

from intradp_ros.cli.profile_arguments import imagined
from intradp_ros.profiling.profile import Profile
from intradp_ros.split.calls.accelerator import open_device

MODEL = ('profile', 'example_models:dense', '--input', '1x3x24x16')


def test_the_file_and_the_json_are_one_profile(intradp, tmp_path):
    printed = intradp(*MODEL, '-o', tmp_path / 'new' / 'profile.json', '--json')
    assert printed.status == 0
    written = (tmp_path / 'new' / 'profile.json').read_text()
    assert json.loads(written) == printed.json
    profile = Profile.from_json(written)
    assert profile.axis == 2 and profile.threads == 1
    assert all(timing.seconds[-1] > 0 for timing in profile.timings)


def test_a_repeat_is_not_measured_again_unless_asked_for(intradp):
    first = intradp(*MODEL, '--json').json
    assert intradp(*MODEL, '--json').json == first
    assert intradp(*MODEL, '--json', '--fresh').json != first


@pytest.mark.parametrize('device', ACCELERATORS)
def test_an_accelerator_has_a_profile_of_its_own(intradp, device):
    own = intradp(*MODEL, '--json').json
    there = intradp(*MODEL, '--device', device, '--json').json
    assert there['device'] == f'{open_device(device).hardware}, {own["device"]}'
    assert there['digest'] == own['digest'] and there['timings'] != own['timings']
    assert intradp(*MODEL, '--json').json == own


def test_the_table_shows_the_heaviest_operators(intradp):
    text = intradp(*MODEL, '--top', 2).out
    rows = [line for line in text.splitlines() if 'wise' in line]
    assert len(rows) == 2
    assert 'ms for all' in text and 'device' in text


def test_a_scaled_profile_says_so(intradp):
    own = Profile.from_json(intradp(*MODEL, '--json').out)
    slow = imagined(own, 3.0)
    assert slow.whole_seconds == pytest.approx(3 * own.whole_seconds)
    assert slow.scale == pytest.approx(3 * own.scale) and slow.timings == own.timings
    assert slow.device.startswith('scaled, not measured: 3 x') and own.device in slow.device
