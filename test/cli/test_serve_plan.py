# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp serve plan`, and `serve up` by its file."""
import json

import pytest

from intradp_ros.cli.main import main
from intradp_ros.systems.serving.placement_plan import read_placement

FLEET = """
devices:
  box1: {memory: 8 GB, site: dock, gateway: "127.0.0.1:8451"}
  box2: {memory: 8 GB, speed: 0.5, site: hall, gateway: "127.0.0.1:8452"}
networks:
  wire: {access point: 1 Gbit/s, delay: 3 ms, devices: [box1, box2], wired: [box1, box2]}
"""
SERVICES = """
services:
  edges:
    model: "intradp_ros.perception.oriented_energy:oriented_energy 1x3x144x336 uint8"
    deadline: 2 s
    rate: 1
  detector:
    model: emulated
    deadline: 100 ms
    inputs: {image: uint8 3x8x8}
    outputs: {boxes: float32 10x4}
    seconds: {1: 10 ms, 8: 30 ms}
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / 'fleet.yaml').write_text(FLEET)
    (tmp_path / 'services.yaml').write_text(SERVICES)
    return ['--fleet', str(tmp_path / 'fleet.yaml'), '--services', str(tmp_path / 'services.yaml')]


def test_a_plan_is_measured_predicted_and_written(files, tmp_path, capsys):
    written = tmp_path / 'placement.json'
    assert main(['serve', 'plan', *files, '--robots', '1', '--asked', 'detector=20', '--asked',
                 'detector@hall=5', '--executors', '2', '-o', str(written), '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    assert found['services']['detector']['asked_per_s'] == 25
    assert found['services']['edges']['asked_per_s'] == 2
    assert found['services']['edges']['category'] == 'frequency'
    sizes = found['services']['edges']['allocation']
    assert sizes['hall']['per_s'] < sizes['dock']['per_s'], 'at half the speed'
    assert sum(found['services']['detector'][fate] for fate in (
        'in_time', 'late', 'refused', 'cancelled')) == pytest.approx(25)
    assert found['goodput'] <= found['bound_of_placement'] <= found['bound'] <= 27 + 1e-6
    plan = read_placement(written)
    assert plan.to_json() == found['placement'] and all(
        len(executors) == 2 for executors in plan.sites.values())


def test_a_model_that_cannot_be_captured_is_named(files, tmp_path, monkeypatch, capsys):
    (tmp_path / 'nets_that_draw.py').write_text(
        'import torch\n\n\nclass Noise(torch.nn.Module):\n    def forward(self, x):\n'
        '        return x + torch.rand_like(x)\n')
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'services.yaml').write_text(
        'services: {edges: {model: "nets_that_draw:Noise 1x4", deadline: 1 s}}')
    assert main(['serve', 'plan', *files, '--asked', 'edges=1']) == 2
    assert 'intradp serve: service edges: the model draws random' in capsys.readouterr().err


def test_tables_are_shown_without_json(files, capsys):
    assert main(['serve', 'plan', *files, '--asked', 'detector=20']) == 0
    shown = capsys.readouterr().out
    assert 'requests a second in time' in shown and 'placement' in shown and 'binds' in shown


@pytest.mark.parametrize('asked, why', [
    ([], 'nothing is asked for'), (['detector'], 'write NAME=N'), (['x=3'], 'services are edges'),
    (['detector@yard=3'], 'sites dock, hall'), (['detector=-1'], 'write NAME=N'),
    (['detector=nan'], 'write NAME=N')])
def test_what_cannot_be_asked_for_is_refused_by_name(files, asked, why, capsys):
    assert main(['serve', 'plan', *files, *(f'--asked={one}' for one in asked)]) == 2
    assert why in ' '.join(capsys.readouterr().err.split())


def test_a_plan_of_another_fleet_is_refused(files, tmp_path, capsys):
    pytest.importorskip('websockets')
    plan = tmp_path / 'plan.json'
    plan.write_text('{"format": "placement/1", "sites": {"yard": [["detector"]]}}')
    up = ['serve', 'up', *files, '--device', 'box1', '--plan', str(plan)]
    assert main(up) == 2
    assert "no site 'dock'" in ' '.join(capsys.readouterr().err.split())
    plan.write_text('{"format": "placement/1", "sites": {"dock": [["detector"]]}}')
    assert main([*up, '--executors', '2']) == 2
    assert 'leave --executors out' in ' '.join(capsys.readouterr().err.split())
