# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Tests that wait for other processes get a second try.

Their limits are generous, but a shared machine may stand still for longer.
What fails once is listed as RERUN in the summary; what fails twice fails.
"""
from __future__ import annotations

import pytest

#: Rooms whose tests start processes, or wait for what comes over DDS.
WAITING = {'cli', 'core', 'dds', 'lab', 'nodes', 'rqt', 'system'}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of those rooms."""
    here = config.rootpath / 'test'
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] in WAITING:
            item.add_marker(pytest.mark.flaky(reruns=1))
