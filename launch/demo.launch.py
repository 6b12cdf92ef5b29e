# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start both sides on one machine, to try them with a camera or a bag."""
from __future__ import annotations

from launch import LaunchDescription

from intradp_ros.nodes.common.launching import (
    common_arguments,
    described,
    pair_arguments,
    params_file_argument,
    robot_arguments,
    robot_node,
    server_nodes,
)


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and nodes of both sides."""
    return described('demo.launch.py', [
        *common_arguments(), *pair_arguments(),
        params_file_argument('robot_params_file', 'robot.yaml'),
        params_file_argument('server_params_file', 'server.yaml'),
        params_file_argument('planner_params_file', 'planner.yaml'),
        *robot_arguments()],
        [*server_nodes('server_params_file', 'planner_params_file'),
         robot_node('robot_params_file')])
