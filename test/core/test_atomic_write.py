# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Files that are kept are complete, or as they were."""
from __future__ import annotations

import os
from pathlib import Path

from dispositions import files_of_at_most
import pytest

from intradp_ros.core.atomic_write import all_or_none, replacing, sole_writer, write_atomically


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / 'new' / 'file.json'
    write_atomically(path, 'old')
    with files_of_at_most(1000), pytest.raises(OSError, match='too large') as caught:
        write_atomically(path, 'x' * 5000)
    assert caught.value.filename == str(path)
    assert (path.read_text(), list(path.parent.iterdir())) == ('old', [path])


def test_of_several_files_all_are_written_or_none(tmp_path: Path) -> None:
    first, second = tmp_path / 'first', tmp_path / 'new' / 'second'
    first.write_text('old')
    with files_of_at_most(1000), pytest.raises(OSError, match='too large') as caught, \
            all_or_none():
        write_atomically(first, 'text')
        write_atomically(second, 'x' * 5000)
    assert caught.value.filename == str(second)
    assert [first.read_text(), *tmp_path.rglob('*')] == ['old', first, second.parent]
    with all_or_none():
        for path in (first, second):
            write_atomically(path, path.name)
        assert first.read_text() == 'old'
    assert (first.read_text(), second.read_text()) == ('first', 'second')
    assert sorted(tmp_path.rglob('*')) == [first, second.parent, second]


def test_pipes_without_a_name_are_written_and_errors_without_a_number_named(
        tmp_path: Path) -> None:
    """As /dev/stdout of a pipeline is, and `-o >(gzip)`."""
    there, here = os.pipe()
    write_atomically(Path(f'/dev/fd/{here}'), 'text')
    assert os.read(there, 9) == b'text'
    os.close(there), os.close(here)
    with pytest.raises(OSError, match='encoder error -2') as caught, replacing(tmp_path / 'a'):
        raise OSError('encoder error -2')
    assert caught.value.filename == str(tmp_path / 'a')


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
    (tmp_path / 'other').symlink_to(tmp_path / 'elsewhere')
    with sole_writer(tmp_path / 'other' / 'file'):
        assert (tmp_path / 'elsewhere').is_dir()
