# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Factories of several inputs, which services.yaml names; rows that would mix go one by one."""
from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest
import torch

from intradp_ros.runtime.models.catalogue import ModelSpecError
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.systems.serving.executor import _named, Opened, RemoteExecutor
from intradp_ros.systems.serving.executor_messages import json_message
from intradp_ros.systems.serving.loaded_service import load_service
from intradp_ros.systems.serving.service import parse_services, TensorSpec

NETS = """
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(17, 5)

    def forward(self, image, state, scale=None):
        x = self.head(torch.cat([image.float().flatten(1), state], 1))
        return {'actions': x, 'best': x.argmax(1)}


class Rare(nn.Module):
    def forward(self, x):
        return torch.where(x.abs().max() > 100, x.softmax(0), x)


def policy():
    torch.manual_seed(0)
    return Policy().eval()


def rare():
    return Rare()
"""


@pytest.fixture(autouse=True)
def nets(tmp_path, monkeypatch):
    (tmp_path / 'nets_of_two.py').write_text(NETS)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module('nets_of_two')


@pytest.mark.parametrize('inputs', [
    '{image: uint8 3x2x2, state: float32 5}', '{state: float32 5, image: uint8 3x2x2}',
    pytest.param('{observation/image: uint8 3x2x2, observation/state: float32 5}',
                 marks=pytest.mark.slow)])
def test_inputs_go_by_name_or_in_order(nets, inputs):
    service, = parse_services('services:\n  a: {model: "nets_of_two:policy", deadline: 1 s, '
                              f'batches: [1, 2], inputs: {inputs}}}')
    found = load_service(service.model, service.batches, open_device('cpu'), service.inputs)
    assert found.sizes == (1, 2) and not found.ladder.why
    opened = _named(Opened(found.inputs, found.outputs, (1,), (0.1,), (0.0,)), service)
    assert {spec.name: spec for spec in opened.inputs} == {
        spec.name: spec for spec in service.inputs}
    image, state = torch.randint(0, 256, (2, 3, 2, 2), dtype=torch.uint8), torch.randn(2, 5)
    rows = {'uint8': image, 'float32': state}
    outputs = found.run([rows[spec.dtype] for spec in opened.inputs], 2)
    wanted = nets.policy()(image, state)
    for out, want in zip(outputs, wanted.values()):
        torch.testing.assert_close(out, want)


def test_a_factory_without_shape_asks_for_inputs():
    with pytest.raises(ModelSpecError, match='inputs'):
        load_service('nets_of_two:policy', (1,), open_device('cpu'))


def test_rows_that_mix_for_rare_numbers_go_one_by_one():
    found = load_service('nets_of_two:rare 1x4', (1, 2, 4), open_device('cpu'))
    assert found.sizes == (1,) and found.ladder.why.startswith('rows of a batch may mix')


class Loading(RemoteExecutor):
    """An executor whose process is this test."""

    def _send(self, parts):
        raise AssertionError('a batch behind a model that is being loaded')


def test_nothing_is_served_while_another_model_is_being_loaded():
    services = dict(enumerate(parse_services('services:\n' + ''.join(
        f'  {name}: {{model: "a:b 1x4", deadline: 1 s}}\n' for name in 'abc'))))
    heard = []
    executor = Loading(0, services, SimpleNamespace(
        opened=lambda *said: heard.append(said[1]), failed=lambda *said: heard.append(said[1:])))
    for number in (1, 2, 0, 0):
        if number == 2:
            executor._heard(bytearray(json_message(said='failed', service=2, error='no')))
        else:
            executor._heard(bytearray(json_message(
                said='opened', service=number, sizes=[1], seconds=[0.1], spread=[0], why='',
                nbytes=1, load_seconds=1, digest='', inputs=[['x', 'float32', [4]]],
                outputs=[['y', 'float32', [4]]])))
        assert heard == [(2, 'no'), 1, 0, 0][:{1: 0, 2: 1, 0: len(heard)}[number]]
    assert heard == [(2, 'no'), 1, 0, 0]


def test_declared_names_stand_for_the_inputs_of_that_name():
    """Two inputs of one shape in another order are not exchanged."""
    real = tuple(TensorSpec(name, 'float32', (4,)) for name in ('left', 'right'))
    service, = parse_services('services: {a: {model: "a:b", deadline: 1 s, '
                              'inputs: {right: float32 4, left: float32 4}}}')
    assert _named(Opened(real, real, (1,), (0.1,), (0.0,)), service).inputs == real
