# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0
"""A robot that shares inferences, watched in rqt: what is seen knows neither ROS nor Qt."""
