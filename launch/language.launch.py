# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start a board that holds a part of a language model: its language node."""
from __future__ import annotations

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument

from intradp_ros.nodes.common.launching import (
    common_arguments,
    described,
    node,
    params_file_argument,
)


def generate_launch_description() -> LaunchDescription:
    """Return the board's arguments and node."""
    return described('language.launch.py', [
        *common_arguments(transport='air'),
        params_file_argument('params_file', 'language.yaml'),
        DeclareLaunchArgument(
            'name', default_value='board',
            description='Name of the board in its fleet, and of the node.'),
    ], [node('language_node', 'params_file', name='name', overrides={'name': 'device_name'})])
