# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start what keeps a fleet on a plan: the coordinator node."""
from __future__ import annotations

from launch import LaunchDescription

from intradp_ros.nodes.common.launching import (
    common_arguments,
    described,
    node,
    params_file_argument,
)


def generate_launch_description() -> LaunchDescription:
    """Return the coordinator's arguments and node."""
    return described('coordinator.launch.py', [
        *common_arguments(transport='air'),
        params_file_argument('params_file', 'coordinator.yaml'),
    ], [node('coordinator_node', 'params_file')])
