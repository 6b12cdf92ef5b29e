# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A demo's folder as views: its figures, each step, and what is no such folder."""
from __future__ import annotations

import json
from pathlib import Path
import re
from typing import Any

import pytest
from recorded_demos import DEMOS, record

from intradp_ros.report.operator_names import readable
from intradp_ros.report.view.blocks import bottleneck, line, number, shown
from intradp_ros.report.view.recorded import Recorded

STEPS = {'sharing': 6, 'fleet': 3, 'language': 2, 'training': 4, 'serving': 1, 'perception': 1}


def blocks_of(view: Any, kind: str) -> list[Any]:
    return [block for section in view['sections'] for block in section['blocks']
            if block['kind'] == kind]


@pytest.mark.parametrize('demo', DEMOS)
def test_each_step_is_a_view(tmp_path: Path, demo: str) -> None:
    record(tmp_path / demo, demo)
    found = Recorded(tmp_path / demo)
    assert found.length == STEPS[demo]
    views = [json.dumps(found.view(k), allow_nan=False) for k in range(found.length)]
    assert len(set(views)) == found.length
    assert found.view(-5)['at'] == 0 and found.view(99)['at'] == found.length - 1


def test_a_frame_has_its_figures(tmp_path: Path) -> None:
    record(tmp_path / 'd', 'sharing')
    found = Recorded(tmp_path / 'd')
    for step, phase, ms, rate in ((1, 'shared', '312 ms', '18.5'),
                                  (4, 'server killed', '524 ms', '18.5'),
                                  (5, 'server started again', '712 ms', '17.5')):
        view = found.view(step)
        facts = dict(row for block in blocks_of(view, 'facts') for row in block['rows'])
        assert facts['phase'] == phase and facts['latency'] == ms
        assert facts['link'] == f'{rate} Mbit/s'
        [bars] = blocks_of(view, 'frames')
        assert bars['chosen'] == step and bars['rows'][step]['values'][1] == pytest.approx(2.5)
    assert facts['bottleneck of the frame below'] == 'server, busy for 67% of the frame'
    [drawn] = blocks_of(view, 'bands')
    assert drawn['stages'] == [[3, 1.0], [9, 0.25]] and drawn['image'] == 'hed/example.png'
    [timeline] = blocks_of(view, 'gantt')
    assert timeline['spans'][0][2:] == [readable('conv2d_1'), 0.0, 20.0]


def test_a_plan_shows_who_does_what(tmp_path: Path) -> None:
    record(tmp_path / 'd', 'fleet')
    found = Recorded(tmp_path / 'd')
    said = {}
    for step in range(3):
        view = found.view(step)
        [drawn] = blocks_of(view, 'map')
        machines = {m['name']: m['lines'][1:] for m in drawn['machines']}
        said[step] = blocks_of(view, 'headline')[0]
        assert machines['robot'] == ['computes nothing']
        assert drawn['media'][0]['text'].startswith('10 Mbit/s' if step == 2 else '20 Mbit/s')
    assert 'met' in said[0]['text'] and said[0]['tone'] == 'well'
    assert 'missed' in said[1]['text'] and said[1]['tone'] == 'out'


def test_who_binds_is_said(tmp_path: Path) -> None:
    record(tmp_path / 'd', 'fleet')
    view = Recorded(tmp_path / 'd').view(0)
    brake = 'laptop, busy for 41.1 ms of the 125 ms between two frames (33%, modelled)'
    assert blocks_of(view, 'headline')[0]['text'].endswith(f'; bottleneck: {brake}')
    [drawn] = blocks_of(view, 'map')
    assert [m['name'] for m in drawn['machines'] if 'the bottleneck' in m['lines']] == ['laptop']
    [plans] = blocks_of(view, 'table')
    column = plans['head'].index('bottleneck')
    assert [row[column] for row in plans['rows']] == ['laptop', 'air', 'laptop']
    record(tmp_path / 's', 'serving')
    assert 'bottleneck: dock, asked for 51.5 a second, can do 35.5' in blocks_of(
        Recorded(tmp_path / 's').view(0), 'headline')[0]['text']
    record(tmp_path / 'l', 'language')
    [drawn] = blocks_of(Recorded(tmp_path / 'l').view(0), 'map')
    assert [m['lines'][-1] for m in drawn['machines']][1] == 'the bottleneck: its disk'


def test_a_token_is_drawn_alone(tmp_path: Path) -> None:
    record(tmp_path / 'd', 'language')
    [first] = blocks_of(Recorded(tmp_path / 'd').view(0), 'gantt')
    assert ['drone', 'transfer', 'reads block 5'] in [s[:3] for s in first['spans']]
    assert max(s[4] for s in first['spans']) == pytest.approx(510.0)
    [second] = blocks_of(Recorded(tmp_path / 'd').view(1), 'gantt')
    assert [s[:3] for s in second['spans']] == [['rover', 'compute', 'block 3'],
                                                ['rover', 'compute', 'draws the token']]


@pytest.mark.parametrize('text', ['', '{', '[]', '{}', '{"models": 3}', '{"burst": {}}',
                                  '{"models": {"a": {"modes": {}}}}', '[' * 100_000])
def test_what_is_no_report_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / 'report.json').write_text(text)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        Recorded(tmp_path)


def test_a_folder_without_a_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'report\.json is missing: name a folder'):
        Recorded(tmp_path)


def test_pictures_stay_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / 'secret.png').write_bytes(b'x')
    record(tmp_path / 'd', 'sharing')
    found = Recorded(tmp_path / 'd')
    assert found.picture('hed/example.png')
    outside = ('../secret.png', str(tmp_path / 'secret.png'), 'report.json', 'no.png', '')
    assert [found.picture(name) for name in outside] == [None] * len(outside)


def test_numbers_of_strangers() -> None:
    assert [number(v) for v in (1, '2.5', 'nan', None, True, float('inf'), [], '1e999')] == [
        1.0, 2.5, None, None, None, None, None, None]
    assert [shown(v, 'ms') for v in (1234.5, 12.34, 1.234, 3, None)] == [
        '1,234 ms', '12.3 ms', '1.23 ms', '3 ms', '–']
    assert line('c', 'x', 'y', {'a': [(1, float('nan'))]}) is None
    assert bottleneck([]) == ''
