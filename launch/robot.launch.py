# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start the robot's side: the inference node."""
from __future__ import annotations

from launch import LaunchDescription

from intradp_ros.nodes.common.launching import (
    common_arguments,
    described,
    pair_arguments,
    params_file_argument,
    robot_arguments,
    robot_node,
)


def generate_launch_description() -> LaunchDescription:
    """Return the robot's arguments and node."""
    return described('robot.launch.py', [
        *common_arguments(), *pair_arguments(), params_file_argument('params_file', 'robot.yaml'),
        *robot_arguments()], [robot_node('params_file')])
