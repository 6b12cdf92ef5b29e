# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Pictures in files, each whole or as it was."""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from intradp_ros.core.atomic_write import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_picture(figure: Figure, path: Path, dpi: float | None = None) -> None:
    """Write a figure in the format that the suffix of its file says; folders are made."""
    with replacing(path) as part:
        figure.savefig(part, format=path.suffix[1:].lower() or 'png', dpi=dpi or 'figure')
