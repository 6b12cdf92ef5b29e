# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
List the figures of the README, each with the command that regenerates it.

A block of the README (a paragraph, a list or a table) that gives a figure
ends with a comment ``<!-- by: COMMAND -->``, or has it right below it;
several commands are divided by ``;``.  ``setting`` stands for a number that
is chosen and not measured.  Called without arguments; ``--check`` only says
what lacks a command, and ends with 1 if anything does.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
import re
import sys

README = Path(__file__).resolve().parents[1] / 'README.md'
#: A number with a unit, or a ratio: what somebody must have measured, computed or chosen.
_FIGURE = re.compile(
    r'\d(?:[\d.,e-]*\d)?\s*(?:%|[mµμun]?s\b|min\b|minutes?\b|seconds?\b|h\b|hours?\b|[kMG]?i?B\b|'
    r'[kMG]bit/s|J\b|W\b|Hz\b|times\b|frames\b|images\b|fps\b|messages\b|'
    r'of (?:(?:the|all) )?\d)', re.ASCII)
#: Or how many of something: "all 60 frames", "nine of twelve points", "eight of them".
_COUNTED = re.compile(
    r'\b(?:all \d[\d,]*|(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve) of '
    r'(?:(?:the|all) )?(?:\w+teen|\w+ty|four|five|six|seven|eight|nine|ten|eleven|twelve|\d+|'
    r'them))\b')
_COMMANDS = re.compile(r'<!--\s*by:\s*(.*?)\s*-->', re.DOTALL)


@dataclass(frozen=True)
class Block:
    """The figures of one block, the block's first words, and the commands named for it."""

    line: int
    figures: tuple[str, ...]
    begins: str
    commands: tuple[str, ...]


def figures_in(text: str) -> Iterator[Block]:
    """Yield every block of a document that gives figures, outside its code."""
    blocks = list(_blocks(re.sub(r'```.*?```', lambda m: '\n' * m.group().count('\n'), text,
                                 flags=re.DOTALL)))
    for (line, block), (_, below) in zip(blocks, [*blocks[1:], (0, '')]):
        words = _COMMANDS.sub('', block).strip()
        figures = tuple(m.group() for pattern in (_FIGURE, _COUNTED)
                        for m in pattern.finditer(words))
        if figures:
            named = commands_of(block)
            if not named and below.startswith('<!--'):
                named = commands_of(below)
            yield Block(line, figures, ' '.join(words.split()[:8]), named)


def commands_of(text: str) -> tuple[str, ...]:
    """Return the commands that a text names for its figures."""
    return tuple(c.strip() for each in _COMMANDS.findall(text) for c in each.split(';'))


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    for match in re.finditer(r'(?:^[^\n]*\S[^\n]*\n?)+', text, re.MULTILINE):
        yield text.count('\n', 0, match.start()) + 1, match.group()


def main() -> int:
    """List, or check with ``--check``."""
    check, without = '--check' in sys.argv[1:], 0
    for block in figures_in(README.read_text()):
        without += not block.commands
        if not check or not block.commands:
            print(f'README.md:{block.line}: {block.begins} ...')
            print(f'    {"; ".join(block.figures)}')
            print(f'    by: {"; ".join(block.commands) or "NO COMMAND"}')
    return 1 if without else 0


if __name__ == '__main__':
    sys.exit(main())
