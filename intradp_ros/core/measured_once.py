# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What takes long to measure: measured once and kept on disk, by all that it depends on."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields
import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from intradp_ros.core.cache_folder import cache_folder, code_digest, keep
from intradp_ros.core.json_text import parse_json, read_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_T = TypeVar('_T')
_Figures = TypeVar('_Figures', bound='DataclassInstance')


def measured_path(kind: str, *key: object, packages: tuple[str, ...] = (),
                  folder: Path | None = None) -> Path:
    """
    Return the file of what was measured.

    `key` is what it depends on: the machine, versions, what was measured; `packages` are those of
    this code that decide it: another release may measure something else.
    """
    text = json.dumps([*map(str, key), code_digest(*packages)])
    name = hashlib.sha256(text.encode()).hexdigest()[:24]
    return (folder or cache_folder()) / 'profiles' / f'{kind}-{name}.json'


def measured_once(path: Path, measure: Callable[[], _T], read: Callable[[str], _T],
                  written: Callable[[_T], str]) -> _T:
    """
    Return what a file says, of at most `MAX_MODEL_TEXT` bytes; measure and keep it the first time.

    What `read` does not take is damaged, and measured anew.
    """
    try:
        return read(read_text(path))
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError,
            RecursionError):  # none yet, or a damaged one
        pass
    found = measure()
    keep(path, written(found))
    return found


def figures_once(path: Path, kind: type[_Figures], measure: Callable[[], _Figures],
                 fits: Callable[[_Figures], bool] = lambda found: True) -> _Figures:
    """
    Return a flat dataclass of numbers, truth values and tuples of numbers, as `measured_once`.

    Numbers that are not finite or below 0, and what does not fit, count as damaged.
    """

    def read(text: str) -> _Figures:
        found = kind(**{name: tuple(value) if isinstance(value, list) else value
                        for name, value in parse_json(text).items()})
        for field in fields(found):
            value = getattr(found, field.name)
            for figure in value if isinstance(value, tuple) else (value,):
                if isinstance(figure, bool) != (field.type == 'bool') or \
                        not 0 <= figure < math.inf:
                    raise ValueError(f'{field.name} is {figure!r}')
        if not fits(found):
            raise ValueError('what is kept does not fit')
        return found

    return measured_once(path, measure, read, lambda found: json.dumps(asdict(found)))
