# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Draw the picture of the rqt plugin in the documentation, from a run of the real nodes.

A robot (slowed) and a server in two network namespaces share HED on a video;
the link is cut for a moment.  Needs root, as `make demo` does:

    python tools/rqt_picture.py doc/images/rqt.png
"""
from __future__ import annotations

import os
from pathlib import Path
import sys
import tempfile
import time
from typing import Any

from intradp_lab.emulation import network, slow_device
from intradp_lab.emulation.processes import Child, ros_arguments, starter
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.dds.transport_profile import transport_environment

MODEL = 'intradp_lab.zoo.hed:hed 1x3x144x336 uint8'
MBPS, RATE_HZ = 20.0, 1.5
BEFORE, CUT, AFTER = 15.0, 4.0, 25.0  # seconds
SETUP_TIMEOUT = 300.0


def main(path: Path) -> None:
    """Run the nodes, and let the window write its picture."""
    cores = sorted(os.sched_getaffinity(0))
    common = {'RMW_IMPLEMENTATION': 'rmw_fastrtps_cpp', **transport_environment('udp')}
    slow = common if slow_device.available() else {**common, **slow_device.slow_environment()}
    with tempfile.TemporaryDirectory() as folder, network.shaped_link(MBPS) as link, \
            starter(Path(folder)) as start:
        def node(side: str, module: str, environment: Any, **parameters: Any) -> Child:
            return start(Command(
                module.rpartition('.')[2], ros_arguments(module,
                                                         parameters=parameters),
                link.exec_prefix(side), cores[:1] if side == 'robot' else cores[1:],
                environment))

        node('server', 'intradp_ros.nodes.sharing.offload_node', common, models=[MODEL])
        node('server', 'intradp_ros.nodes.sharing.planner_node', common,
             **{'grid.points': 3, 'grid.low_mbps': MBPS / 2, 'grid.high_mbps': MBPS * 2})
        robot = node('robot', 'intradp_ros.nodes.sharing.inference_node', slow, model=MODEL)
        robot.wait_for_line(': sharing$', SETUP_TIMEOUT)
        node('robot', 'intradp_lab.camera_node', common, frames=600, rate_hz=RATE_HZ)
        window = start(Command(
            'window', module_arguments(
                'intradp_ros.rqt.sharing_window', '--timeline', '--picture', str(path), '--after',
                str(BEFORE + CUT + AFTER)),
            link.exec_prefix('robot'), (), {**common, 'QT_QPA_PLATFORM': 'offscreen'}))
        time.sleep(BEFORE)
        link.cut()
        time.sleep(CUT)
        link.restore()
        deadline = time.monotonic() + AFTER + SETUP_TIMEOUT
        while window.returncode is None and time.monotonic() < deadline:
            time.sleep(0.5)
        if window.returncode:
            raise SystemExit(window.output())


if __name__ == '__main__':
    main(Path(sys.argv[1]).resolve())
