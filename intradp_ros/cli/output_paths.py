# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Where commands write, for argparse: checked before the work whose results are to be kept."""
from __future__ import annotations

import argparse
import os
from pathlib import Path
import stat

from intradp_ros.core.plain_file import check_folder

PICTURES = ('.png', '.svg', '.pdf', '.jpg', '.webp')


def result_file(text: str) -> Path:
    """Read the name of a file to write; folders that are not there will be made."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f'{text!r} is a folder: name a file to write')
    if path.is_symlink() and os.path.islink(os.path.realpath(path)):
        raise argparse.ArgumentTypeError(f'{text!r} is a link that leads to itself')
    if path.exists():
        if not stat.S_ISFIFO(path.stat().st_mode):  # a pipe waits for who reads it
            _try(path)
        if not path.is_file():
            return path
    result_folder(str(path.resolve().parent))
    return path


def result_folder(text: str) -> Path:
    """Read the name of a folder to write to, which will be made if it is not there."""
    try:
        check_folder(text)
    except OSError as error:
        raise argparse.ArgumentTypeError(f'{error.filename!r}: {error.strerror}') from None
    return Path(text)


def _try(path: Path) -> None:
    """Raise ArgumentTypeError if a file cannot be written, or takes nothing, as /dev/full does."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            os.write(handle, b'')
        finally:
            os.close(handle)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"'{path}' cannot be written: {error.strerror}") from None


def result_picture(text: str) -> Path:
    """Read the name of a picture to draw."""
    if Path(text).suffix.lower() not in PICTURES:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not a picture to draw: it must end in {", ".join(PICTURES)}')
    return result_file(text)
