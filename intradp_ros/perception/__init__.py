# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""From pictures to a model's input, and from its outputs to what they say. Knows no ROS."""
