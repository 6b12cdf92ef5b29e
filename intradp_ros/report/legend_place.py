# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Where a figure's legend goes, by the release of matplotlib."""
from __future__ import annotations

from typing import Any

import matplotlib


def outside(place: str) -> Any:
    """
    Return the location beside the axes that is called `place`, as ``lower center``.

    Before matplotlib 3.7 (Ubuntu 24.04 has 3.6) no room is kept for a legend
    there: it lies on what is at that edge of the figure.
    """
    version = tuple(int(part) for part in matplotlib.__version__.split('.')[:2])
    return f'outside {place}' if version >= (3, 7) else place
