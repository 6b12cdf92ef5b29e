# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What cannot be written is reported at once, not after the work."""
from __future__ import annotations

import argparse
from pathlib import Path
import re

import pytest

from intradp_ros.cli.output_paths import result_file, result_folder, result_picture

ROOT = Path(__file__).parents[2]


def test_what_can_be_written_is_taken(tmp_path: Path) -> None:
    (tmp_path / 'old').touch()
    assert result_file(f'{tmp_path}/old') == tmp_path / 'old'
    assert result_file(f'{tmp_path}/new/er/file') == tmp_path / 'new/er/file'
    assert result_folder(str(tmp_path)) == tmp_path
    assert result_folder('out/bench') == Path('out/bench')
    assert result_picture(f'{tmp_path}/a.SVG') == tmp_path / 'a.SVG'
    assert result_file('/dev/null') == Path('/dev/null')


def test_what_cannot_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'file').touch()
    (tmp_path / 'loop').symlink_to('loop')
    for read, name, why in (
            (result_file, str(tmp_path), 'is a folder'),
            (result_file, f'{tmp_path}/loop', 'leads to itself'),
            (result_file, f'{tmp_path}/file/below', 'is a file'),
            (result_folder, f'{tmp_path}/file/below', 'is a file'),
            (result_picture, f'{tmp_path}/file.txt', 'not a picture'),
            (result_picture, f'{tmp_path}/file/a.png', 'is a file')):
        with pytest.raises(argparse.ArgumentTypeError, match=why):
            read(name)


@pytest.mark.parametrize('script', sorted((*ROOT.glob('bench/*.py'), *ROOT.glob('tools/*/*.py'))),
                         ids=lambda path: path.stem)
def test_benchmarks_look_before_they_measure(script: Path) -> None:
    """Who finds no folder for the figures of an hour loses them."""
    for option in re.findall(r"'--(?:json|plot|out|keep)', type=.*", script.read_text()):
        assert re.search(r'type=result_(file|folder|picture)\b', option), option
    assert not re.search(r'json\.write_text|savefig', script.read_text())


def test_commands_say_so_before_they_load_a_model(intradp, tmp_path: Path) -> None:
    (tmp_path / 'file').touch()
    for words in (('plan', 'no:model', '-o'), ('profile', 'no:model', '-o'), ('demo', '--out')):
        assert intradp(*words, tmp_path / 'file' / 'below').status == 2
