# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp plan`: a book from two profiles, as data, table and pictures."""
from __future__ import annotations

import json

import pytest

from intradp_ros.systems.sharing.book.book import ScheduleBook

MODEL = ('example_models:dense', '--input', '1x3x96x48')
GRID = ('--grid', '2:200:3')
PNG = b'\x89PNG'


def test_the_book_is_never_worse_than_the_alternatives(intradp, tmp_path):
    path = tmp_path / 'books' / 'book.json'
    result = intradp('plan', *MODEL, '--robot-slowdown', 8, *GRID, '-o', path, '--json')
    assert result.status == 0
    data = result.json
    assert {row['mbps'] for row in data['grid']} >= {2, 20, 200}
    for row in data['grid']:
        others = min(row[f'{mode}_ms'] for mode in ('local', 'offload', 'cut'))
        assert row['bound_ms'] <= row['shared_ms']
        assert row['over_bound'] == pytest.approx(row['shared_ms'] / row['bound_ms'])
        assert row['shared_ms'] <= others * (1 + 1e-9)
        assert row['gain'] == pytest.approx(1 - row['shared_ms'] / others)
        assert row[f'{row["chosen"]}_ms'] == row['shared_ms']
    assert data['devices']['robot'].startswith('scaled, not measured: 8 x')
    assert data['whole_ms']['robot'] == pytest.approx(8 * data['whole_ms']['server'])
    assert ScheduleBook.load(path) == ScheduleBook.from_json(json.dumps(data['book']))


def test_profiles_from_files(intradp, tmp_path):
    path = tmp_path / 'profile.json'
    intradp('profile', *MODEL, '-o', path)
    data = intradp('plan', *MODEL, '--robot-profile', path, '--server-profile', path, *GRID,
                   '--json').json
    assert data['devices']['robot'] == data['devices']['server']


def test_a_profile_of_another_model_is_refused(intradp, tmp_path):
    path = tmp_path / 'profile.json'
    intradp('profile', 'example_models:dense', '--input', '1x3x24x16', '-o', path)
    result = intradp('plan', *MODEL, '--robot-profile', path, *GRID)
    assert result.status == 2 and 'profile the same weights' in result.err


def test_the_table_and_the_pictures(intradp, tmp_path):
    plot, timeline = tmp_path / 'plots' / 'book.png', tmp_path / 'plots' / 'timeline.png'
    result = intradp('plan', *MODEL, '--robot-slowdown', 8, *GRID, '--picture', plot, '--show', 30,
                     '--timeline', timeline)
    assert result.status == 0
    assert plot.read_bytes().startswith(PNG) and timeline.read_bytes().startswith(PNG)
    assert 'shared schedule for 20 Mbit/s' in result.out
    assert 'scaled, not measured' in result.out


def test_the_stages_add_up_to_the_schedule(intradp):
    data = intradp('plan', *MODEL, '--robot-slowdown', 8, *GRID, '--show', 200, '--json').json
    show, row = data['show'], data['grid'][-1]
    assert show['predicted_ms'] == pytest.approx(row['shared_ms'])
    assert sum(s['bytes_up'] for s in show['stages']) == row['bytes_up']
    assert sum(s['bytes_down'] for s in show['stages']) == row['bytes_down']
    for side in ('robot', 'server'):
        computed = sum(s[f'{side}_ms'] for s in show['stages'])
        assert computed == pytest.approx(show['busy_ms'][side])


def test_lossy_encodings_are_reported_with_their_effect(intradp, tmp_path):
    """Off by default; the effect is measured, printed and kept in the book."""
    path = tmp_path / 'book.json'
    plan = ('plan', *MODEL, '--robot-slowdown', 8, *GRID)
    exact = intradp(*plan, '--json').json
    assert exact['lossy'] == '' and exact['lossy_difference'] is None
    assert not {'fp16', 'int8'} & set(exact['encodings'])
    result = intradp(*plan, '--lossy', 'fp16', '-o', path)
    assert 'lossy fp16: outputs differ by up to' in result.out
    book = ScheduleBook.load(path)
    assert book.lossy == 'fp16' and 0 < book.lossy_difference < 0.01
    with pytest.raises(SystemExit):
        intradp(*plan, '--lossy', 'zip')


def test_for_energy_the_robot_spends_no_more_than_the_others_in_time(intradp, tmp_path):
    front = tmp_path / 'plots' / 'front.png'
    data = intradp('plan', *MODEL, '--robot-slowdown', 8, *GRID, '--objective', 'energy',
                   '--deadline', 5, '--show', 20, '--pareto', front, '--json').json
    assert front.read_bytes().startswith(PNG)
    for row in data['grid']:
        assert row['shared_j'] <= min(row[f'{mode}_j'] for mode in ('local', 'offload', 'cut'))
    points = [(point['latency_ms'], point['joules']) for point in data['front']]
    assert points == sorted(points)
    assert [joules for _, joules in points] == sorted((j for _, j in points), reverse=True)
    assert data['book']['objective'] == 'energy'


@pytest.mark.parametrize('options', [
    ('--pareto', 'front.png'), ('--deadline', 0), ('--joule', -1)])
def test_impossible_goals_are_refused(intradp, options):
    assert intradp('plan', *MODEL, '--robot-slowdown', 8, *GRID, *options).status == 2
