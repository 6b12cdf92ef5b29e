# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Files that are kept are complete, or as they were."""
from __future__ import annotations

from pathlib import Path
import resource

import pytest

from intradp_ros.core.atomic_write import write_atomically


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / 'new' / 'file.json'
    write_atomically(path, 'old')
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match='too large') as caught:
            write_atomically(path, 'x' * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(path)
    assert (path.read_text(), list(path.parent.iterdir())) == ('old', [path])


def test_a_link_is_followed(tmp_path: Path) -> None:
    link = tmp_path / 'link'
    link.symlink_to(tmp_path / 'target')
    write_atomically(link, 'text')
    assert link.is_symlink() and (tmp_path / 'target').read_text() == 'text'
