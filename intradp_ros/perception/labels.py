# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Names of classes from a parameter: names, or a file of them, as people and tools write it."""
from __future__ import annotations

import codecs
from collections.abc import Sequence
import csv
import json
from pathlib import Path
import re
from typing import Any

import yaml

from intradp_ros.perception.card import CardError, LARGEST_CARD, LONGEST_LABEL

ENDINGS = ('.txt', '.names', '.labels', '.json', '.yaml', '.yml', '.csv')
_STRUCTURED = ('.json', '.yaml', '.yml')
#: The longest first: the mark of UTF-32 begins with that of UTF-16.
_MARKS = ((codecs.BOM_UTF32_LE, 'utf-32'), (codecs.BOM_UTF32_BE, 'utf-32'),
          (codecs.BOM_UTF8, 'utf-8-sig'), (codecs.BOM_UTF16_LE, 'utf-16'),
          (codecs.BOM_UTF16_BE, 'utf-16'))
#: Keys below which files of data sets and models keep their names.
_KEYS = ('names', 'labels', 'classes', 'id2label')
_LOADER: Any = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)


def parse_labels(text: str) -> tuple[str, ...]:
    """
    Return the names that a text lists with commas, or a file by lines or as JSON or YAML.

    A text is taken for a file's path if it ends in one of `ENDINGS`.  Files
    are UTF-8, or UTF-16 or UTF-32 if they begin with its mark.  Lists and
    objects (of numbers to names, also below ``names`` or ``id2label``) are
    read as such, quotes around a name do not belong to it, and empty lines
    count as classes without a name but for those at the end.

    Raises
    ------
    CardError
        If there is no such file, or it is not a list of names.

    """
    text = text.removeprefix('\ufeff')
    if not text.strip():
        return ()
    if not text.lower().endswith(ENDINGS):
        if text.lstrip().startswith(('[', '{')):
            return _checked(_structured(text, 'labels'), 'labels')
        return _checked(_of_line(text), 'labels')
    content = _read(Path(text))
    if text.lower().endswith(_STRUCTURED) or content.lstrip().startswith(('[', '{')):
        return _checked(_structured(content, text), text)
    lines = [_plain(line) for line in re.split('\r\n|\r|\n', content)]
    if text.lower().endswith('.csv') and len(lines) <= 2:
        return _checked(_of_line(content), text)
    while lines and not lines[-1]:
        lines.pop()
    return _checked(lines, text)


def _read(path: Path) -> str:
    try:
        with path.open('rb') as file:
            data = file.read(LARGEST_CARD + 1)
        if len(data) > LARGEST_CARD:
            raise CardError(f'{path} has more than {LARGEST_CARD} bytes: no list of names')
        return data.decode(next((name for mark, name in _MARKS if data.startswith(mark)), 'utf-8'))
    except (OSError, UnicodeDecodeError) as error:
        raise CardError(f'cannot read the names of classes from {path}: {error}' + (
            '; save it as UTF-8' if isinstance(error, UnicodeDecodeError) else '')) from error


def _of_line(text: str) -> list[str]:
    """Return names with commas between them; in quotes a comma belongs to the name."""
    return [_plain(name) for name in next(csv.reader([' '.join(text.split())],
                                                     skipinitialspace=True))]


def _plain(name: str) -> str:
    name = name.strip()
    quoted = len(name) > 1 and name[0] == name[-1] and name[0] in '"\''
    return name[1:-1] if quoted else name


def _structured(text: str, where: str) -> list[str]:
    """Return the names of a list, or of an object by number, in JSON or YAML."""
    try:
        held = _json(text) or yaml.load(text, _LOADER)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CardError(
            f'{where} is not a list of names: {" ".join(str(error).split())}') from error
    for key in _KEYS:
        if isinstance(held, dict) and key in held:
            held = held[key]
    if isinstance(held, str):
        return [_plain(line) for line in held.split()]
    if isinstance(held, dict):
        return _by_number(held, where)
    if not isinstance(held, list):
        raise CardError(f'{where} holds no list of names, and no object of numbers and names')
    return [_name(item, where) for item in held]


def _json(text: str) -> Any:
    """Return what a JSON text holds, None if it is none (YAML reads escapes otherwise)."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _by_number(held: dict[Any, Any], where: str) -> list[str]:
    """Return the names of an object: by its keys, or by its values (label2id)."""
    pairs = held.items()
    if not all(_is_number(key) for key in held) and all(map(_is_number, held.values())):
        pairs = {value: key for key, value in held.items()}.items()
    numbered = {int(key): _name(name, where) for key, name in pairs if _is_number(key)}
    if len(numbered) != len(held) or (numbered and not 0 <= max(numbered) < LARGEST_CARD):
        raise CardError(f'{where} is not an object of numbers and names')
    return [numbered.get(n, '') for n in range(max(numbered, default=-1) + 1)]


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and re.fullmatch('[0-9]{1,6}', str(value)) is not None


def _name(item: Any, where: str) -> str:
    """Return a name; YAML reads some (``no``, ``1``, an empty one) as other things."""
    if isinstance(item, bool):
        raise CardError(f'{where} has {str(item).lower()} among its names; YAML takes yes, no, on '
                        'and off for truths: put them in quotes')
    if isinstance(item, dict) and len(item) > 0:
        for key in ('name', 'label'):
            if isinstance(item.get(key), str):
                return str(item[key]).strip()
    if item is None or isinstance(item, (str, int, float)):
        return '' if item is None else str(item).strip()
    raise CardError(f'{where} has {type(item).__name__}s among its names')


def _checked(names: Sequence[str], where: str) -> tuple[str, ...]:
    for number, name in enumerate(names):
        if len(name) > LONGEST_LABEL or not name.isprintable():
            raise CardError(f'{where}: name {number} is too long or no text: {name[:40]!r}; is '
                            'this a list of names (one a line, UTF-8)?')
    return tuple(names)
