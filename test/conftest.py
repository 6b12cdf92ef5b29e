# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which tests run side by side, and which get a second try.

``make check`` runs two processes (pytest-xdist).  All tests that start ROS
nodes, share network namespaces or measure time stay in one of them, one after
another; of the others the tests of a file stay together.

Tests that wait for other processes get a second try.  Their limits are
generous, but a shared machine may stand still for longer.  What fails once is
listed as RERUN in the summary; what fails twice fails.
"""
from __future__ import annotations

import os
from pathlib import Path

import pytest

#: Rooms whose tests start processes, or wait for what comes over DDS.
WAITING = {'cli', 'core', 'dds', 'lab', 'nodes', 'rqt', 'system'}
#: Rooms and files whose tests need the machine's network, or its time.
TOGETHER = (
    'cli/test_demo_fleet.py', 'cli/test_doctor.py', 'cli/test_fleet_run.py',
    'cli/test_pipeline_check.py', 'core', 'dds', 'lab/emulation', 'lab/fleet', 'lab/soak',
    'lab/testbed', 'link', 'nodes', 'packaging', 'profiling', 'rqt', 'system')


def pytest_configure(config: pytest.Config) -> None:
    """Leave the other process a processor."""
    if 'PYTEST_XDIST_WORKER' in os.environ:
        import torch
        torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests by their place."""
    here = config.rootpath / 'test'
    for item in items:
        if item.path.is_relative_to(here):
            _mark(item, item.path.relative_to(here))


def _mark(item: pytest.Item, place: Path) -> None:
    if place.parts[0] in WAITING:
        item.add_marker(pytest.mark.flaky(reruns=1))
    together = any(place.is_relative_to(room) for room in TOGETHER)
    item.add_marker(pytest.mark.xdist_group('together' if together else str(place)))
