# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start a robot's side that computes nothing: the node that asks gateways."""
from __future__ import annotations

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration

from intradp_ros.nodes.common.launching import (
    common_arguments,
    described,
    node,
    params_file_argument,
)


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and node."""
    return described('client.launch.py', [
        *common_arguments(),
        params_file_argument('params_file', 'client.yaml'),
        DeclareLaunchArgument(
            'image_topic', default_value='image',
            description='Topic of sensor_msgs/Image that the robot takes its input from.'),
    ], [node('client_node', 'params_file', [('image', LaunchConfiguration('image_topic'))])])
