# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Nodes of ROS 2, and what they share."""
from __future__ import annotations

import os
from pathlib import Path

# Before torch is imported: its store would write a page for each stranger's nonsense, without end.
os.environ.setdefault('TORCH_CPP_LOG_LEVEL', 'ERROR')


def node_modules() -> dict[str, str]:
    """Return the modules of this package's nodes by the names of their executables."""
    here = Path(__file__).parent
    return {path.stem: f'{__name__}.{path.parent.name}.{path.stem}'
            for path in sorted(here.glob('*/*_node.py'))}
