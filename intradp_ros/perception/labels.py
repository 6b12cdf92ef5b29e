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
#: Words that head the column of names, or the column of numbers, of a table.
_NAMED = ('name', 'names', 'label', 'labels', 'class', 'classes', 'class_name', 'classname',
          'label_name', 'category', 'category_name', 'display_name', 'title')
_NUMBERED = ('id', 'ids', 'index', 'idx', 'number', 'no', 'class_id', 'classid', 'label_id',
             'class_index', 'category_id', 'train_id', 'trainid', '#', '')
_OTHER = ('r', 'g', 'b', 'red', 'green', 'blue', 'color', 'colour', 'hex', 'rgb', 'supercategory',
          'description', 'mid', 'synset', 'wnid')
_NUMBERED_LINE = re.compile(r'([0-9]{1,6})(?:\s*[:.)\]=]\s*|\s+|\s*[,;\t]\s*)(\S.*)')


class _Loader(getattr(yaml, 'CSafeLoader', yaml.SafeLoader)):  # type: ignore[misc]
    """YAML whose scalars are the text that stands there: 12:30 and 010 are names, as is no."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in found if tag == 'tag:yaml.org,2002:null']
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()}


def parse_labels(text: str) -> tuple[str, ...]:
    """
    Return the names that a text lists with commas, or a file by lines or as JSON or YAML.

    A text is taken for a file's path if it ends in one of `ENDINGS`.  Files
    are UTF-8, or UTF-16 or UTF-32 if they begin with its mark.  Lists and
    objects (of numbers to names, also below ``names`` or ``id2label``) are
    read as such, quotes around a name do not belong to it, and empty lines
    count as classes without a name but for those at the end.  Of a table (CSV
    with commas, semicolons or tabs, with or without a header) the column of
    names is taken, by the column of numbers if there is one; lines numbered
    from 0 are names with their numbers.

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
    lines = re.split('\r\n|\r|\n', content)
    while lines and not lines[-1].strip():
        lines.pop()
    is_csv = text.lower().endswith('.csv')
    if is_csv and len(lines) == 1:
        return _checked(_of_line(content), text)
    names = _of_table(lines, text, is_csv)
    if names is None:
        names = _of_numbered_lines(lines, text)
    return _checked([_plain(line) for line in lines] if names is None else names, text)


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


def _of_table(lines: Sequence[str], where: str, is_csv: bool) -> list[str] | None:
    """Return the names of a table with columns; None if the lines are none."""
    filled = [line for line in lines if line.strip()]
    header = [cell.strip().lower() for cell in re.split('[,;\t]', filled[0])] if filled else []
    for mark in (',', ';', '\t'):
        rows = [[_plain(cell) for cell in row]
                for row in csv.reader(filled, delimiter=mark, skipinitialspace=True)]
        width = max((len(row) for row in rows), default=0)
        even = all(len(row) == width for row in rows)
        if width < 2:
            continue
        named = [k for k, cell in enumerate(rows[0]) if cell.lower() in _NAMED]
        known = all(cell.lower() in _NAMED + _NUMBERED + _OTHER for cell in rows[0])
        if named and (known or is_csv) and even:
            numbers = [k for k, cell in enumerate(rows[0]) if cell.lower() in _NUMBERED]
            return _column(rows[1:], named[0], numbers[0] if numbers else None, where)
        if even:
            texts = [k for k in range(width) if not all(
                re.fullmatch(r'-?[0-9.]+|#[0-9a-fA-F]{6}', row[k]) for row in rows)]
            if len(texts) == 1:
                first = 0 if texts[0] else None  # a number before the name is its class
                whole = first is not None and all(_is_number(row[0]) for row in rows)
                return _column(rows, texts[0], first if whole else None, where)
        if is_csv:
            raise CardError(f'{where} is a table of {width} columns, and which holds the names is '
                            'not said: give it a header, such as id,name, or one name a line')
    if is_csv and len(header) == 1 and header[0] in _NAMED:
        return [_plain(line) for line in lines[1:]]
    return None


def _column(rows: Sequence[Sequence[str]], names: int, numbers: int | None, where: str,
            ) -> list[str]:
    if numbers is None:
        return [row[names] for row in rows]
    if not all(_is_number(row[numbers]) for row in rows) or \
            len({int(row[numbers]) for row in rows}) < len(rows):
        raise CardError(f'{where}: the numbers of classes are not whole numbers from 0, each once')
    return _by_number({row[numbers]: row[names] for row in rows}, where)


def _of_numbered_lines(lines: Sequence[str], where: str) -> list[str] | None:
    """Return the names of lines that begin with the number of the class; None if they do not."""
    found = [_NUMBERED_LINE.fullmatch(line.strip()) for line in lines]
    if len(found) < 2 or not all(found):
        return None
    numbers = [int(match[1]) for match in found if match]
    if numbers == list(range(len(lines))):
        return [_plain(match[2]) for match in found if match]
    if numbers == list(range(1, len(lines) + 1)):
        raise CardError(f'{where}: its lines are numbered from 1, and whether the first is class '
                        '0 or 1 is not said: leave the numbers out, or number them from 0')
    return None


def _plain(name: str) -> str:
    name = name.strip()
    quoted = len(name) > 1 and name[0] == name[-1] and name[0] in '"\''
    return name[1:-1] if quoted else name


def _structured(text: str, where: str) -> list[str]:
    """Return the names of a list, or of an object by number, in JSON or YAML."""
    try:
        held = _json(text) or yaml.load(text, _Loader)
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
    """Return a name; JSON has others than texts, an empty one of YAML is none."""
    if isinstance(item, bool):
        raise CardError(f'{where} has {str(item).lower()} among its names: put it in quotes')
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
