# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start the server's side: the offload node and the planner node."""
from __future__ import annotations

from launch import LaunchDescription

from intradp_ros.nodes.common.launching import (
    common_arguments,
    described,
    pair_arguments,
    params_file_argument,
    server_nodes,
)


def generate_launch_description() -> LaunchDescription:
    """Return the server's arguments and nodes."""
    return described('server.launch.py', [
        *common_arguments(), *pair_arguments(), params_file_argument('params_file', 'server.yaml'),
        params_file_argument('planner_params_file', 'planner.yaml')],
        server_nodes('params_file', 'planner_params_file'))
