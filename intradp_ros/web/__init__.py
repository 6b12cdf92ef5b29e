# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""HTTP for programs that are not ROS nodes: a server on a thread, API keys, limits by client."""
