# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Nodes of ROS 2, and what they share."""
from __future__ import annotations

import os

# Before torch is imported: its store would write a page for each stranger's nonsense, without end.
os.environ.setdefault('TORCH_CPP_LOG_LEVEL', 'ERROR')
