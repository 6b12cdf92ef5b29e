# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Where the package keeps recorded devices and links, and the paper's tables."""
from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def package_data(*names: str) -> Path:
    """Return a file of the package's data; the package lies in files, never in an archive."""
    return Path(str(files('intradp_lab').joinpath('data', *names)))
