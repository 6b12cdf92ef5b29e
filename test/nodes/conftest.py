# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A ROS context in a domain of its own."""
from __future__ import annotations

from collections.abc import Iterator

from node_processes import own_domain
import pytest
import rclpy
import torch


@pytest.fixture(scope='module')
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rclpy.Context]:
    threads = torch.get_num_threads()
    with own_domain(tmp_path_factory.mktemp('nodes')):
        context = rclpy.Context()
        rclpy.init(context=context)
        yield context
        context.try_shutdown()
    torch.set_num_threads(threads)
