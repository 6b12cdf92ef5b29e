# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Tensors in MessagePack, as clients of openpi write them: no pickle, no objects, little memory.

An array is a map of ``__ndarray__``, ``data``, ``dtype`` and ``shape``, a number of NumPy one of
``__npgeneric__``, ``data`` and ``dtype``.  How many values are read, and how deep, is limited.
"""
from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

import numpy as np

from intradp_ros.core.extras import pip_install
from intradp_ros.runtime.requests.infer_requests import DTYPES, MAX_TENSOR_DIMENSIONS

try:
    import msgpack
except ModuleNotFoundError as error:  # said with the command that brings it
    raise ModuleNotFoundError(f'policies over web sockets need msgpack: {pip_install("serving")}',
                              name='msgpack') from error

#: Values of a message, maps and lists in one another, characters of a text.
MAX_VALUES, MAX_DEPTH, MAX_TEXT = 2048, 6, 1 << 16
_KINDS = {np.dtype(name).newbyteorder('<').str: np.dtype(name) for name in DTYPES}
_ARRAY, _NUMBER = '__ndarray__', '__npgeneric__'


class TensorMessageError(ValueError):
    """A message that is not taken; the text says where and why."""


def unpack(data: bytes, values: int = MAX_VALUES) -> Any:
    """
    Return what a message holds: maps with texts as keys, lists, texts, bytes, numbers, arrays.

    :raises TensorMessageError: if it is not MessagePack, too large in some way, or an array is not
        one.
    """
    reader = _Reader(data, values)
    try:
        found = reader.value('', 0)
    except TensorMessageError:
        raise
    except (ValueError, msgpack.exceptions.UnpackException, IndexError) as error:
        raise TensorMessageError('the message is not MessagePack: '
                                 f'{type(error).__name__} {error}'[:200]) from None
    if reader.left:
        raise TensorMessageError(f'{reader.left} bytes follow the message')
    return found


class _Reader:
    def __init__(self, data: bytes, values: int) -> None:
        self._data, self._values = data, values
        self._unpacker = msgpack.Unpacker(
            max_buffer_size=max(1, len(data)), max_str_len=MAX_TEXT, max_ext_len=0, raw=False)
        self._unpacker.feed(data)

    @property
    def left(self) -> int:
        """Return the bytes that were not read."""
        return len(self._data) - int(self._unpacker.tell())

    def value(self, place: str, depth: int) -> Any:
        """Return the next value; `place` names it."""
        self._values -= 1
        if self._values < 0 or depth > MAX_DEPTH:
            raise TensorMessageError(f'{place[:80] or "the message"}: too many values, or too '
                                     'deep')
        if self.left <= 0:
            raise TensorMessageError('the message breaks off')
        first = self._data[self._unpacker.tell()]
        if 0x80 <= first <= 0x8f or first in (0xde, 0xdf):
            return self._map(place, depth)
        if 0x90 <= first <= 0x9f or first in (0xdc, 0xdd):
            count = self._unpacker.read_array_header()
            if count > self._values:
                raise TensorMessageError(f'{place[:80]}: a list of {count} values')
            return [self.value(f'{place}[{k}]', depth + 1) for k in range(count)]
        return self._unpacker.unpack()

    def _map(self, place: str, depth: int) -> Any:
        count = self._unpacker.read_map_header()
        if count > self._values:
            raise TensorMessageError(f'{place[:80]}: a map of {count} values')
        found: dict[str, Any] = {}
        for _ in range(count):
            key = self.value(place, depth + 1)
            if isinstance(key, bytes):
                key = key[:80].decode('latin-1')
            if not isinstance(key, str):
                raise TensorMessageError(f'{place[:80]}: a key that is not a text')
            if key in found:
                raise TensorMessageError(f'{place[:80]}: {key[:80]!r} is there twice')
            found[key] = self.value(f'{place}/{key}' if place else key, depth + 1)
        if _ARRAY in found:
            return _array(found, place)
        return _number(found, place) if _NUMBER in found else found


def _array(found: Mapping[str, Any], place: str) -> Any:
    data, shape = found.get('data'), found.get('shape')
    dtype = _dtype(found, place)
    if not isinstance(data, bytes) or not isinstance(shape, list) \
            or len(shape) > MAX_TENSOR_DIMENSIONS \
            or not all(type(n) is int and n >= 0 for n in shape):
        raise TensorMessageError(f'{place[:80]}: an array needs data (bytes) and a shape of at '
                                 f'most {MAX_TENSOR_DIMENSIONS} whole numbers')
    if math.prod(shape) * dtype.itemsize != len(data):
        raise TensorMessageError(f'{place[:80]}: {len(data)} bytes are not {dtype.name} of shape '
                                 f'{"x".join(map(str, shape))}')
    return np.frombuffer(data, dtype).reshape(shape)


def _number(found: Mapping[str, Any], place: str) -> Any:
    data, dtype = found.get('data'), _dtype(found, place)
    if not isinstance(data, (bool, int, float)):
        raise TensorMessageError(f'{place[:80]}: data of a number must be a number')
    try:
        with np.errstate(over='raise', invalid='raise'):
            return np.array(data, dtype)
    except (FloatingPointError, OverflowError, ValueError):
        raise TensorMessageError(f'{place[:80]}: {data!r} is not {dtype.name}') from None


def _dtype(found: Mapping[str, Any], place: str) -> np.dtype[Any]:
    dtype = found.get('dtype')
    if not isinstance(dtype, str) or dtype not in _KINDS:
        raise TensorMessageError(f'{place[:80]}: dtype {str(dtype)[:20]!r} is not taken; taken '
                                 f'are {", ".join(_KINDS)}')
    return _KINDS[dtype]


def pack(value: Any) -> bytes:
    """Return a message of plain values and arrays."""
    packed: bytes = msgpack.packb(value, default=_packed)
    return packed


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value).data.cast('B') if value.size and value.ndim else \
            value.tobytes()
        return {b'__ndarray__': True, b'data': data,
                b'dtype': value.dtype.newbyteorder('<').str, b'shape': value.shape}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f'{type(value).__name__} is not sent')
