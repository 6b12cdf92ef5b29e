# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Files that are kept are complete, or as they were."""
from __future__ import annotations

import os
from pathlib import Path
import resource

import pytest

from intradp_ros.core.atomic_write import sole_writer, write_atomically


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


def test_no_link_or_pipe_that_others_laid_is_written_or_waited_for(tmp_path: Path) -> None:
    """Where a file's name of before could be guessed, and where the one of writers' lock can."""
    path, other = tmp_path / 'file', tmp_path / 'other'
    other.write_text('of another')
    (tmp_path / f'.file.{os.getpid()}').symlink_to(other)
    write_atomically(path, 'text')
    assert not path.is_symlink() and (path.read_text(), other.read_text()) == (
        'text', 'of another')
    lock = tmp_path / '.file.lock'
    for lay in (lambda: lock.symlink_to(other), lambda: os.mkfifo(lock)):
        lay()
        with pytest.raises(OSError, match='is a link or a pipe.*remove it.*lock'), \
                sole_writer(path):
            pass
        lock.unlink()
    assert other.read_text() == 'of another'
    lock.touch()  # of a process that was killed
    with sole_writer(path), pytest.raises(OSError, match='another process'), sole_writer(path):
        pass
    assert not lock.exists()


def test_a_folder_that_a_link_points_at_is_made(tmp_path: Path) -> None:
    (tmp_path / 'link').symlink_to(tmp_path / 'there')
    write_atomically(tmp_path / 'link' / 'file', 'text')
    assert (tmp_path / 'there' / 'file').read_text() == 'text'
