# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Files with secrets, which only their owner may read."""
from __future__ import annotations

from pathlib import Path
import stat


def check_private(path: Path, what: str) -> None:
    """Raise ValueError if others than its owner may read a file; `what` says what it is."""
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(f'others may read {what} {path}: chmod 600 {path}')
