# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0
"""A robot that shares inferences, watched in rqt: the view of its frames, drawn by Qt."""
