# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Names of classes from a parameter: names, or a file of them, as people and tools write it."""
from __future__ import annotations

import codecs
from collections.abc import Sequence
import csv
import os
from pathlib import Path
import re
from typing import Any

import yaml

from intradp_ros.core.json_text import parse_json
from intradp_ros.core.plain_file import open_to_read
from intradp_ros.perception.card import CardError, LARGEST_CARD, LONGEST_LABEL

ENDINGS = ('.txt', '.names', '.labels', '.json', '.yaml', '.yml', '.csv', '.tsv')
_STRUCTURED = ('.json', '.yaml', '.yml')
#: The longest first: the mark of UTF-32 begins with that of UTF-16.
_MARKS = ((codecs.BOM_UTF32_LE, 'utf-32'), (codecs.BOM_UTF32_BE, 'utf-32'),
          (codecs.BOM_UTF8, 'utf-8-sig'), (codecs.BOM_UTF16_LE, 'utf-16'),
          (codecs.BOM_UTF16_BE, 'utf-16'))
#: Keys below which files of data sets and models keep their names.
_KEYS = ('names', 'labels', 'classes', 'categories', 'id2label', 'label2id')
#: Words that head the column of names, the surest first, or the column of numbers, of a table.
_NAMED = ('name', 'names', 'class_name', 'classname', 'label_name', 'category_name',
          'display_name', 'title', 'label', 'labels', 'class', 'classes', 'category')
_NUMBERED = ('id', 'ids', 'index', 'idx', 'number', 'no', 'class_id', 'classid', 'label_id',
             'class_index', 'category_id', 'train_id', 'trainid', '#', '')
_OTHER = ('r', 'g', 'b', 'red', 'green', 'blue', 'color', 'colour', 'hex', 'rgb', 'supercategory',
          'description', 'mid', 'synset', 'wnid')
_NUMBERED_LINE = re.compile(r'([0-9]{1,6})(?:\s*[:.)\]=]\s*|\s+|\s*[,;\t]\s*)(\S.*)')
_NUMBER_BEHIND = re.compile(r'(\S.*?)(?:\s*[:=]\s*|\s+)([0-9]{1,6})')
_FIGURES = re.compile(r'[-0-9., ]*|#[0-9a-fA-F]{6}')
_COMMENT = re.compile(r'#\s.*|sep=.')  # before the names; a spreadsheet's separator
_SYNSET = re.compile(r'n[0-9]{8}\s+(\S.*)')
_ONE_A_LINE = 'one name a line, or a table with a header such as id,name'


class _Loader(getattr(yaml, 'CSafeLoader', yaml.SafeLoader)):  # type: ignore[misc]
    """YAML whose scalars are the text that stands there: 12:30 and 010 are names, as is no."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [('tag:yaml.org,2002:null', re.compile('~?'))] for first in ('~', '')}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping; a key that stands twice is refused."""
        keys = [str(key.value) for key, _ in node.value]
        if len(set(keys)) < len(keys):
            raise yaml.MarkedYAMLError(problem='a key stands twice', problem_mark=node.start_mark)
        return dict(super().construct_mapping(node, deep))


def parse_labels(text: str) -> tuple[str, ...]:
    """
    Return the names that a text lists with commas, or a file by lines or as JSON or YAML.

    A text is taken for a file's path if it ends in one of `ENDINGS`, or names
    a folder and an ending, or a file that is there.  Files
    are UTF-8, or UTF-16 or UTF-32 if they begin with its mark.  Lists and
    objects (of numbers to names, also below ``names``, ``id2label`` or
    ``categories``) are read as such, quotes around a name do not belong to it, and empty lines
    count as classes without a name but for those at the end.  Of a table (with
    commas, semicolons, tabs or bars, with or without a header) the column of
    names is taken, by the column of numbers if there is one; lines numbered
    from 0 are names with their numbers.  What could be meant in two ways is refused.

    :raises CardError: if there is no such file, or it is not a list of names.
    """
    text = text.removeprefix('\ufeff')
    if not text.strip():
        return ()
    if not _is_path(text):
        if os.path.exists(text):
            raise CardError(f'{text!r} may be the name of a class, or a file or folder that is '
                            f'there: write ./{text} for the file, ["{text}"] for the name')
        if text.lstrip().startswith(('[', '{')):
            return _checked(_structured(text, 'labels'), 'labels')
        return _checked(_of_line(text), 'labels')
    content = _read(Path(text))
    if text.lower().endswith(_STRUCTURED) or content.lstrip().startswith(('[', '{')):
        names = _structured(content, text)
    else:
        names = _of_lines(content, text, text.lower().endswith(('.csv', '.tsv')))
    if not names:
        raise CardError(f'{text} holds no names of classes')
    return _checked(names, text)


def _is_path(text: str) -> bool:
    if text.lower().endswith(ENDINGS) or re.fullmatch(
            r'[^,]*/[^,/]*\.[A-Za-z0-9]{1,8}|\.{0,2}/[^,]*', text):
        return True
    return bool(re.search('[/.]', text)) and os.path.isfile(text)


def _of_lines(content: str, where: str, is_table: bool) -> list[str]:
    lines = re.split('\r\n|\r|\n', content)
    while lines and not lines[-1].strip():
        lines.pop()
    while lines and _COMMENT.fullmatch(lines[0]):
        lines.pop(0)
    if any(re.fullmatch(r'[][(){}]+|<[?!/].*', line.strip()) for line in lines):
        raise CardError(f'{where} is not a list of names: write {_ONE_A_LINE}')
    if len(lines) == 1 and where.lower().endswith('.csv') and not re.search('[,;|]', lines[0]):
        return _of_line(lines[0])
    if len(lines) == 1 and re.search('[,;|]', lines[0]):
        head = [_head(cell) for cell in re.split('[,;|]', lines[0])]
        if not is_table and _plain(lines[0]) == lines[0].strip() \
                or set(head) & {*_NUMBERED} and set(head) & {*_NAMED}:
            raise CardError(f'{where} has one line, {lines[0][:40]!r}, which is not a name: write '
                            f'{_ONE_A_LINE}')
        if is_table:
            return _of_line(lines[0], next(mark for mark in ',;|' if mark in lines[0]))
    names = _of_table(lines, where, is_table)
    if names is None:
        names = _of_numbered_lines(lines, where)
    return [_plain(line) for line in lines] if names is None else names


def _read(path: Path) -> str:
    try:
        with open_to_read(path) as file:
            data = file.read(LARGEST_CARD + 1)
        if len(data) > LARGEST_CARD:
            raise CardError(f'{path} has more than {LARGEST_CARD} bytes: no list of names')
        return data.decode(next((name for mark, name in _MARKS if data.startswith(mark)), 'utf-8'))
    except (OSError, UnicodeDecodeError) as error:
        raise CardError(f'cannot read the names of classes from {path}: {error}' + (
            '; save it as UTF-8' if isinstance(error, UnicodeDecodeError) else '')) from error


def _of_line(text: str, mark: str = ',') -> list[str]:
    """Return names with commas between them; in quotes a comma belongs to the name."""
    return [_plain(name) for name in next(csv.reader([' '.join(text.split())], delimiter=mark,
                                                     skipinitialspace=True))]


def _of_table(lines: Sequence[str], where: str, is_table: bool) -> list[str] | None:
    """Return the names of a table with columns; None if the lines are not one."""
    filled = [line for line in lines if line.strip()]
    for mark in (',', ';', '\t', '|', ':'):
        rows = [[_plain(cell) for cell in row]
                for row in csv.reader(filled, delimiter=mark, skipinitialspace=True)]
        width = max((len(row) for row in rows), default=0)
        if width < 2 or mark == ':' and (is_table or width < 3):
            continue
        names = _of_rows(rows, where, is_table) if {*map(len, rows)} == {width} else None
        if names is not None:
            return names
        if is_table:
            raise CardError(f'{where} is a table of {width} columns, and which holds the names is '
                            'not said: give it a header, such as id,name, or one name a line')
    if is_table and len(filled) > 1:
        first, *others = (_plain(line) for line in filled)
        if _head(first) in _NAMED:
            return others
        if not _FIGURES.fullmatch(first) and all(map(_FIGURES.fullmatch, others)):
            raise CardError(f'{where}: whether {first!r} is a class or heads the others is not '
                            'said: write "name" over them, or leave it out')
    return None


def _of_rows(rows: list[list[str]], where: str, is_table: bool) -> list[str] | None:
    """Return the names among the rows of a table; None if it is not said where they are."""
    rows = [list(row) for row in zip(*(column for column in zip(*rows) if any(column)))]
    head, body = [_head(cell) for cell in rows[0]], rows[1:]
    columns = range(len(head))
    texts = [k for k in columns if not all(_FIGURES.fullmatch(row[k]) for row in body)]
    named = sorted((k for k in columns if head[k] in _NAMED),
                   key=lambda k: (k not in texts, _NAMED.index(head[k])))
    if named and (is_table or {*head} <= {*_NAMED, *_NUMBERED, *_OTHER}):
        numbers = [k for k in columns if head[k] in _NUMBERED]
        numbers += [k for k in named[1:] if k not in texts]
        return _column(body, named[0], numbers[0] if numbers else None, where)
    headed = not any(map(_FIGURES.fullmatch, rows[0])) and 0 < len(texts) < len(head)
    if not headed:
        body = rows
        texts = [k for k in columns if not all(_FIGURES.fullmatch(row[k]) for row in body)]
    if len(texts) != 1 or headed and not is_table:
        return None
    numbers = [k for k in columns if headed and head[k] in _NUMBERED]
    if numbers or len(columns) == 1:
        return _column(body, texts[0], numbers[0] if numbers else None, where)
    return _column(body, texts[0], _unnamed_numbers(body, texts[0], where), where)


def _unnamed_numbers(rows: Sequence[Sequence[str]], names: int, where: str) -> int | None:
    """Return the column that numbers the classes where no header says so: from 0, each once."""
    at = 0 if names else len(rows[0]) - 1
    column = [row[at] for row in rows]
    if not all(map(_is_number, column)):
        return None
    if sorted(map(int, column)) == list(range(len(rows))):
        return at
    if len(rows[0]) > 3:  # colours
        return None
    raise CardError(f'{where}: whether its column of figures numbers the classes is not said: '
                    'give it a header, such as id,name')


def _head(cell: str) -> str:
    return re.sub(r'[\s.-]+', '_', _plain(cell).lower())


def _column(rows: Sequence[Sequence[str]], names: int, numbers: int | None, where: str,
            ) -> list[str]:
    if numbers is None:
        return [row[names] for row in rows]
    if not all(_is_number(row[numbers]) for row in rows) or \
            len({int(row[numbers]) for row in rows}) < len(rows):
        raise CardError(f'{where}: the numbers of classes are not whole numbers from 0, each once')
    return names_by_number({row[numbers]: row[names] for row in rows}, where)


def _of_numbered_lines(lines: Sequence[str], where: str) -> list[str] | None:
    """Return the names of lines that begin with the number of the class; None if they do not."""
    found = [_NUMBERED_LINE.fullmatch(line.strip()) for line in lines]
    if len(found) < 2 or not all(found):
        behind = [_NUMBER_BEHIND.fullmatch(line.strip()) for line in lines]
        if len(lines) > 1 and len({match[1] for match in behind if match}) == len(lines) \
                and sorted(int(match[2]) for match in behind if match) == list(range(len(lines))):
            raise CardError(f'{where}: whether the numbers behind its names are those of the '
                            f'classes is not said: write {_ONE_A_LINE}')
        synsets = [_SYNSET.fullmatch(line.strip()) for line in lines]
        return [match[1] for match in synsets if match] if lines and all(synsets) else None
    named = {int(match[1]): _plain(match[2]) for match in found if match}
    if sorted(named) == list(range(len(lines))):
        return [named[n] for n in range(len(lines))]
    if list(named) == sorted(named) and min(named) < 2:
        raise CardError(f'{where}: its lines are numbered from 1, or not in a row, and what is '
                        'class 0 is not said: leave the numbers out, or number them from 0')
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
    count = held.get('nc') if isinstance(held, dict) else None
    for key in _KEYS:
        if isinstance(held, dict) and key in held:
            held = held[key]
    names = _listed(held, where)
    if _is_number(count) and int(str(count)) != len(names):
        raise CardError(f'{where} says that there are {count} classes (nc) and names {len(names)}')
    return names


def _listed(held: Any, where: str) -> list[str]:
    if isinstance(held, str):
        return [_plain(line) for line in held.split()]
    if isinstance(held, dict):
        return names_by_number(held, where)
    if not isinstance(held, list):
        raise CardError(f'{where} holds no list of names, and no object of numbers and names')
    if held and all(isinstance(item, dict) and 'id' in item for item in held):
        if len({str(item['id']) for item in held}) == len(held):
            return names_by_number({item['id']: item for item in held}, where)
        raise CardError(f'{where} gives a number to two classes')
    return [_name(item, where) for item in held]


def _json(text: str) -> Any:
    """Return what a JSON text holds, None if YAML is to say (which reads escapes otherwise)."""
    try:
        return parse_json(text, None)
    except ValueError:
        return None


def names_by_number(held: dict[Any, Any], where: str) -> list[str]:
    """
    Return the names of an object, by its keys or by its values (label2id).

    Numbers that are left out are classes without a name.

    :raises CardError: if it is none of numbers and names.
    """
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
