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
import math
import mmap
from pathlib import Path
import struct

import torch

from intradp_ros.systems.language.checkpoint import ImportModelError
from intradp_ros.systems.language.stored import OF_NUMBER, Stored, STORED_TYPES

_MAGIC, _VERSIONS = b'GGUF', (2, 3)
MOST_TENSORS, MOST_VALUES, MOST_TEXTS, MOST_NESTED = 1 << 16, 1 << 16, 1 << 22, 4
_STRING, _ARRAY = 8, 9
#: Bytes of values by their type; strings and arrays have no fixed ones.
_VALUE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_ALIGNMENT, _MOST_ALIGNMENT = 32, 1 << 20


class _Reader:
    """Reads the beginning of a file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self._data, self.at, self.end = path, data, 0, len(data)

    def fail(self, reason: str) -> ImportModelError:
        return ImportModelError(f'{self.path}: {reason}')

    def skip(self, nbytes: int) -> int:
        """Go on behind some bytes; return where they begin."""
        begin = self.at
        if nbytes > self.end - begin:
            raise self.fail(f'ends within its description, at {self.end} bytes: it is truncated, '
                            'or a size in it is wrong')
        self.at = begin + nbytes
        return begin

    def number(self, form: str) -> int:
        (found,) = struct.unpack_from(f'<{form}', self._data, self.skip(struct.calcsize(form)))
        return int(found)

    def text(self) -> bytes:
        count = self.number('Q')
        begin = self.skip(count)
        return self._data[begin:begin + count]

    def pass_value(self, kind: int, depth: int = 0) -> None:
        """Go on behind a value of the file's table."""
        if kind == _STRING:
            self.skip(self.number('Q'))
        elif kind == _ARRAY:
            of, count = self.number('I'), self.number('Q')
            if of in _VALUE_BYTES:
                self.skip(count * _VALUE_BYTES[of])
            elif depth == MOST_NESTED or count > min(MOST_TEXTS, (self.end - self.at) // 8):
                raise self.fail(f'a list of {count} texts or lists: too many, or not in the file')
            else:
                for _ in range(count):
                    self.pass_value(of, depth + 1)
        elif kind in _VALUE_BYTES:
            self.skip(_VALUE_BYTES[kind])
        else:
            raise self.fail(f'a value of the unknown type {kind}')


def read_gguf(path: Path) -> Mapping[str, Stored]:
    """
    Return the tensors of a file by their names; their bytes are mapped, not read.

    Raises
    ------
    ImportModelError
        If it is not a GGUF file, or has a tensor that is cut off or of an unknown type.
    OSError
        If it cannot be read.

    """
    with path.open('rb') as file:
        if file.read(4) != _MAGIC:
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
    alignment = _ALIGNMENT
    for _ in range(values):
        key, kind = reader.text(), reader.number('I')
        if key == b'general.alignment' and kind == 4:
            alignment = reader.number('I')
        else:
            reader.pass_value(kind)
    if not 1 <= alignment <= _MOST_ALIGNMENT or alignment & alignment - 1:
        raise reader.fail(f'an alignment of {alignment} bytes')
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
        nbytes = stored.nbytes(shape)
        if offset % alignment or nbytes > reader.end - start - offset:
            raise reader.fail(f'tensor {name}: {nbytes} bytes at {offset} of '
                              f'{max(0, reader.end - start)} that there are: the file is '
                              'truncated, or its description is wrong')
        found[name] = Stored(whole[start + offset:start + offset + nbytes], stored, shape)
    return found


def _described(reader: _Reader) -> tuple[str, int, tuple[int, ...], int]:
    """Return a tensor's name, type, shape and offset."""
    name = reader.text()[:200].decode(errors='replace')
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
