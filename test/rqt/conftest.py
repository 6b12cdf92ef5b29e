# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A ROS context in a domain of its own, and Qt without a screen."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from node_processes import own_domain
import pytest
import rclpy


@pytest.fixture(scope='module')
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rclpy.Context]:
    with own_domain(tmp_path_factory.mktemp('rqt')):
        context = rclpy.Context()
        rclpy.init(context=context)
        yield context
        context.try_shutdown()


@pytest.fixture(scope='session')
def application() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('QT_QPA_PLATFORM', 'offscreen')
        try:
            from qtpy import QtWidgets
        except Exception as error:  # no binding, or none whose libraries the machine has
            pytest.skip(f'no Qt: {error}')
        yield QtWidgets.QApplication.instance() or QtWidgets.QApplication(['test'])
