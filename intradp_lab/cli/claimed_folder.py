# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A folder for the results of one maker, which removes nothing but its own."""
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
import shutil

from intradp_ros.core.atomic_write import write_atomically


def claim_folder(folder: Path, maker: str, results: Iterable[str]) -> None:
    """
    Make a folder ready for results, and remove those of an earlier run of the same maker.

    A file `.<maker>` marks folders that this has made.  Nothing but `results`
    (names in the folder) is ever removed, and only from marked folders.

    :raises ValueError: if the folder holds something and is not marked.
    """
    marker = folder / f'.{maker}'
    if folder.exists() and any(folder.iterdir()) and not marker.is_file():
        raise ValueError(f'the folder {folder} holds files that are not of {maker}: name another '
                         'one, or one that is empty')
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(marker, f'results of {maker}, which removes them when it writes here again\n')
    for path in (folder / name for name in results):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
