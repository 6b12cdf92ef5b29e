# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Architectures of public packages: captured, exact in parts, their work nearly all local."""
from __future__ import annotations

import pytest
from survey.architectures import Architecture, read_list
from survey.measure import measure

CHOSEN = [architecture for architecture in read_list() if architecture.in_tests]


@pytest.mark.parametrize('architecture', CHOSEN, ids=lambda architecture: architecture.name)
def test_splits_exactly(architecture: Architecture) -> None:
    try:
        record = measure(architecture)
    except ModuleNotFoundError as error:
        pytest.skip(f'{error}; `make test` installs it')
    assert record['status'] == 'exact', record
    assert record['method'] in ('export', 'trace')
    assert record['local_flops'] >= 0.95
    assert record['split_flops'] >= 0.95
