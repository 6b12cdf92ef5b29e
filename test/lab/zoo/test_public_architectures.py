# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Architectures of public packages: captured, exact in parts, their work nearly all local."""
from __future__ import annotations

import pytest
from survey.architectures import Architecture, read_list
from survey.measure import measure

CHOSEN = [architecture for architecture in read_list() if architecture.in_tests]
#: One of each kind: plain and mobile convolutions, attention of windows and of few rows, a
#: detector with its boxes.  The others are of the same operators, which `test/split` tests.
ALWAYS = ('efficientnet_b0', 'swin_t', 'mobilevitv2_050', 'pvt_v2_b0', 'ssdlite320', 'yolo11n')


@pytest.mark.parametrize('architecture', [
    pytest.param(each, id=each.name, marks=() if each.name in ALWAYS else pytest.mark.slow)
    for each in CHOSEN])
def test_splits_exactly(architecture: Architecture) -> None:
    try:
        record = measure(architecture)
    except ModuleNotFoundError as error:
        pytest.skip(f'{error}; `make test` installs it')
    assert record['status'] == 'exact', record
    assert record['method'] in ('export', 'trace')
    assert record['local_flops'] >= 0.95
    assert record['split_flops'] >= 0.95
