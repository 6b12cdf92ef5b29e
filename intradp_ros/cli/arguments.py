# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Arguments that are looked at when they are read: for argparse, before any work begins."""
from __future__ import annotations

import argparse
from collections.abc import Callable
import os
from pathlib import Path
import re
from typing import Any, TypeVar

_NAMESPACE = re.compile(r'(/[A-Za-z_][A-Za-z0-9_]*)*/?')
MOST_SEED = 2**63 - 1
"""The largest seed that PyTorch and NumPy both take."""
T = TypeVar('T')


def add_renamed(parser: argparse.ArgumentParser, name: str, former: str, **options: Any) -> None:
    """Declare an option that had a former name, which is still taken but no longer shown."""
    options = {'type': str, **options}
    dest = parser.add_argument(name, **options).dest
    parser.add_argument(former, dest=dest, type=options['type'], default=argparse.SUPPRESS,
                        help=argparse.SUPPRESS)


def existing_file(text: str) -> Path:
    """Read the name of a file that is to be read."""
    path = Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f'{text!r}: no such file')
    if path.is_dir():
        raise argparse.ArgumentTypeError(f'{text!r} is a folder, not a file')
    if not path.is_file():  # a pipe that nobody fills, or a device that never ends
        raise argparse.ArgumentTypeError(f'{text!r} is a pipe or a device, not a file')
    if not os.access(path, os.R_OK):
        raise argparse.ArgumentTypeError(f'{text!r} cannot be read')
    return path


def file_of(check: Callable[[Path], object]) -> Callable[[str], Path]:
    """Return what reads the name of a file that `check` takes; it raises ValueError or OSError."""
    def read(text: str) -> Path:
        path = existing_file(text)
        checked(lambda name: check(Path(name)))(text)
        return path
    return read


def checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return what reads a text, and shows the words of its ValueError or OSError."""
    def parse(text: str) -> T:
        try:
            return read(text)
        except (ValueError, OSError) as error:
            raise argparse.ArgumentTypeError(' '.join(str(error).split())) from error
    return parse


def looked_at(read: Callable[[str], object]) -> Callable[[str], str]:
    """Return what takes a text as it is once `read` has taken it."""
    def parse(text: str) -> str:
        checked(read)(text)
        return text
    return parse


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return what reads a whole number from `least` to `most`."""
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f'{text!r} is not a whole number') from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f'must be {least} to {most}, not {value}')
        return value
    return read


def number(least: float, most: float, above: bool = False) -> Callable[[str], float]:
    """Return what reads a number from `least` (or, `above`, more) to `most`."""
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f'{text!r} is not a number') from None
        if not least <= value <= most or above and value == least:
            raise argparse.ArgumentTypeError(
                f'must be {f"above {least:g}, at most" if above else f"{least:g} to"} {most:g}, '
                f'not {value:g}')
        return value
    return read


def namespace(text: str) -> str:
    """Read the namespace of nodes."""
    if not text.startswith('/') or not _NAMESPACE.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f'{text!r} is not a namespace such as / or /robot_1: it begins with a slash, and '
            'names have letters, digits and underscores')
    return text
