# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Every figure of the README has a command that regenerates it."""
from __future__ import annotations

from pathlib import Path
import re

from list_figures import figures_in, README
from make_targets import TARGETS
import pytest

ROOT = README.parent


def exists(command: str) -> bool:
    """Return whether a make target, a benchmark or a test that is named is there."""
    if made := re.match(r'make ([\w-]+)', command):
        return made.group(1) in TARGETS
    if script := re.match(r'((?:bench|test|tools)/[\w./-]+)', command):
        return (ROOT / script.group(1)).exists()
    return command == 'setting' or command.startswith('intradp ')


@pytest.mark.parametrize('block', list(figures_in(README.read_text())),
                         ids=lambda b: f'line {b.line}')
def test_figures_have_a_command(block) -> None:
    assert block.commands, f'README.md:{block.line} gives {block.figures} and names no command'
    assert all(map(exists, block.commands)), block.commands


@pytest.mark.parametrize('figure', [
    '40 µs', '31 μs', '5 us', '3 h', '2 GiB', '1.5 Gbit/s', '30 Hz', '16 of 30', '32 of the 48',
    '531 images', 'all 60', 'eight of them', 'nine of twelve', '12 %'])
def test_a_figure_is_found_as_people_write_it(figure: str) -> None:
    (block,) = figures_in(f'It was {figure} in that run.\n')
    assert len(block.figures) == 1 and figure.startswith(block.figures[0])


def test_a_figure_without_a_command_is_found(tmp_path: Path) -> None:
    text = ('It took 5 ms.\n\n20 to 57 % less. <!-- by: make demo; bench/overhead.py -->\n\n'
            '```\n7 s\n```\n\n| a | 3 MB |\n\n<!-- by: make x -->\n\nNo figures in 2026.\n')
    first, second, third = figures_in(text)
    assert (first.commands, first.figures) == ((), ('5 ms',))
    assert second.commands == ('make demo', 'bench/overhead.py')
    assert (third.line, third.commands) == (9, ('make x',))
    assert exists('make demo') and not exists('make x') and not exists('bench/no.py')
