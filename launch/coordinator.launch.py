# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start what keeps a fleet on a plan: the coordinator node."""
from __future__ import annotations

from launch import LaunchDescription

from intradp_ros.nodes.launching import common_arguments, node, node_group, params_file_argument


def generate_launch_description() -> LaunchDescription:
    """Return the coordinator's arguments and node."""
    return LaunchDescription([
        *common_arguments(),
        params_file_argument('params_file', 'coordinator.yaml'),
        node_group(node('coordinator_node', 'params_file')),
    ])
