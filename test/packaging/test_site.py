# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The documentation builds as a site without a warning."""
from __future__ import annotations

from pathlib import Path
import subprocess
import sys

ROOT = Path(__file__).resolve().parents[2]


def test_the_site_builds(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, '-m', 'mkdocs', 'build', '--site-dir', str(tmp_path)],
                          cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'WARNING' not in done.stderr
    for page in ('index.html', 'nodes.html', 'tutorials/own_model.html'):
        assert (tmp_path / page).exists()
