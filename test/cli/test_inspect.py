# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp inspect`: what it says of models whose figures are known by hand."""
from __future__ import annotations

import cv2
import numpy as np
import pytest


def test_a_dense_network_is_local(intradp):
    data = intradp('inspect', 'example_models:dense', '--input', '1x3x40x16', '--json').json
    assert data['local_share'] == 1.0 and data['rows_meet'] == []
    assert (data['axis'], data['rows']) == (2, 40)
    assert data['inputs'][0]['bytes'] == 3 * 40 * 16 * 4
    assert data['outputs'][0]['shape'] == [1, 4, 40, 16]
    assert data['kinds']['global']['operators'] == 0


def test_outputs_have_the_names_that_the_model_gives_them(intradp):
    data = intradp('inspect', 'example_models:named_outputs', '--input', '1x3x24x16',
                   '--json').json
    assert [(output['name'], output['shape'][1]) for output in data['outputs']] == [
        ('heat', 1), ('size', 2)]


def test_rows_meet_at_the_global_pooling_of_a_classifier(intradp):
    data = intradp('inspect', 'example_models:classifier', '--input', '1x3x33x16', '--json').json
    [pooling] = data['rows_meet']
    assert pooling['target'] == 'intradp.total_reduction.default'
    # a record of each part: sums of 12 channels in double precision
    assert (pooling['barrier_bytes'], pooling['records']) == (12 * 8, True)
    convolutions = 2 * (8 * 17 * 8) * 27 + 2 * (12 * 15 * 6) * 72
    assert data['kinds']['block-wise']['flops'] == convolutions
    assert data['local_share'] == pytest.approx(1 - data['kinds']['global']['flops']
                                                / data['flops'])


def test_every_operator_is_listed_on_demand(intradp):
    arguments = ('inspect', 'example_models:dense', '--input', '1x3x24x16', '--operators')
    data = intradp(*arguments, '--json').json
    rows = data['operator_list']
    assert len(rows) == data['operators']
    assert sum(row['flops'] for row in rows) == data['flops']
    assert {row['reads'] for row in rows if row['target'] == 'aten.conv2d.default'} == {1, 3}
    text = intradp(*arguments).out
    assert all(row['name'] in text for row in rows)


def test_the_axis_can_be_chosen(intradp):
    data = intradp('inspect', 'example_models:dense', '--input', '1x3x40x16', '--axis', 3,
                   '--json').json
    assert (data['axis'], data['rows']) == (3, 16)


def test_axes_are_compared(intradp):
    arguments = ('inspect', 'example_models:dense', '--input', '1x3x40x16')
    data = intradp(*arguments, '--json').json
    first, second = data['axes']
    assert [(axis['axis'], axis['rows']) for axis in (first, second)] == [(2, 40), (3, 16)]
    assert first['divided_share'] > second['divided_share'] > 0.85
    assert 0 < first['exchanged_bytes'] < second['exchanged_bytes']
    assert first['barriers'] == 0
    assert '2 (taken)' in intradp(*arguments).out


def test_several_inputs(intradp):
    data = intradp('inspect', 'example_models:two_inputs', '--input', '1x3x8x6', '--input',
                   '1x3x8x6', '--json').json
    assert [value['name'] for value in data['inputs']] == ['image', 'other']


@pytest.mark.parametrize('size, shape', [(None, [1, 3, 20, 30]), ('16x24', [1, 3, 16, 24])])
def test_an_image_is_an_input(intradp, tmp_path, size, shape):
    path = tmp_path / 'picture.png'
    cv2.imwrite(str(path), np.zeros((20, 30, 3), np.uint8))
    options = ['--size', size] if size else []
    data = intradp('inspect', 'example_models:classifier', '--input', path, *options, '--dtype',
                   'uint8', '--json').json
    assert data['inputs'][0]['shape'] == shape
    assert data['inputs'][0]['dtype'] == 'uint8'


def test_an_archive_is_the_model_that_was_saved(intradp, archive):
    archived = intradp('inspect', archive, '--json').json
    made = intradp('inspect', 'example_models:dense', '--input', '1x3x24x16', '--json').json
    assert archived['digest'] == made['digest']


def test_an_archive_takes_no_other_input(intradp, archive):
    result = intradp('inspect', archive, '--input', '1x3x24x18')
    assert result.status == 2
    assert '1x3x24x16 float32' in result.err and '1x3x24x18 float32' in result.err
