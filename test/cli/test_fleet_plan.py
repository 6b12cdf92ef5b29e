# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp fleet plan``: tables, JSON, the plan file, pictures, and what it refuses."""
import json

from dispositions import files_of_at_most
import pytest

from intradp_ros.cli.main import main
from intradp_ros.schedule.stage_plan import StagePlan

FLEET = """\
devices:
  robot: {memory: 30 MB, speed: 0.1, power: {compute: 13, send: 5, idle: 4}}
  helper: {memory: 30 MB, speed: 0.2, power: {compute: 13, send: 5, idle: 4}}
  box: {memory: 30 MB}
networks:
  wifi: {access point: 400 Mbit/s, delay: 1 ms, devices: [robot, helper, box], wired: [box]}
"""


def layers(count=12, megabytes=4):
    nodes = [f'node{k} -- Conv({k}) -- forward_compute_time=10.000, backward_compute_time=0.000, '
             f'activation_size=100000.0, parameter_size={megabytes * 1e6:.3f}'
             for k in range(1, count)]
    edges = [f'\tnode{k} -- node{k + 1}' for k in range(count - 1)]
    return '\n'.join(['node0 -- Input -- forward_compute_time=1.000, backward_compute_time=0.000, '
                      'activation_size=300000.0, parameter_size=0.000', *nodes, *edges])


@pytest.fixture
def files(tmp_path):
    (tmp_path / 'fleet.yaml').write_text(FLEET)
    (tmp_path / 'graph.txt').write_text(layers())
    return tmp_path


def plan(files, *options):
    return main(['fleet', 'plan', str(files / 'graph.txt'), '--fleet', str(files / 'fleet.yaml'),
                 *options])


def test_a_model_too_large_for_any_device_is_planned_and_drawn(files, capsys):
    assert plan(files, '--batches', '3', '--json', '-o', str(files / 'plan.json'),
                '--timeline', str(files / 'gantt.png'), '--loads', str(files / 'loads.png')) == 0
    found = json.loads(capsys.readouterr().out)
    best = found['best']
    assert {name for stage in best['stages'] for name in stage['samples']} >= {'helper', 'box'}
    assert best['latency'] >= best['bound'] * (1 - 1e-9)
    assert max(best['memory'].values()) <= 30e6
    assert found['others']['one device'] is None
    rivals = [other for other in found['others'].values() if other]
    assert rivals and all(best['latency'] <= other['latency'] * (1 + 1e-6) for other in rivals)
    written = json.loads((files / 'plan.json').read_text())
    assert written['predicted']['stages'] == best['stages']
    for name in ('gantt.png', 'loads.png'):
        assert (files / name).read_bytes()[:4] == b'\x89PNG'


def test_a_picture_that_does_not_fit_takes_its_plan_with_it(files, capsys):
    (files / 'plan.json').write_text('of before')
    words = ['-o', str(files / 'plan.json'), '--timeline', str(files / 'gantt.png')]
    there = sorted(files.iterdir())
    with files_of_at_most(9000):
        assert plan(files, *words) == 2
    assert f'{files}/gantt.png: File too large' in capsys.readouterr().err
    assert (files / 'plan.json').read_text() == 'of before' and sorted(files.iterdir()) == there
    assert plan(files, *words, '--loads', str(files / 'gantt.png')) == 2
    assert 'is the file of --timeline, too: name another' in capsys.readouterr().err


def test_a_network_is_planned_and_its_plan_can_be_read_again(files, capsys):
    assert main(['fleet', 'plan', 'small_models:dense', '--input', '1x3x64x96', '--dtype', 'uint8',
                 '--fleet', str(files / 'fleet.yaml'), '--qoe', 'latency=500ms,energy=min',
                 '-o', str(files / 'plan.json')]) == 0
    assert 'EdgeShard' in capsys.readouterr().out
    found = StagePlan.from_json(json.loads((files / 'plan.json').read_text()))
    assert found.source == 'robot'


def test_the_plan_of_two_devices_is_compared_with_sharing_rows(files, capsys):
    (files / 'pair.yaml').write_text(
        'devices: {robot: {memory: 1 GB, speed: 0.05}, box: {memory: 1 GB}}\n'
        'networks: {wifi: {access point: 100 Mbit/s, devices: [robot, box], wired: [box]}}\n')
    assert main(['fleet', 'plan', 'small_models:dense', '--input', '1x3x64x96', '--dtype', 'uint8',
                 '--fleet', str(files / 'pair.yaml'), '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    shared = found['shared']
    assert 0 < shared['bound'] <= shared['latency'] * (1 + 1e-9)
    alone = found['others']['one device']['latency']
    assert shared['latency'] <= 1.05 * alone, 'sharing may leave all to one side'


@pytest.mark.parametrize('options, message', [
    (('--source', 'moon'), "no device 'moon'"),
    (('--energy-limit', 'moon=3'), "no device 'moon'"),
    (('--samples', '0'), '--samples: must be 1 to 64'),
    (('--samples', '65'), '--samples: must be 1 to 64, not 65'),
    (('--batches', '1000000'), '--batches: must be 1 to 256, not 1000000'),
    (('--keep', '1001'), '--keep: must be 1 to 1000, not 1001'),
    (('--keep', '0'), '--keep: must be 1 to 1000'),
])
def test_what_cannot_be_planned_is_reported(files, capsys, options, message):
    assert plan(files, *options) == 2
    assert message in capsys.readouterr().err


def test_what_fits_nowhere_is_reported(files, capsys):
    (files / 'graph.txt').write_text(layers(megabytes=40))
    assert plan(files) == 2
    assert 'MB of memory in all' in capsys.readouterr().err


def test_a_target_that_is_none_is_refused(files, capsys):
    assert plan(files, '--qoe', 'comfort=max') == 2
    assert 'latency=200ms' in capsys.readouterr().err


def test_counts_are_checked_before_the_network_is_read(files, capsys):
    assert main(['fleet', 'plan', 'no_such_module:make', '--input', '1x3x8x8', '--fleet',
                 str(files / 'fleet.yaml'), '--batches', '1000000']) == 2
    assert '--batches: must be 1 to 256, not 1000000' in capsys.readouterr().err


def test_as_many_devices_as_a_file_may_name_get_a_plan(files, capsys):
    names = [f'd{k}' for k in range(256)]
    (files / 'fleet.yaml').write_text(
        'devices:\n' + ''.join(f'  {name}: {{memory: 1 GB, speed: {1 + k % 7}}}\n'
                               for k, name in enumerate(names))
        + f'networks: {{air: {{access point: 100Mbit/s, devices: [{", ".join(names)}]}}}}\n')
    assert plan(files, '--json') == 0
    out = capsys.readouterr()
    assert json.loads(out.out)['best']['latency'] > 0
    assert '224 with the least speed and memory are left out' in ' '.join(out.err.split())


def test_work_without_seconds_gets_a_plan(files, capsys):
    (files / 'graph.txt').write_text(layers().replace('time=10.000', 'time=0.000')
                                     .replace('time=1.000', 'time=0.000'))
    assert plan(files, '--batches', '2', '--json') == 0
    assert json.loads(capsys.readouterr().out)['best']['meets']
