# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Messages as plain data become a view; those of strangers change nothing and take no room."""
from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.report.view.observed import FORGOTTEN, FRAMES, MOST, Observed, SILENT
from intradp_ros.wire.texts import packed

ROBOT = '/r/inference_node'


def status(name: str = ROBOT, level: int = 0, message: str = 'sharing', **values: Any) -> Any:
    return {'status': [{'name': name, 'level': level, 'message': message, 'values': [
        {'key': key, 'value': str(value)} for key, value in values.items()]}]}


def stats(number: int = 7, **changed: Any) -> Any:
    return {'inference': number, 'strategy': 'shared', 'schedule': 1, 'shared': True,
            'by_rows': True, 'recovered': False, 'latency_ms': 41.5, 'predicted_ms': 39.5,
            'alone_ms': 83.5, 'compute_ms': 21.5, 'waiting_ms': 12.5, 'extra_ms': 3.5,
            'bytes_up': 31000, 'bytes_down': 17000, 'energy_j': 0.75, **changed}


def state(**changed: Any) -> Any:
    return {'term': 1, 'epoch': 2, 'alive': ['a', 'c'], 'expected': ['a', 'b', 'c'],
            'plan': json.dumps({'stages': [{'operators': [0, 1, 2], 'members': [
                {'device': 'a', 'samples': 1}]}, {'operators': [3], 'members': [
                    {'device': 'c', 'samples': 1}]}]}), 'text': '1. a', 'coordinator': 'boss',
            'trouble': ['b refuses: its model is another one'], **changed}


def blocks(view: Any, kind: str, section: str = '') -> list[Any]:
    return [block for each in view['sections'] for block in each['blocks']
            if block['kind'] == kind and each['id'].startswith(section)]


def facts(view: Any, section: str) -> dict[str, str]:
    return dict(row for block in blocks(view, 'facts', section) for row in block['rows'])


def test_nothing_heard_says_where_was_looked() -> None:
    view = Observed('42').view({}, 0.0)
    assert view['sections'] == [] and 'ROS domain 42' in view['notes'][0]


def test_a_robot() -> None:
    seen = Observed()
    seen.take('DiagnosticArray', '/diagnostics', status(
        inferences=3, mode='auto', authenticated=True, host='jetson', host_load='0.50',
        host_memory_mb=8000, host_memory_used_mb=3000), 100.0)
    seen.take('LinkState', f'{ROBOT}/link', {
        'up_rate': 1.25e6, 'down_rate': 2.5e6, 'predicted_rate': 1e6, 'round_trip': 0.004,
        'connected': True}, 100.0)
    for k in range(5):
        seen.take('InferenceStats', f'{ROBOT}/stats', stats(k, latency_ms=41.5 + k), 100.0 + k)
    seen.take('ScheduleBook', '/schedule_book', {'robot': ROBOT, 'book': packed(json.dumps(
        {'entries': [{'partition': {'stages': [{'stop': 9, 'share': share}]}}
                     for share in (1.0, 0.375)]}))}, 100.0)
    seen.take('InferenceTimeline', f'{ROBOT}/timeline', {
        'inference': 2, 'lane': ['robot', 'server'], 'kind': ['compute'] * 2,
        'name': ['conv2d_1'] * 2, 'start': [0.0, 0.01], 'stop': [0.01, 0.04]}, 102.0)
    seen.take('SharingEvent', f'{ROBOT}/events', {
        'kind': 'outage', 'inference': 3, 'text': 'the link was cut'}, 103.0)
    seen.take('Image', '/r/result_image', {'png': b'PNG'.hex()}, 103.0)
    view = seen.view({'frame': f'{ROBOT} 2'}, 104.0)
    [[machine]] = [b['machines'] for b in blocks(view, 'map')]
    assert (machine['name'], machine['role'], machine['state']) == (ROBOT, 'robot', 'out')
    view = seen.view({'frame': f'{ROBOT} 2'}, 100.0 + SILENT - 0.1)
    [[machine]] = [b['machines'] for b in blocks(view, 'map')]
    assert machine['state'] == 'well' and 'with a key' in machine['lines']
    assert 'jetson: load 0.50, memory 3.0 of 8.0 GB' in machine['lines']
    [[link]] = [b['media'] for b in blocks(view, 'map')]
    assert 'up 10 Mbit/s' in link['text'] and 'down 20 Mbit/s' in link['text']
    assert 'round trip 4 ms' in link['text']
    said = facts(view, 'sharing')
    assert said['frame'] == '2' and said['latency'] == '43.5 ms' and said['sent'] == '31 kB'
    assert said['bottleneck'] == 'server, busy for 75% of the frame'
    [bars] = blocks(view, 'frames')
    assert bars['chosen'] == f'{ROBOT} 2'
    assert bars['rows'][2]['values'] == pytest.approx([21.5, 12.5, 9.5, 3.5])
    [rows] = blocks(view, 'bands')
    assert rows['stages'] == [[9, 0.375]] and rows['image'] == '/r/result_image'
    assert blocks(view, 'table')[0]['rows'] == [['outage', '3', 'the link was cut']]
    assert '45.5 ms, predicted 39.5 ms, alone 83.5 ms' in blocks(view, 'headline')[0]['text']


def test_what_is_old_is_not_reported_as_new() -> None:
    seen = Observed()
    for k, other in enumerate(({}, {'by_rows': False}, {'shared': False}, {'recovered': True})):
        seen.take('InferenceStats', f'{ROBOT}/stats', stats(k, **{
            'latency_ms': 50.0, 'alone_ms': 150.0, 'shared': True, 'by_rows': True,
            'recovered': False, **other}), 1.0)
    seen.take('LinkState', f'{ROBOT}/link', LINK, 1.0)
    seen.take('DiagnosticArray', '/diagnostics', status(ROBOT, inferences=3), 1.0)
    view = seen.view({}, 2.0)
    assert facts(view, 'sharing')['gain over local'] == '3.00 times as fast'
    assert facts(view, 'sharing')['who computed'] == (
        'both by rows 1, server took part 1, robot alone 1, robot finished 1')
    assert 'ago' not in blocks(view, 'headline', 'sharing')[0]['text']
    view = seen.view({}, 9.0)
    assert blocks(view, 'headline', 'sharing')[0]['text'].endswith('; this was 8 s ago')
    [[link]] = [b['media'] for b in blocks(view, 'map')]
    assert link['text'] == 'not heard for 8 s' and link['state'] == 'out'


def test_a_fleet_says_who_is_out_since_when_and_why() -> None:
    seen = Observed()
    seen.take('FleetState', '/fleet/state', state(alive=['a', 'b', 'c'], trouble=[]), 10.0)
    seen.take('FleetState', '/fleet/state', state(), 20.0)
    seen.take('FleetState', '/fleet/state', state(epoch=3), 25.0)
    for k in range(3):
        seen.take('FleetQoe', '/coordinator_node/qoe', {
            'latency_target': 0.5, 'frames': 80 + k, 'missed': 3, 'missed_share': 0.04,
            'latency': 0.412 + 0.1 * k, 'latency_expected': 0.401, 'joules': 123.0,
            'switches': 2}, 26.0 + k)
    view = seen.view({}, 80.0)
    [[out]] = [b['machines'] for b in blocks(view, 'map')]
    assert out['state'] == 'out' and out['lines'] == [
        'out for 60 s', 'b refuses: its model is another one', 'of fleet /fleet']
    assert facts(view, 'fleet')['missing'] == 'b'
    assert facts(view, 'fleet')['missed of the last 100'] == '4 %'
    assert blocks(view, 'table', 'fleet')[0]['rows'] == [['1', 'a', '3'], ['2', 'c', '1']]
    assert blocks(view, 'headline')[0] == {
        'kind': 'headline', 'tone': 'out',
        'text': 'Target of 500 ms missed: 612 ms, expected 401 ms'}
    seen.take('FleetState', '/fleet/state', state(alive=['a', 'b', 'c'], trouble=[]), 81.0)
    assert blocks(seen.view({}, 82.0), 'map') == []


def test_language_training_and_sites() -> None:
    seen = Observed()
    for k in range(4):
        seen.take('DiagnosticArray', '/diagnostics', status(
            '/head', weight_bytes_served=0, ms_per_token=171.5, tokens=6 * k, serving=1,
            requests_answered=3, disk_that_brakes='drone', computing_s=1.5,
            waiting_for_disk_s=2.5, waiting_for_peers_s=3.5, sent_bytes=4e6, read_bytes=5e6),
            10.0 + k)
        seen.take('DiagnosticArray', '/diagnostics', status(
            '/coordinator', missing='', rounds_done=k, round=f'{k} of 90', loss=2.5 - k / 4,
            samples_per_second=33, who='0-3: a(2)', lost='', rounds_replayed=7,
            **{'validation_loss': 3.25 - k / 4} if k > 1 else {}), 10.0 + k)
    for when, in_time, late in ((12.0, 74, 1), (13.0, 91, 4)):
        seen.take('Gateway', 'hall:8000', {
            'site': 'hall', 'executors': 2, 'links': ['dock'], 'hop_ms': {'dock': 1.5},
            'problems': {}, 'services': {'detector': {
                'in_time': in_time, 'late': late, 'refused': 3, 'cancelled': 2, 'lost': 0,
                'waiting': 5, 'p95_ms': 48.5, 'transfers': 6, 'asked': in_time + late + 5,
                'batches': [{'executor': k, 'size': 2, 'mean_ms': {'1': 90.0, '2': 100.0 + 25 * k}}
                            for k in range(2)]}}}, when)
    seen.take('Gateway', 'yard:8000', {'error': 'Connection refused'}, 13.0)
    view = seen.view({}, 13.5)
    [said] = blocks(view, 'headline', 'language')
    assert said['text'] == '6 tokens a second, 171.5 ms each; bottleneck: disk of drone'
    assert blocks(view, 'line', 'language')[0]['series'][0]['points'] == [
        [1.0, 6.0], [2.0, 6.0], [3.0, 6.0]]
    curves = {s['name']: s['points'] for s in blocks(view, 'line', 'training')[0]['series']}
    assert curves == {'training': [[0.0, 2.5], [1.0, 2.25], [2.0, 2.0], [3.0, 1.75]],
                      'validation': [[2.0, 2.75], [3.0, 2.5]]}
    assert facts(view, 'training')['rounds replayed'] == '7'
    [served] = blocks(view, 'line', 'serving')
    assert {s['name']: s['points'] for s in served['series']} == {
        'all': [[1.0, 20.0]], 'in time': [[1.0, 17.0]]}
    # 20 a second are asked for; the executors can do 20 and 16 at the best
    assert blocks(view, 'headline', 'serving')[0]['text'].endswith(
        'Lately 17 a second in time, 85% of the 20 that are possible: all that are asked for')
    assert facts(view, 'serving')['bottleneck'] == 'hall, 5 requests wait there'
    assert blocks(view, 'table', 'serving')[0]['rows'] == [
        ['hall', 'detector', '91', '4', '3', '2', '0', '5', '48.5 ms', '6']]
    states = {m['name']: m['state'] for b in blocks(view, 'map') for m in b['machines']}
    assert states == {'/head': 'well', '/coordinator': 'well', 'hall': 'well', 'yard:8000': 'out'}


def test_segments_say_what_is_in_memory_and_what_is_read() -> None:
    seen = Observed()
    seen.take('FleetState', '/fleet/state', state(plan=json.dumps({
        'pages': 40, 'slots': {'a': [[0], [1], [2]], 'c': [[3, 4], [5]], 'b': []}})), 1.0)
    [segments] = blocks(seen.view({}, 1.5), 'table', 'fleet')
    assert segments['caption'].endswith('a → c')
    assert segments['rows'] == [['a', '3: 0 to 2', '3: 0 to 2', 'none', '40'],
                                ['c', '3: 3 to 5', '1: 5', '2: 3 to 4', '40'],
                                ['b', 'none', 'none', 'none', '40']]


def test_the_busiest_device_is_the_bottleneck() -> None:
    seen = Observed()
    seen.take('FleetState', '/fleet/state', state(), 1.0)
    for k in range(4):
        for name, busy in (('a', 0.25), ('c', 0.75), ('stranger', 0.95)):
            seen.take('DiagnosticArray', '/diagnostics', status(
                f'/{name}', weight_bytes_served=0, device_name=name,
                stages_computing_s=busy * k), 1.0 + k)
    view = seen.view({}, 4.5)
    assert facts(view, 'fleet')['bottleneck'] == 'c, computing 75% of the time'
    assert blocks(view, 'headline', 'fleet')[0]['text'].endswith(
        '; bottleneck: c, computing 75% of the time')
    [machines] = [b['machines'] for b in blocks(view, 'map')]
    assert [m['name'] for m in machines if 'the bottleneck, computing 75% of the time'
            in m['lines']] == ['/c']
    seen.take('InferenceStats', f'{ROBOT}/stats', stats(latency_ms=50.0), 5.0)
    assert facts(seen.view({}, 5.5), 'sharing')['bottleneck'] == \
        'computing of the robot: 43% of the frame'


def test_a_node_that_warns_says_why() -> None:
    seen, lines = Observed(), {}
    for level, dropped in ((0, 3), (1, 9)):
        seen.take('DiagnosticArray', '/diagnostics', status(
            level=level, inferences=3, rejected_dropped=dropped, rejected_too_old=0,
            last_rejection='image 7 was late'), 1.0)
        [[machine]] = [b['machines'] for b in blocks(seen.view({}, 1.5), 'map')]
        lines[level] = machine['lines']
    assert 'not taken: 9 dropped: image 7 was late' in lines[1]
    assert not any('not taken' in line for line in lines[0])


def test_nodes_that_are_gone_are_forgotten() -> None:
    seen = Observed()
    seen.take('DiagnosticArray', '/diagnostics', status(inferences=3), 1.0)
    assert seen.view({}, 2.0)['sections'] and not seen.view({}, 2.0 + FORGOTTEN)['sections']


def test_strangers_take_no_room() -> None:
    seen = Observed()
    for k in range(2 * MOST):
        seen.take('InferenceStats', f'/r{k}/stats', stats(), 1.0)
        seen.take('FleetState', f'/f{k}/state', state(), 1.0)
        seen.take('Notice', f'/n{k}', {'text': 'x' * 10_000}, 1.0)
        seen.take('InferenceStats', '/r0/stats', stats(k), 1.0)
    view = seen.view({}, 2.0)
    assert len([s for s in view['sections'] if s['id'].startswith('sharing')]) == MOST
    assert max(len(b['rows']) for b in blocks(view, 'frames')) == FRAMES
    assert max(map(len, view['notes'])) <= 300


KINDS = ('DiagnosticArray', 'InferenceStats', 'LinkState', 'SharingEvent', 'FleetState',
         'InferenceTimeline', 'DeviceState', 'FleetQoe', 'ScheduleBook', 'Image', 'Gateway',
         'Notice', 'Else')
DEVICE = {'name': 'a', 'speed': 1.0, 'memory_bytes': 0.0, 'threads': 1, 'battery': None,
          'weight_bytes': 5}
LINK = {'up_rate': 1.0, 'down_rate': None, 'predicted_rate': 3.0, 'round_trip': None,
        'connected': False}
GOOD = (stats(), state(), DEVICE, LINK, status(inferences=1), status(missing='', rounds_done=1),
        {'kind': 'a', 'inference': 1, 'text': 'b'}, {'site': 'a', 'services': {}})
ANY = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                   lambda inner: st.lists(inner, max_size=3), max_leaves=4)


@st.composite
def messages(draw: st.DrawFn) -> tuple[str, Any]:
    """Draw a message of any kind, of which a field or two are anything."""
    data = dict(draw(st.sampled_from(GOOD)))
    for key in draw(st.lists(st.sampled_from(sorted(data)), max_size=2)):
        data[key] = draw(ANY)
    return draw(st.sampled_from(KINDS)), draw(st.just(data) | ANY)


@settings(max_examples=25, deadline=None)
@given(st.lists(messages(), max_size=8))
def test_anything_leaves_a_view_that_is_json(found: list[tuple[str, Any]]) -> None:
    seen = Observed()
    for kind, data in found:
        seen.take(kind, '/fleet/state', data, 1.0)
    json.dumps(seen.view({}, 2.0), allow_nan=False)
