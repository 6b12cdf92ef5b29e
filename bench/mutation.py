# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Messages like real ones, as a stranger sends them: odd numbers, vast shapes, broken bytes."""
from __future__ import annotations

from array import array
import json
from random import Random
import re
from typing import Any

from rclpy.serialization import serialize_message

from intradp_ros.core.limits import MAX_MODEL_TEXT
from intradp_ros.wire.texts import packed, unpacked

#: What stands in the place of a number of a JSON text.
ODD = ('NaN', 'Infinity', '1e999', '-1', '1e300', '16777216', '2147483648', '4294967296', '[]',
       'null', '{}', '"x"', '0')
_PACKED = ('book', 'graph', 'profile')
_JSON = ('body', 'plan')
_VAST = tuple(2 ** power - less for power in (16, 22, 24, 31, 32, 48, 63, 64) for less in (0, 1))
_FLOATS = (float('nan'), float('inf'), float('-inf'), -1.0, 0.0, 1e300, 5e-324)


def odd_numbers(text: str, random: Random) -> str:
    """Return a JSON text with an odd value in the place of one of its numbers."""
    places = list(re.finditer(r'(?<![\w.])-?\d[\w.+-]*', text))
    if not places:
        return text[:random.randrange(len(text) + 1)]
    place = random.choice(places)
    return text[:place.start()] + random.choice(ODD) + text[place.end():]


def mutated(good: Any, random: Random, whole: bytes = b'') -> bytes:
    """
    Return the bytes of a message like a good one; `whole` are its own, if they are at hand.

    Texts of JSON mostly get an odd number, others bytes that differ, fields
    of extreme numbers, vast shapes, or an early end.
    """
    texts = [name for name in (*_PACKED, *_JSON) if getattr(good, name, '')]
    if texts and random.random() < 0.6:
        name = random.choice(texts)
        return _with(good, name, _text(name, getattr(good, name), random))
    if random.random() < 0.3:
        return _odd_field(good, random)
    data = bytearray(whole or serialize_message(good))
    for _ in range(random.randint(1, 6)):
        data[random.randrange(4, len(data))] = random.choice((0, 1, 127, 128, 255))
    if random.random() < 0.2:
        del data[random.randrange(4, len(data)):]
    return bytes(data)


def _text(name: str, text: str, random: Random) -> str:
    if name in _PACKED:
        return packed(odd_numbers(unpacked(text, MAX_MODEL_TEXT), random))
    deep = '[' * 3000 + json.dumps('x') + ']' * 3000
    return odd_numbers(text, random) if random.random() < 0.95 else deep


def _odd_field(good: Any, random: Random) -> bytes:
    """Change one number of a message, or the sizes of an array of them."""
    kinds = {name: kind for name, kind in good.get_fields_and_field_types().items()
             if 'int' in kind or kind in ('double', 'float')}
    if not kinds:
        return bytes(serialize_message(good))
    name = random.choice(list(kinds))
    value, kind = getattr(good, name), kinds[name]
    if isinstance(value, array):
        most = 256 ** value.itemsize
        return _with(good, name, array(value.typecode, (
            random.choice([n for n in _VAST if n < most] or [255])
            for _ in range(random.choice((0, 1, 4, 16))))))
    if isinstance(value, float):
        return _with(good, name, random.choice(_FLOATS))
    bits = int(''.join(filter(str.isdigit, kind)) or 8) - (not kind.startswith('u'))
    return _with(good, name, random.choice([n for n in (0, 1, 255, *_VAST) if n < 2 ** bits]))


def _with(good: Any, name: str, value: Any) -> bytes:
    fields = {field: getattr(good, field) for field in good.get_fields_and_field_types()}
    return bytes(serialize_message(type(good)(**{**fields, name: value})))
