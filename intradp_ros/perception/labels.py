# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Names of classes from a parameter: names, or a file of them."""
from __future__ import annotations

from pathlib import Path

from intradp_ros.perception.card import CardError, LARGEST_CARD


def parse_labels(text: str) -> tuple[str, ...]:
    """
    Return the names that a text lists with commas, or a file by lines.

    A text is taken for a file's path if it ends in ``.txt`` or ``.names``.

    Raises
    ------
    CardError
        If there is no such file, or it is no list of names.

    """
    if not text.endswith(('.txt', '.names')):
        return tuple(name.strip() for name in text.split(',')) if text.strip() else ()
    try:
        with Path(text).open('rb') as file:
            data = file.read(LARGEST_CARD + 1)
        lines = data.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CardError(f'cannot read the names of classes from {text}: {error}') from error
    if len(data) > LARGEST_CARD:
        raise CardError(f'{text} has more than {LARGEST_CARD} bytes: no list of names')
    return tuple(line.strip() for line in lines)
