# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A ROS domain for each test, on this machine only."""
from __future__ import annotations

from collections.abc import Iterator
import itertools
import os

import pytest
import rclpy

_numbers = itertools.count()


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return a domain that no other test uses; children of this process get it too."""
    number = 1 + (os.getpid() * 7 + next(_numbers)) % 100
    monkeypatch.setenv('ROS_DOMAIN_ID', str(number))
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    monkeypatch.delenv('INTRADP_TRANSPORT', raising=False)
    return number


@pytest.fixture
def context(domain: int) -> Iterator[rclpy.Context]:
    """Return a ROS context in that domain."""
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain)
    yield context
    context.try_shutdown()
