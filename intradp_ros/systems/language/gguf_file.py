# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A GGUF file: which tensors it has, and where; looked at before anything is believed or made.

Counts, sizes and offsets are held to the file's own size while they are read, so that no file
makes this take more memory or time than its bytes are worth.
"""
from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
import math
import mmap
from pathlib import Path
import struct
from typing import Any

import torch

from intradp_ros.core.limits import MAX_FILE
from intradp_ros.systems.language.checkpoint import ImportModelError
from intradp_ros.systems.language.stored import OF_NUMBER, Stored, STORED_TYPES

MAGIC, _VERSIONS = b'GGUF', (2, 3)
#: Tensors, values, elements of all lists together, lists in lists; bytes of a name.
MOST_TENSORS, MOST_VALUES, MOST_ELEMENTS, MOST_NESTED = 1 << 16, 1 << 16, 1 << 21, 4
MOST_NAME = 256
_STRING, _ARRAY = 8, 9
#: How numbers are written, by their type.
_FORMS = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q',
          12: 'd'}
_ALIGNMENT, _MOST_ALIGNMENT = 32, 1 << 20


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of so many elements, which is not read."""

    count: int


class GgufFile(dict[str, Stored]):
    """
    Tensors by their names, whose bytes are mapped, and what is `said`: numbers, texts, lists.

    `raw` is each entry as it is written, its key and type included.
    """

    def __init__(self, tensors: Mapping[str, Stored], said: Mapping[str, Any],
                 raw: Mapping[str, bytes]) -> None:
        super().__init__(tensors)
        self.said, self.raw = said, raw


class _Reader:
    """Reads the beginning of a file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at, self.end = path, data, 0, len(data)
        self._elements = 0

    def fail(self, reason: str) -> ImportModelError:
        return ImportModelError(f'{self.path}: {reason}')

    def skip(self, nbytes: int) -> int:
        """Go on behind some bytes; return where they begin."""
        begin = self.at
        if nbytes > self.end - begin:
            raise self.fail(f'ends within its description, at {self.end} bytes: it is truncated, '
                            'or a size in it is wrong')
        if begin + nbytes > MAX_FILE:
            raise self.fail(f'its description takes more than {MAX_FILE} bytes')
        self.at = begin + nbytes
        return begin

    def number(self, form: str) -> Any:
        (found,) = struct.unpack_from(f'<{form}', self.data, self.skip(struct.calcsize(form)))
        return found

    def text(self, what: str, most: int = MAX_FILE) -> str:
        count = self.number('Q')
        begin = self.skip(count)
        if count > most:
            raise self.fail(f'{what} of {count} bytes; at most {most} are taken')
        try:
            return self.data[begin:begin + count].decode()
        except UnicodeDecodeError:
            raise self.fail(f'{what} that is not UTF-8') from None

    def value(self, key: str, kind: int, depth: int = 0) -> Any:
        """Return a value of the file's table."""
        if kind == _STRING:
            return self.text(f'{key}: a text')
        if kind in _FORMS:
            return self.number(_FORMS[kind])
        if kind != _ARRAY:
            raise self.fail(f'{key}: a value of the unknown type {kind}')
        of, count = self.number('I'), self.number('Q')
        self._elements += count
        if self._elements > MOST_ELEMENTS or depth == MOST_NESTED:
            raise self.fail(f'{key}: a list of {count}; at most {MOST_ELEMENTS} elements of all '
                            f'lists, and {MOST_NESTED} lists within each other, are taken')
        if of in _FORMS:
            self.skip(count * struct.calcsize(_FORMS[of]))
        elif of == _STRING:
            for _ in range(count):
                self.skip(self.number('Q'))
        else:
            for _ in range(count):
                self.value(key, of, depth + 1)
        return ListOf(count)


def read_gguf(path: Path) -> GgufFile:
    """
    Return what a file holds.

    :raises ImportModelError: if it is not a GGUF file, or has a tensor that is cut off or of an
        unknown type.
    :raises OSError: if it cannot be read.
    """
    with path.open('rb') as file:
        if file.read(4) != MAGIC:
            raise ImportModelError(f'{path} is not a GGUF file')
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    reader = _Reader(path, data)
    reader.skip(4)
    version = reader.number('I')
    if version not in _VERSIONS:
        raise reader.fail(f'version {version} of GGUF' if version < 1 << 16 else
                          'numbers with the highest byte first, which is not taken')
    tensors, values = reader.number('Q'), reader.number('Q')
    for count, most, what in ((tensors, MOST_TENSORS, 'tensors'), (values, MOST_VALUES, 'values')):
        if count > most:
            raise reader.fail(f'{count} {what}; at most {most} are taken')
    said: dict[str, Any] = {}
    raw: dict[str, bytes] = {}
    for _ in range(values):
        begin = reader.at
        key = reader.text('a key', MOST_NAME)
        if key in said:
            raise reader.fail(f'two values {key}')
        said[key] = reader.value(key, reader.number('I'))
        raw[key] = data[begin:reader.at]
    alignment = said.get('general.alignment', _ALIGNMENT)
    if type(alignment) is not int or not 1 <= alignment <= _MOST_ALIGNMENT \
            or alignment & alignment - 1:
        raise reader.fail(f'an alignment of {str(alignment)[:40]} bytes')
    described = [_described(reader) for _ in range(tensors)]
    start = -(-reader.at // alignment) * alignment
    whole = torch.frombuffer(data, dtype=torch.uint8)
    found: dict[str, Stored] = {}
    for name, number, shape, offset in described:
        if name in found:
            raise reader.fail(f'two tensors {name}')
        stored = OF_NUMBER.get(number)
        if stored is None:
            raise reader.fail(f'tensor {name} is stored as {_type_name(number)}; what is '
                              f'understood: {", ".join(STORED_TYPES)}')
        if shape[-1] % stored.block:
            raise reader.fail(f'tensor {name}: rows of {shape[-1]} are not of whole blocks of '
                              f'{stored.name}, {stored.block} each')
        if len(shape) == 1 and stored.dtype is None:
            raise reader.fail(f'tensor {name} is a vector, of which there is none in '
                              f'{stored.name}')
        nbytes = stored.nbytes(shape)
        if offset % alignment or nbytes > reader.end - start - offset:
            raise reader.fail(f'tensor {name}: {nbytes} bytes at {offset} of '
                              f'{max(0, reader.end - start)} that there are: the file is '
                              'truncated, or its description is wrong')
        found[name] = Stored(whole[start + offset:start + offset + nbytes], stored, shape)
    end, last = 0, 'nothing'
    for name, _, _, offset in sorted(described, key=lambda one: one[3]):
        if offset != -(-end // alignment) * alignment:
            raise reader.fail(f'tensor {name} begins at {offset}, but what is before it, {last}, '
                              f'ends at {end}')
        end, last = offset + found[name].data.nbytes, name
    return GgufFile(found, said, raw)


def _described(reader: _Reader) -> tuple[str, int, tuple[int, ...], int]:
    """Return a tensor's name, type, shape and offset."""
    name = reader.text('the name of a tensor', MOST_NAME)
    dimensions = reader.number('I')
    if not 1 <= dimensions <= 4:
        raise reader.fail(f'tensor {name} has {dimensions} dimensions')
    shape = tuple(reader.number('Q') for _ in range(dimensions))[::-1]
    if 0 in shape or math.prod(shape) > 8 * reader.end:  # a bit each
        raise reader.fail(f'tensor {name} of shape {" x ".join(map(str, shape))} in a file of '
                          f'{reader.end} bytes: it is truncated, or its description is wrong')
    return name, reader.number('I'), shape, reader.number('Q')


def _type_name(number: int) -> str:
    with suppress(ImportError, ValueError):
        import gguf  # an extra, for language models
        return str(gguf.GGMLQuantizationType(number).name)
    return f'type {number}'
