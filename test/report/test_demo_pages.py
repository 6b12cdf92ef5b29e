# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Pages of the demos: one file each, with the views of `intradp view`, words in place of keys."""
from __future__ import annotations

import base64
from collections.abc import Callable
import json
from pathlib import Path
import re
from typing import Any

import numpy as np
import pytest
from recorded_demos import record

from intradp_lab.cli import demo_language, demo_pipeline, demo_serving, fleet_report
from intradp_lab.report import sharing_page
from intradp_lab.report.page import inline
from intradp_lab.report.rows_plot import rows_figure
from intradp_ros.report.operator_names import readable
from intradp_ros.report.palette import LANES
from intradp_ros.report.view.blocks import headline, section, view_of
from intradp_ros.report.view.recorded import Recorded
from intradp_ros.report.view.standing_page import MOST, standing_page, write_page

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


def sharing(out: Path) -> dict[str, Any]:
    record(out, 'sharing')
    part = {'modes': {'local': {**MODE, 'median_ms': None}, 'shared': MODE},
            'server_killed': KILLED, 'shared_against': {'local': RATIO}}
    report = {'link': 'loopback', 'server': 'cpu', 'models': {
        'hed': part, 'mobilenet_v2': {'failed': "'robot' was killed: out of memory at 300 MB"}}}
    titles = {'hed': 'HED', 'mobilenet_v2': 'MobileNetV2'}
    return {**report, 'said': sharing_page.said(report, titles, True)}


def language(out: Path) -> dict[str, Any]:
    report = dict(record(out, 'language'))
    mine = report['systems']['language'] | {'x': 1.01}
    mine['per_token'] |= {'spare': next(iter(mine['per_token'].values()))}  # no blocks of its own
    report |= {'bit_equal': True, 'model': {'stored_mb': 98.0, 'types': ['Q4_1', 'F32']},
               'systems': {'language': mine, 'accelerate': {
                   'failed': 'out of memory at 720 MB', 'peak_mb': {}, 'limit_mb': {'rover': 7}}}}
    return {**report, 'said': demo_language.said(report)}


def fleet(out: Path) -> dict[str, Any]:
    report = dict(record(out, 'fleet'))
    report['systems'] |= {'equal split': {
        **report['systems']['one device'], 'failed': 'no answer within 600 s'}}
    report['killed'] |= {'max_rel_diff': 2e-6, 'half_the_air_s': 2.0, 'network': 'DDS'}
    return {**report, 'said': fleet_report.said(report)}


def pipeline(out: Path) -> dict[str, Any]:
    report = {**record(out, 'perception'), 'failed': '', 'weights': 'AGPL'}
    return {**report, 'said': demo_pipeline.said_of(report)}


def training(out: Path) -> dict[str, Any]:
    report = dict(record(out, 'training'))
    report['systems'] |= {'PP': {'failed': 'out of memory at 300 MB'}}
    return {**report, 'said': {'title': 'Digits', 'headline': 'H', 'well': True,
                               'remarks': ['`make demo-training`'], 'measured': [('a', 'b')]}}


def serving(out: Path) -> dict[str, Any]:
    report = {**record(out, 'serving'), 'lost': 0, 'wrong': 0, 'doubled': 0}
    return {**report, 'said': demo_serving.said(report)}


def kept_of(page: str) -> dict[str, Any]:
    [text] = re.findall(r'<script id="kept" type="application/json">(.*?)</script>', page, re.S)
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize('make', [sharing, language, fleet, pipeline, training, serving])
def test_a_page_is_one_file_with_what_the_view_shows(
        make: Callable[[Path], dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / 'report.json').write_text(json.dumps(make(tmp_path)))
    write_page(tmp_path)
    page = (tmp_path / 'page.html').read_text()
    assert not re.search(r'(?:src|href)="', page)  # nothing from elsewhere
    kept, recorded = kept_of(page), Recorded(tmp_path)
    for step, view in enumerate(kept['views']):
        for part in view['sections']:
            part['blocks'] = [{**kept['blocks'][k], **places} for k, places in part['blocks']]
        assert view == json.loads(json.dumps(recorded.view(step)))
        assert view['sections'][0]['title'] == 'Result'
        assert view['sections'][-1]['title'] == 'How this was measured'
        words = json.dumps([part['blocks'] for part in view['sections']])
        assert not re.search(r'\b[a-z]+_(ms|fps|mb|j|s|kb|diff)\b', words)
    assert len(kept['views']) == recorded.length
    assert kept['pictures'] == ({} if make is not sharing else {
        'hed/example.png': 'data:image/png;base64,' + base64.b64encode(
            (tmp_path / 'hed' / 'example.png').read_bytes()).decode()})
    failed = {sharing: 'out of memory at 300 MB', language: 'out of memory at 720 MB',
              fleet: 'no answer within 600 s', training: 'out of memory at 300 MB'}
    assert failed.get(make, '') in page


def test_texts_of_strangers_do_not_end_the_script() -> None:
    text = '</script><script>alert(1)</script><!--'
    page = standing_page([view_of('t', [section('a', text, headline(text))])], lambda name: None)
    assert page.count('<script') == 2 and page.count('</script') == 2
    assert kept_of(page)['views'][0]['sections'][0]['title'] == text


def test_a_page_of_many_steps_has_some_of_them(tmp_path: Path) -> None:
    report = dict(record(tmp_path, 'training'))
    report |= {key: [2.5] * (2 * MOST + 7) for key in ('loss', 'loss_one_process')}
    (tmp_path / 'report.json').write_text(json.dumps(report))
    write_page(tmp_path)
    kept = kept_of((tmp_path / 'page.html').read_text())
    assert [view['at'] for view in kept['views']] == list(range(0, 2 * MOST + 7, 3))
    assert len(json.dumps(kept['blocks'])) < 200_000  # the curve is there once


def test_a_frame_that_was_shared_is_drawn(tmp_path: Path) -> None:
    (tmp_path / 'timelines.json').write_text(json.dumps(
        [{'spans': SPANS, 'stages': [[4, 0.25], [9, 0.0]]}]))
    frame = sharing_page.shared_frame(tmp_path)
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
    assert 'computes 5 of 5 frames alone, as before the kill' in sharing_page.killed_text(part)
    part['modes']['shared']['shared'] = 6
    assert 'it shared 0 of 5 frames' in sharing_page.killed_text(part)


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
