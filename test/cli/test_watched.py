# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp demo --watch`: the page is there while the demo runs, and listens where it does."""
from __future__ import annotations

from pathlib import Path
import re
import sys
import urllib.error
import urllib.request

import pytest

from intradp_lab.cli.watched import watched
from intradp_lab.emulation.emulated_pair import Side


def test_the_page_lives_as_long_as_the_demo(tmp_path: Path) -> None:
    noted, said = tmp_path / 'noted', list[str]()
    script = f'import os, sys; open({str(noted)!r}, "w").write(os.environ["ROS_DOMAIN_ID"])'
    place = Side((sys.executable, '-c', script), (), {'ROS_DOMAIN_ID': '87'})
    with watched(place, True, said.append):
        url = re.search(r'http://127\.0\.0\.1:\d+/?', said[0])[0]
        with urllib.request.urlopen(url) as page:
            assert b'intradp view' in page.read()
        with urllib.request.urlopen(f'{url.rstrip("/")}/stream') as stream:
            view = stream.readline()
            assert b'ROS domain 87' in view
            while b'has ended' not in view:  # what stands in front of its command ran in its place
                view = stream.readline()
        assert noted.read_text() == '87'
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url)


def test_nothing_is_served_unasked() -> None:
    said: list[str] = []
    with watched(Side(), False, said.append):
        assert said == []
