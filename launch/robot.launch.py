# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start the robot's side: the inference node."""
from __future__ import annotations

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration

from intradp_ros.nodes.launching import common_arguments, node, node_group, params_file_argument


def generate_launch_description() -> LaunchDescription:
    """Return the robot's arguments and node."""
    return LaunchDescription([
        *common_arguments(),
        params_file_argument('params_file', 'robot.yaml'),
        DeclareLaunchArgument(
            'image_topic', default_value='image',
            description='Topic of sensor_msgs/Image that the node takes its input from.'),
        DeclareLaunchArgument(
            'points_topic', default_value='points',
            description='Topic of sensor_msgs/PointCloud2, for models that take a grid of cells.'),
        node_group(node('inference_node', 'params_file',
                        [('image', LaunchConfiguration('image_topic')),
                         ('points', LaunchConfiguration('points_topic'))])),
    ])
