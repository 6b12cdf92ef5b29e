# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The documentation builds as a site without a warning."""
from __future__ import annotations

import os
from pathlib import Path
import re
import subprocess
import sys

ROOT = Path(__file__).resolve().parents[2]


def test_the_site_builds(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, '-m', 'mkdocs', 'build', '--site-dir', str(tmp_path)],
                          cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, 'NO_MKDOCS_2_WARNING': '1'})
    assert done.returncode == 0, done.stderr
    assert 'WARNING' not in done.stderr
    for page in ('index.html', 'nodes.html', 'tutorials/own_model.html'):
        assert (tmp_path / page).exists()
    mathematics = (tmp_path / 'planning.html').read_text()
    assert '<math' in mathematics and '$' not in re.sub(r'<code>.*?</code>', '', mathematics)
    home = (tmp_path / 'index.html').read_text()
    assert 'idea.svg#only-light' in home and 'idea-dark.svg#only-dark' in home
    pages = {path: path.read_text() for path in tmp_path.rglob('*.html')}
    assert not [path for path, text in pages.items() if 'prefers-color-scheme: dark' in
                ''.join(re.findall(r'<source[^>]*>', text))]
    for page in ('tutorials/own_model.html', 'commands.html', 'install.html'):  # code has colours
        assert re.search(r'<pre>.*<span class="[a-z]+">', pages[tmp_path / page])
    assert not re.findall(r'(?:src|href)="(https?:[^"]*\.(?:js|css|woff2?))"', home)
