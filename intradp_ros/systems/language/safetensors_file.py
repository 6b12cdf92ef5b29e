# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a file of safetensors says it holds, held to the file's size before anything is made.

The library reads the numbers; it refuses what is wrong, too, but with no name of a tensor, and
takes the last of two that are called alike.
"""
from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from safetensors import safe_open

from intradp_ros.core.json_text import parse_json, RepeatedKeyError
from intradp_ros.systems.language.checkpoint import ImportModelError

#: Types and shapes of tensors, by name.
Described = dict[str, tuple[str, tuple[int, ...]]]
#: Bytes of a description: 40 times that of Qwen3-30B-A3B, with 18,867 tensors, by file.
MOST_HEADER, MOST_DIMENSIONS = 16 << 20, 8
_BYTES = {'F64': 8, 'F32': 4, 'F16': 2, 'BF16': 2, 'I64': 8, 'I32': 4, 'I16': 2, 'I8': 1, 'U8': 1,
          'BOOL': 1, 'U16': 2, 'U32': 4, 'U64': 8, 'F8_E4M3': 1, 'F8_E5M2': 1, 'F8_E8M0': 1}


def described(path: Path) -> Described:
    """
    Return types and shapes of the tensors of a file.

    :raises ImportModelError: if the description is not one, or not that of the file's bytes.
    :raises OSError: if it cannot be read.
    """
    total = path.stat().st_size
    with path.open('rb') as file:
        size = int.from_bytes(file.read(8), 'little')
        if total < 8 or size > total - 8:
            raise ImportModelError(f'{path}: a description of {size} bytes in a file of {total}: '
                                   'it is truncated, or not a file of safetensors')
        if size > MOST_HEADER:
            raise ImportModelError(f'{path}: a description of {size} bytes; at most '
                                   f'{MOST_HEADER} are taken')
        data = file.read(size)
    try:
        header = parse_json(data, MOST_HEADER)
    except RepeatedKeyError as error:
        raise ImportModelError(f'{path}: two tensors {error.key[:200]}') from None
    except ValueError as error:
        raise ImportModelError(f'{path}: no description of tensors ({str(error)[:200]})') from None
    if not isinstance(header, dict):
        raise ImportModelError(f'{path}: no description of tensors')
    header.pop('__metadata__', None)
    found: Described = {}
    places = []
    for name, said in header.items():
        if not isinstance(said, dict) or not isinstance(said.get('dtype'), str) \
                or not _numbers(said.get('shape'), MOST_DIMENSIONS) \
                or not _numbers(said.get('data_offsets'), 2) or len(said['data_offsets']) != 2:
            raise ImportModelError(f'{path}: tensor {name[:200]} is not described by dtype, shape '
                                   'and data_offsets')
        if said['dtype'] not in _BYTES:
            raise ImportModelError(f'{path}: tensor {name[:200]} is of the unknown type '
                                   f'{said["dtype"][:40]}')
        found[name] = said['dtype'], tuple(said['shape'])
        places.append((*said['data_offsets'], name))
    end, last = 0, 'nothing'
    for begin, stop, name in sorted(places):
        kind, shape = found[name]
        nbytes = math.prod(shape) * _BYTES[kind]
        wrong = f'follows {last} at {begin}, not at {end}' if begin != end else \
            f'ends at {stop} of {total - 8 - size} bytes that there are' \
            if not begin <= stop <= total - 8 - size else \
            f'{stop - begin} bytes for {" x ".join(map(str, shape))} of {kind}' \
            if nbytes != stop - begin else ''
        if wrong:
            raise ImportModelError(f'{path}: tensor {name[:200]}: {wrong}: the file is truncated, '
                                   'or its description is wrong')
        end, last = stop, name[:200]
    if end != total - 8 - size:
        raise ImportModelError(f'{path}: {total - 8 - size} bytes of tensors, of which {end} are '
                               'described')
    with safe_open(path, framework='pt'):  # which has a look of its own
        return found


def _numbers(given: Any, most: int) -> bool:
    return isinstance(given, list) and len(given) <= most and all(
        type(one) is int and 0 <= one < 1 << 63 for one in given)
