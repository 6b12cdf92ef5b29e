# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Where measured and planned things are kept, and what stands for the code that made them."""
from __future__ import annotations

from collections.abc import Iterable
from functools import cache
import hashlib
import os
from pathlib import Path
import warnings

from intradp_ros.core.atomic_write import write_atomically


@cache
def code_digest(*packages: str) -> str:
    """Return 16 hex digits that stand for the code of some subpackages, as it is installed."""
    root = Path(__file__).parents[1]
    return files_digest(root, (f for name in packages for f in (root / name).rglob('*.py')))


def files_digest(root: Path, files: Iterable[Path]) -> str:
    """Return 16 hex digits that stand for some files, their names below `root` and contents."""
    content = hashlib.sha256()
    for file in sorted(files):
        content.update(file.relative_to(root).as_posix().encode() + b'\0')
        content.update(file.read_bytes() + b'\0')
    return content.hexdigest()[:16]


def cache_folder() -> Path:
    """
    Return the folder for profiles: ``$INTRADP_CACHE``, or one in the user's cache.

    :raises FileNotFoundError: if the user has none.
    """
    if given := os.environ.get('INTRADP_CACHE'):
        return Path(given)
    try:
        return Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache') / 'intradp_ros'
    except RuntimeError:
        raise FileNotFoundError('this user has no home folder for what is kept: set HOME or '
                                'INTRADP_CACHE') from None


def file_error(error: OSError) -> str:
    """Return which file an error is about, and why; of one in the cache, what names another."""
    try:
        ours = Path(os.fsdecode(error.filename)).is_relative_to(cache_folder())
    except (FileNotFoundError, TypeError):  # no home; a number of a file
        ours = False
    return (f'{error.filename}: {error.strerror}'
            + ' (INTRADP_CACHE names another folder)' * ours)


def keep(path: Path, text: str) -> None:
    """Write a file of the cache; where that cannot be, warn that it will be made again."""
    try:
        write_atomically(path, text)
    except OSError as error:
        warnings.warn(f'{path} cannot be kept, and will be made again: {error.strerror} '
                      '(INTRADP_CACHE names another folder)', stacklevel=2)
