# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A robot (slowed) and a server in two network namespaces that share HED on a video."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import os
from pathlib import Path
import tempfile
from typing import Any

from intradp_lab.emulation import network, slow_device
from intradp_lab.emulation.processes import Child, ros_arguments, starter
from intradp_ros.core.processes import Command
from intradp_ros.dds.transport_profile import transport_environment

MBPS, SETUP_TIMEOUT = 20.0, 300.0
#: Variables of nodes that are not slowed.
COMMON = {'RMW_IMPLEMENTATION': 'rmw_fastrtps_cpp', **transport_environment('udp')}


@contextmanager
def shared_video(size: str, rate_hz: float,
                 ) -> Iterator[tuple[network.ShapedLink, Callable[[Command], Child]]]:
    """Yield the link and what starts more; pictures of a `size` come, and are shared."""
    model = f'intradp_lab.zoo.hed:hed 1x3x{size} uint8'
    cores = sorted(os.sched_getaffinity(0))
    slow = COMMON if slow_device.available() else {**COMMON, **slow_device.slow_environment()}
    with tempfile.TemporaryDirectory() as folder, network.shaped_link(MBPS) as link, \
            starter(Path(folder)) as start:
        def node(side: str, module: str, environment: Any, **parameters: Any) -> Child:
            return start(Command(
                module.rpartition('.')[2], ros_arguments(module, parameters=parameters),
                link.exec_prefix(side), cores[:1] if side == 'robot' else cores[1:],
                environment))

        node('server', 'intradp_ros.nodes.sharing.offload_node', COMMON, models=[model])
        node('server', 'intradp_ros.nodes.sharing.planner_node', COMMON,
             **{'grid.points': 3, 'grid.low_mbps': MBPS / 2, 'grid.high_mbps': MBPS * 2})
        robot = node('robot', 'intradp_ros.nodes.sharing.inference_node', slow, model=model)
        robot.wait_for_line(': sharing$', SETUP_TIMEOUT)
        node('robot', 'intradp_lab.camera_node', COMMON, frames=600, rate_hz=rate_hz)
        yield link, start
