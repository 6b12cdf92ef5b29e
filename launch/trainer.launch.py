# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start what trains a network on this machine: the trainer node."""
from __future__ import annotations

from launch import LaunchDescription

from intradp_ros.nodes.common.launching import (
    common_arguments,
    described,
    node,
    params_file_argument,
)


def generate_launch_description() -> LaunchDescription:
    """Return the trainer's arguments and node."""
    return described('trainer.launch.py', [
        *common_arguments(),
        params_file_argument('params_file', 'trainer.yaml'),
    ], [node('trainer_node', 'params_file')])
