# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Texts and JSON from files of unknown origin, within limits; what is wrong is a ValueError."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
import json
from pathlib import Path
from typing import Any

from intradp_ros.core.limits import check_text, MAX_MODEL_TEXT
from intradp_ros.core.plain_file import open_to_read


class RepeatedKeyError(ValueError):
    """An object of JSON has a `key` twice: which of its values is meant is not clear."""

    def __init__(self, key: str) -> None:
        super().__init__(f'a key stands twice: {key[:200]}')
        self.key = key


def once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, as `object_pairs_hook`; RepeatedKeyError for a repeated key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (key, _), = Counter(key for key, _ in pairs).most_common(1)
        raise RepeatedKeyError(key)
    return found


def read_text(path: Path, most: int = MAX_MODEL_TEXT) -> str:
    """
    Return the text of a file, without a byte order mark.

    :raises ValueError: if it is longer than `most` bytes or no UTF-8; the text names the cause,
        not the file.
    :raises OSError: if it cannot be read.
    """
    with open_to_read(path) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise ValueError(f'longer than {most} bytes')
    try:
        return data.decode('utf-8-sig')
    except UnicodeDecodeError as error:
        raise ValueError(f'no text in UTF-8: byte {error.start} is {data[error.start]:#04x}'
                         ) from None


def parse_json(text: str | bytes | bytearray, most: int | None = MAX_MODEL_TEXT, *,
               constant: Callable[[str], Any] | None = None) -> Any:
    """
    Return what a JSON text says; all that others wrote is read by this.

    :param most: characters, None where others have bounded them; `constant` is called for the
        numbers that JSON lacks, such as NaN.
    :raises ValueError: if it is none, is too long, nests too deeply, or has a key twice.
    """
    try:
        if isinstance(text, bytes | bytearray):
            text = text.decode()
        return json.loads(text if most is None else check_text(text, most),
                          parse_constant=constant, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ValueError(f'no JSON: {error}') from None
    except RecursionError:
        raise ValueError('no JSON that is read here: nested too deeply') from None


def read_json(path: Path, most: int = MAX_MODEL_TEXT) -> Any:
    """Return what a JSON file says; raises as `read_text` and `parse_json`."""
    return parse_json(read_text(path, most), most)
