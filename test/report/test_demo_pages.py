# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Pages of the demos: one file each, words in place of keys, no column that a screen cuts off."""
from __future__ import annotations

from collections.abc import Callable
import json
from pathlib import Path
import re
from typing import Any

import numpy as np
import pytest

from intradp_lab.cli import demo_language, demo_pipeline, fleet_report
from intradp_lab.report.page import embedded, inline, render
from intradp_lab.report.rows_plot import rows_figure
from intradp_lab.report.sharing_page import killed_text, shared_frame, write_page
from intradp_ros.report.language_plot import blocks_figure, BlockSpan
from intradp_ros.report.operator_names import readable
from intradp_ros.report.palette import LANES
from intradp_ros.systems.fleet.planner import OURS

PICTURE = np.arange(12 * 16 * 3, dtype=np.uint8).reshape(12, 16, 3)
MODE = {'frames': 6, 'lost': 0, 'shared': 6, 'recovered': 0, 'median_ms': 50.0,
        'median_low_ms': 45.0, 'median_high_ms': 60.0, 'p95_ms': 70.0, 'answer_median_ms': 55.0,
        'bytes_up': 80_000, 'bytes_down': 1_000, 'energy_j': 0.4, 'energy_source': 'modelled',
        'max_rel_diff': 5e-7, 'top5_equal': True, 'predicted_ms': 48.0, 'by_rows': 6}
KILLED = {'frames': 6, 'lost': 0, 'recovered': 1, 'max_rel_diff': 5e-7, 'top5_equal': True,
          'shared_after_restart': 5, 'frames_after_restart': 5, 'back_s': 2.5}
RATIO = {'ratio': 0.8, 'low': 0.7, 'high': 0.9, 'significant': True}
SPANS = [['robot', 'compute', 'conv2d .. relu_3', 0.0, 0.04],
         ['uplink', 'transfer', 'image[62:336]', 0.0, 0.01],
         ['server', 'compute', 'conv2d .. sigmoid', 0.01, 0.05]]


def sharing(out: Path) -> None:
    for name, shape in (('hed', (1, 1, 12, 16)), ('mobilenet_v2', (1, 1000))):
        (out / name).mkdir()
        (out / name / 'timelines.json').write_text(json.dumps(
            [{'spans': SPANS, 'stages': [[4, 0.25], [9, 0.0]]}]))
        np.savez(out / name / 'last.npz', picture=PICTURE, output=np.zeros(shape, np.float32))
    part = {'modes': {'local': {**MODE, 'median_ms': None}, 'shared': MODE},
            'server_killed': KILLED, 'shared_against': {'local': RATIO}}
    write_page(out, {'link': 'loopback', 'server': 'cpu', 'models': {
        'hed': part, 'mobilenet_v2': {'failed': "'robot' was killed: out of memory at 300 MB"}}},
        {'hed': 'HED', 'mobilenet_v2': 'MobileNetV2'}, True)


def language(out: Path) -> None:
    system = {'failed': '', 'ms_per_token': 172.0, 'predicted_ms': 198.0, 'limit_ms': 170.0,
              'x': 1.01, 'binds': 'disk of drone', 'blocks': {'rover': 14},
              'streamed': {'rover': 6}, 'peak_mb': {'rover': 566.0},
              'limit_mb': {'rover': 720.0}, 'per_token': {'rover': {
                  'computing_ms': 22.7, 'disk_ms': 19.1, 'peers_ms': 339.0, 'sent_kb': 60.3,
                  'received_kb': 53.8}}}
    rival = {'failed': 'out of memory at 720 MB', 'peak_mb': {}, 'limit_mb': {'rover': 720.0}}
    demo_language._write_page(out, {
        'systems': {'language': system, 'accelerate': rival}, 'question': 'Why?', 'answer': '<b>',
        'identical': True, 'bit_equal': True, 'max_logit_diff': 1e-5,
        'model': {'stored_mb': 98.0, 'types': ['Q4_1', 'F32']}, 'mbit': 100.0, 'disk': 2e8,
        'killed': {'failed': '', 'lost': 0, 'identical': True, 'requests': 2, 'gap_ms': 900.0}},
        blocks_figure([BlockSpan('rover', False, 0.0, 1.0)], ['rover'], '2 tokens'))


def fleet(out: Path) -> None:
    row = {'latency_ms': 372.0, 'predicted_ms': 367.0, 'stream_ms': 424.0, 'fps': 9.3, 'lost': 0,
           'predicted_fps': 9.4, 'joules': 5.4, 'qoe_missed_s': 0.0, 'bound_ms': 360.0,
           'failed': '', 'stages': [{'operators': 41, 'devices': ['laptop']}]}
    fleet_report.write_page(out, {
        'target': {'latency_ms': 500.0, 'fps': 8.0}, 'bound_ms': 360.0, 'air_mbps': 20.0,
        'systems': {OURS: row, 'equal split': {**row, 'failed': 'no answer within 600 s'}},
        'burst': {'kept': row}, 'frames': 9, 'lost': 0, 'max_rel_diff': 2e-6, 'failed': '',
        'killed': None})


def pipeline(out: Path) -> None:
    row = {'type': 'sensor_msgs/msg/Image', 'frames': 6, 'lost': 0, 'equal': 6, 'shared': 4,
           'divided': 3, 'recovered': 1, 'median_ms': 600.0, 'extra_ms': 58.0}
    demo_pipeline._write_page(out, {
        'networks': {'detector': row}, 'link_cut': {'frames': 2, 'lost': 0, 'equal': 2},
        'outage': 'the link was cut', 'weights': 'AGPL', 'link': 'loopback', 'failed': ''},
        [('camera', PICTURE)])


def training(out: Path) -> None:
    row = {'round_ms': 143.0, 'predicted_ms': 136.0, 'plan': '0-2: a(1)', 'failed': '',
           'loss_diff': 1e-15}
    (out / 'page.html').write_text(render(
        'training.html', title='Digits', headline='H', remarks=['`make demo-training`'],
        measured=[('a', 'b')], ours='training', systems={'training': row}, picture='',
        killed={'recovery_ms': {'detect': 1.0, 'move': 2.0, 'replay': 3.0}, 'heavy_ms': None}))


@pytest.mark.parametrize('write', [sharing, language, fleet, pipeline, training])
def test_a_page_is_one_file_in_words(write: Callable[[Path], Any], tmp_path: Path) -> None:
    write(tmp_path)
    page = (tmp_path / 'page.html').read_text()
    shown = re.sub(r'<svg.*?</svg>|<style>.*?</style>|data:image[^"]*', '', page, flags=re.S)
    words = re.sub(r'<[^>]*>', ' ', shown)
    assert '`' not in words
    assert not re.search(r'\b[a-z]+_(ms|fps|mb|j|s|kb|diff)\b', words)
    assert not re.findall(r'(?:src|href)="(?!")', shown)  # nothing from elsewhere
    tables = re.findall(r'<table.*?</table>', shown, flags=re.S)
    assert tables and all('class="cards"' in table for table in tables)
    for cell in re.findall(r'<td[^>]*>', ''.join(tables)):  # what each is, on a phone
        assert 'data-label=' in cell or 'fact' in cell or cell == '<td>'


def test_a_page_shows_which_rows_came_from_whom(tmp_path: Path) -> None:
    sharing(tmp_path)
    page = (tmp_path / 'page.html').read_text()
    assert 'Which rows came from whom' in page and 'computed by the robot' in page
    assert 'out of memory at 300 MB' in page and '>convolution 1 to ' in page
    assert 'conv2d' not in page
    frame = shared_frame(tmp_path / 'hed')
    assert frame and frame.stages == ((4, 0.25), (9, 0.0))
    (axes,) = rows_figure(frame.stages, '').axes
    areas = dict.fromkeys(LANES, 0.0)
    for bars in axes.collections:
        (corners,) = bars.get_paths()
        width, height = np.ptp(corners.vertices, axis=0)
        colour = '#' + ''.join(f'{round(255 * c):02X}' for c in bars.get_facecolor()[0][:3])
        areas[next(lane for lane, one in LANES.items() if one == colour)] += width * height
    assert (areas['robot'], areas['server']) == (4 * 25.0, 4 * 75.0 + 5 * 100.0)


def test_a_robot_that_does_not_share_is_not_taken_for_a_failure() -> None:
    part = {'server_killed': {**KILLED, 'shared_after_restart': 0}, 'modes': {
        'shared': {**MODE, 'shared': 1}}}
    assert 'computes 5 of 5 frames alone, as before the kill' in killed_text(part)
    part['modes']['shared']['shared'] = 6
    assert 'it shared 0 of 5 frames' in killed_text(part)


@pytest.mark.parametrize(('name', 'words'), [
    ('conv2d', 'convolution 1'), ('conv2d_6', 'convolution 7'), ('_to_copy', 'conversion 1'),
    ('conv2d_6 .. max_pool2d_2', 'convolution 7 to max pool 3'),
    ('image[62:336]', 'image, rows 62–335'), ('conv2d_2[0:1]', 'convolution 3, row 0'),
    ('catch-up', 'catch-up'), ('my_own_op_3', 'my_own_op_3'), ('$x_$', '$x_$'), ('', '')])
def test_operators_are_called_by_words(name: str, words: str) -> None:
    assert readable(name) == words


def test_code_in_a_text_is_set_as_code_and_nothing_else() -> None:
    assert inline('run `make <demo>` & see') == 'run <code>make &lt;demo&gt;</code> &amp; see'
    assert inline('a ` alone') == 'a ` alone' and inline('') == ''
    assert embedded(PICTURE).startswith('data:image/jpeg;base64,')
