# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start a machine of a fleet: its device node."""
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
    """Return the device's arguments and node."""
    return described('device.launch.py', [
        *common_arguments(transport='air'),
        params_file_argument('params_file', 'device.yaml'),
        DeclareLaunchArgument(
            'name', default_value='device',
            description='Name of the machine in its fleet, and of the node.'),
        DeclareLaunchArgument(
            'image_topic', default_value='image',
            description='Topic of sensor_msgs/Image, for a device that requests inferences.'),
    ], [node('device_node', 'params_file', [('image', LaunchConfiguration('image_topic'))],
             name='name', overrides={'name': 'device_name'})])
