# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start both sides on one machine, to try them with a camera or a bag."""
from __future__ import annotations

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

from intradp_ros.nodes.launching import COMMON, common_arguments, params_file_argument, share


def include(file: str, **arguments: str) -> IncludeLaunchDescription:
    """Return another launch file with the common arguments and `arguments`: its names to ours."""
    names = {**{name: name for name in COMMON}, **arguments}
    return IncludeLaunchDescription(
        PythonLaunchDescriptionSource(share('launch', file)),
        launch_arguments={theirs: LaunchConfiguration(ours)
                          for theirs, ours in names.items()}.items())


def generate_launch_description() -> LaunchDescription:
    """Return the arguments of both sides and their launch files."""
    return LaunchDescription([
        *common_arguments(),
        params_file_argument('robot_params_file', 'robot.yaml'),
        params_file_argument('server_params_file', 'server.yaml'),
        params_file_argument('planner_params_file', 'planner.yaml'),
        DeclareLaunchArgument(
            'image_topic', default_value='image',
            description='Topic of sensor_msgs/Image that the robot takes its input from.'),
        DeclareLaunchArgument(
            'points_topic', default_value='points',
            description='Topic of sensor_msgs/PointCloud2, for models that take a grid of cells.'),
        include('server.launch.py', params_file='server_params_file',
                planner_params_file='planner_params_file'),
        include('robot.launch.py', params_file='robot_params_file', image_topic='image_topic',
                points_topic='points_topic'),
    ])
