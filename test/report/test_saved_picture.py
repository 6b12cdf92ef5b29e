# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A picture that cannot be drawn to its end leaves the old one."""
from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
import pytest

from intradp_ros.report.saved_picture import save_picture


class Broken(Figure):
    """Ends while it is written, as at Ctrl-C or on a full disk."""

    def savefig(self, part: Path, **how: object) -> None:  # type: ignore[override]
        part.write_bytes(b'half')
        raise KeyboardInterrupt


def test_the_old_picture_stays(tmp_path: Path) -> None:
    path = tmp_path / 'new folder' / 'picture.SVG'
    save_picture(Figure(), path)
    before = path.read_bytes()
    assert b'<svg' in before
    with pytest.raises(KeyboardInterrupt):
        save_picture(Broken(), path)
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]
