# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Start what serves models to many robots on this machine: the gateway node."""
from __future__ import annotations

from launch import LaunchDescription

from intradp_ros.nodes.common.launching import (
    common_arguments,
    described,
    node,
    params_file_argument,
)


def generate_launch_description() -> LaunchDescription:
    """Return the gateway's arguments and node."""
    return described('gateway.launch.py', [
        *common_arguments(),
        params_file_argument('params_file', 'gateway.yaml'),
    ], [node('gateway_node', 'params_file')])
