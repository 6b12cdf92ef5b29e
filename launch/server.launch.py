# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start the server's side: the offload node and the planner node."""
from __future__ import annotations

from launch import LaunchDescription

from intradp_ros.nodes.launching import common_arguments, node, node_group, params_file_argument


def generate_launch_description() -> LaunchDescription:
    """Return the server's arguments and nodes."""
    return LaunchDescription([
        *common_arguments(),
        params_file_argument('params_file', 'server.yaml'),
        params_file_argument('planner_params_file', 'planner.yaml'),
        node_group(node('offload_node', 'params_file'),
                   node('planner_node', 'planner_params_file')),
    ])
