# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp fleet run`: a network in stages on devices in this process."""
from __future__ import annotations

import argparse
from dataclasses import replace
import json
from pathlib import Path

from node_processes import own_domain
import pytest
import small_models
import torch

from intradp_lab.cli.fleet_run import _local_fleet
from intradp_lab.emulation.device_limits import available as cannot_limit
from intradp_lab.emulation.network import available
from intradp_lab.fleet.namespace_fleet import device_times
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.main import main
from intradp_ros.cluster.fleet_file import read_fleet
from intradp_ros.graph.capture import capture
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.schedule.stage_cuts import parse_stages, plan_of_cuts
from intradp_ros.schedule.stage_plan import PlanError
from intradp_ros.split.split_graph import split_graph
from intradp_ros.systems.fleet.pipeline_planner import read_plan

FLEET = """\
devices:
  robot: {memory: 4 GB, speed: 1}
  box: {memory: 4 GB, speed: 1}
  server: {memory: 4 GB, speed: 2}
networks:
  wifi: {access point: 40 Mbit/s, devices: [robot, box, server], wired: [server], port: 1 Gbit/s}
"""
MODEL = ('small_models:dense', '--input', '1x3x64x96', '--dtype', 'uint8')


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    path = tmp_path / 'fleet.yaml'
    path.write_text(FLEET)
    return str(path)


def test_answers_are_exact_and_predicted_beside_measured(
        fleet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One device has a profile of its own: it takes three times as long as this machine."""
    assert main(['profile', *MODEL, '-o', str(tmp_path / 'own.json')]) == 0
    profile = Profile.from_json((tmp_path / 'own.json').read_text())
    slow = replace(profile, scale=3 * profile.scale)
    (tmp_path / 'slow.json').write_text(slow.to_json())
    Path(fleet).write_text(FLEET.replace('box: {memory: 4 GB, speed: 1}',
                                         'box: {memory: 4 GB, profile: slow.json}'))
    times = device_times(read_fleet(Path(fleet)), profile, {'box': slow}, tmp_path)
    assert {name: speed for name, (_, speed) in times.items()} == {
        'robot': 1.0, 'box': 1.0, 'server': 2.0}
    assert Profile.from_json(Path(times['box'][0]).read_text()).scale == slow.scale
    capsys.readouterr()
    status = main(['fleet', 'run', *MODEL, '--fleet', fleet, '--stages', 'robot,box,server',
                   '--frames', '30', '--json'])
    data = json.loads(capsys.readouterr().out)
    assert status == 0 and data['exact'] and data['max_rel_diff'] < 1e-4
    assert [[m['device'] for m in stage['members']] for stage in data['plan']['stages']] == [
        ['robot'], ['box'], ['server']]
    assert {d['device'] for s in data['plan']['stages'] for d in s['members']} >= {'box'}
    says, saw = data['predicted'], data['measured_on_emulated_devices']
    assert 0.9 < saw['latency'] / says['latency'] < 1.25
    assert 0.8 < saw['fps'] / says['fps'] < 1.1


@pytest.mark.parametrize('words, message', [
    (('--stages', 'robot,nobody'), "'nobody' is not in the fleet"),
    (('--stages', 'robot@1,box@1,server'), 'a stage of them empty'),
    (('--stages', 'robot,box', '--frames', '1'), '--frames: must be 2 to 10000, not 1'),
    (('--stages', 'robot,box', '--frames', '10001'), '--frames: must be 2 to 10000'),
    (('--stages', 'robot,box', '--alone', '10001'), '--alone: must be 1 to 10000'),
    (('--stages', 'robot,box', '--limits'), '--limits: goes with --nodes'),
    (('--plan', 'plan.json'), 'plan.json')])
def test_what_cannot_be_run_is_refused(fleet: str, words: tuple[str, ...], message: str,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['fleet', 'run', *MODEL, '--fleet', fleet, *words]) == 2
    assert message in capsys.readouterr().err


def test_a_result_without_dimensions_comes_from_emulated_devices_too(
        fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['fleet', 'run', 'small_models:scalar', *MODEL[1:], '--fleet', fleet, '--stages',
                 'robot,box', '--frames', '3', '--alone', '1', '--json']) == 0
    data = json.loads(capsys.readouterr().out)
    assert data['exact'] and data['measured_on_emulated_devices']['latency'] > 0


def test_a_plan_that_a_device_refuses_ends_with_its_cause(fleet: str) -> None:
    """The box has another model than the plan is for."""
    topology = read_fleet(Path(fleet)).topology
    split = split_graph(capture(small_models.scalar(), (torch.zeros(1, 3, 16, 16),)))
    other = split_graph(capture(small_models.scalar(), (torch.zeros(1, 3, 24, 24),)))
    model, unlike = SharedModel(split, 'a' * 64), SharedModel(other, 'b' * 64)
    plan = plan_of_cuts(model.digest, 'robot', parse_stages('robot,box'),
                        [1.0] * len(split.operators), dict.fromkeys(topology.names, 1.0))
    args = argparse.Namespace(inflight=0, frames=2, alone=1)
    with pytest.raises(CommandError, match='come together: .*box has no model aaaaaaaaaaaa'):
        _local_fleet(args, topology, plan, {'robot': model, 'box': unlike, 'server': model})


@pytest.mark.parametrize('content, cause', [
    (b'\xff\xfe\x00\x01' * 40, 'no text in UTF-8'), (b'[[[[', 'no JSON'),
    (b'[' * 100_000, 'nested too deeply'), (b'[' * 200_000, 'at most 131072'),
    (b'', 'no JSON'), (b'[]', 'not a plan'), (b'{"format": NaN}', 'not a plan'),
    (b' ' * (4 << 20) + b'{}', 'longer than')], ids=range(8))
def test_files_that_are_no_plan_are_named_with_the_cause(
        tmp_path: Path, content: bytes, cause: str) -> None:
    path = tmp_path / 'plan.json'
    path.write_bytes(content)
    with pytest.raises(PlanError, match=cause) as refused:
        read_plan(str(path))
    assert str(path) in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize('option', ['--plan', '--profile'])
@pytest.mark.parametrize('content', [b'\xff\x00' * 9, b'[[[[', b'[' * 100_000, b'null'])
def test_odd_files_end_the_command_with_a_line(
        fleet: str, tmp_path: Path, option: str, content: bytes,
        capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / 'odd.json'
    path.write_bytes(content)
    others = ('--stages', 'robot,box') if option == '--profile' else ()
    assert main(['fleet', 'run', *MODEL, '--fleet', fleet, *others, option, str(path)]) == 2
    message = capsys.readouterr().err
    assert str(path) in ''.join(message.split('\n')) and 'Traceback' not in message


RING = """\
devices:
  robot: {memory: 2 GB, speed: 1, disk: 50 MB/s}
  box: {memory: 2 GB, speed: 1}
  server: {memory: 2 GB, speed: 1}
  laptop: {memory: 2 GB, speed: 1}
networks:
  cables: {ring: 40 Mbit/s, devices: [robot, box, server, laptop]}
"""


@pytest.mark.slow
@pytest.mark.skipif(available() is not None, reason=str(available()))
@pytest.mark.skipif(cannot_limit() is not None, reason=str(cannot_limit()))
def test_nodes_in_a_ring_with_limits_are_exact(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / 'ring.yaml'
    path.write_text(RING)
    with own_domain(tmp_path):
        status = main(['fleet', 'run', *MODEL, '--fleet', str(path), '--stages',
                       'robot,server,laptop', '--frames', '10', '--nodes', '--limits', '--json'])
    data = json.loads(capsys.readouterr().out)
    assert status == 0 and data['exact'] and data['max_rel_diff'] < 1e-4
    assert data['carried'] == 'DDS'
