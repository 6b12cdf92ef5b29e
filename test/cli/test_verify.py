# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp verify`: what is exact passes, what is not fails, what proves nothing is replaced."""
from __future__ import annotations

from imagined_accelerator import ACCELERATORS, kernels, NAME
import pytest
import torch

from intradp_ros.graph.capture import capture
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.to_float64 import double_inputs, in_double

SHAPE = '1x3x38x30'


@pytest.mark.parametrize('model', ['dense', 'classifier'])
def test_an_exact_model_passes_in_both_precisions(intradp, model):
    result = intradp('verify', f'example_models:{model}', '--input', SHAPE, '--json')
    data = result.json
    assert result.status == 0 and data['exact'] and not data['calibrated']
    assert data['worst']['double'] <= 1e-12 and data['worst']['own'] <= 1e-5
    assert data['split_share'] > 0.95
    tried = {(t['precision'], t['parts'], t['seed']) for t in data['trials']}
    assert tried == {('own', 1, 0)} | {(precision, parts, seed) for precision in ('double', 'own')
                                       for parts in (2, 3, 7) for seed in (0, 1)}


@pytest.mark.parametrize('device', ACCELERATORS)
def test_an_accelerator_is_held_against_the_processor(intradp, device):
    kernels.clear()
    result = intradp('verify', 'example_models:dense', '--input', SHAPE, '--seeds', 1, '--device',
                     device, '--json')
    assert result.status == 0 and result.json['exact']
    assert bool(kernels) == (device == NAME)
    assert set(result.json['worst']) == {'double', 'own'}


def test_a_model_that_makes_rounding_visible_fails(intradp):
    arguments = ('verify', 'example_models:amplifier', '--input', SHAPE, '--seeds', 1)
    result = intradp(*arguments, '--json')
    assert result.status == 1 and not result.json['exact']
    result = intradp(*arguments)
    assert result.status == 1 and 'NOT exact' in result.out


def test_a_constant_output_is_calibrated_away(intradp):
    arguments = ('verify', 'example_models:constant', '--input', SHAPE, '--seeds', 1, '--json')
    result = intradp(*arguments)
    assert result.json['calibrated'] and 'weights are calibrated' in result.err
    constant = intradp(*arguments, '--calibrate', 'never').json
    assert not constant['calibrated']


def test_parts_and_seeds_can_be_chosen(intradp):
    data = intradp('verify', 'example_models:dense', '--input', SHAPE, '--parts', 5, '--seeds', 3,
                   '--seed', 10, '--calibrate', '--json').json
    split = [t for t in data['trials'] if t['parts'] > 1]
    assert {(t['parts'], t['seed']) for t in split} == {(5, 10), (5, 11), (5, 12)}
    assert data['calibrated']


def test_an_archive_is_verified(intradp, archive):
    result = intradp('verify', archive, '--seeds', 1, '--json')
    assert result.status == 0 and result.json['split_share'] == 1.0


def test_a_graph_in_double_computes_what_the_model_in_double_does(example_models):
    torch.manual_seed(0)
    model = example_models.classifier().eval()
    image = torch.randint(0, 256, (1, 3, 24, 16), dtype=torch.uint8)
    [wide] = run_graph(in_double(capture(model, image)), double_inputs((image,)))
    assert wide.dtype == torch.float64
    with torch.no_grad():
        features = model.double().features(image.double())
        expected = model.head(features.mean((2, 3)))
    torch.testing.assert_close(wide, expected, rtol=1e-12, atol=1e-12)
