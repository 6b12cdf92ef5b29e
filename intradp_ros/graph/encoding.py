# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Argument templates as JSON values and back."""
from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

import torch

from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.operator_graph import ParameterRef, ValueRef


def _names_of(kind: type) -> dict[str, Any]:
    """Return torch's constants of a kind by their own names, as ``float32`` or ``strided``."""
    found = (item for item in vars(torch).values() if isinstance(item, kind))
    return {str(item).removeprefix('torch.'): item for item in found}


DTYPES: dict[str, torch.dtype] = _names_of(torch.dtype)
_NAMED: dict[str, dict[str, Any]] = {
    'dtype': DTYPES,
    'layout': _names_of(torch.layout),
    'memory_format': _names_of(torch.memory_format),
    'device': {'cpu': torch.device('cpu')},
    'float': {'inf': math.inf, '-inf': -math.inf, 'nan': math.nan},
}


def encode(template: Any) -> Any:
    """
    Return an argument template as a value for JSON.

    References and what JSON lacks become objects with one key, such as
    ``{"value": 3}`` or ``{"dtype": "float32"}``.

    :raises GraphFormatError: if the template holds anything else than an operator's arguments may.
    """
    if isinstance(template, float) and not math.isfinite(template):
        return {'float': str(template)}
    if template is None or isinstance(template, (bool, int, float, str)):
        return template
    if isinstance(template, (list, tuple)):
        return [encode(item) for item in template]
    if isinstance(template, ValueRef):
        return {'value': template.value}
    if isinstance(template, ParameterRef):
        return {'parameter': template.name}
    if isinstance(template, torch.device):
        return {'device': 'cpu'}
    return _encode_named(template)


def decode(item: Any) -> Any:
    """
    Return the argument template that a JSON value stands for.

    :raises GraphFormatError: if it is an object of another form than `encode` makes.
    """
    if isinstance(item, list):
        return [decode(part) for part in item]
    if not isinstance(item, dict):
        return item
    if len(item) != 1:
        raise GraphFormatError(f'argument object with keys {sorted(item)}: one is expected')
    ((kind, name),) = item.items()
    if kind == 'value' and type(name) is int:
        return ValueRef(name)
    if kind == 'parameter' and isinstance(name, str):
        return ParameterRef(name)
    table: Mapping[str, Any] = _NAMED.get(kind, {})
    if not isinstance(name, str) or name not in table:
        raise GraphFormatError(f'unknown argument {kind!r}: {name!r}')
    return table[name]


def _encode_named(template: Any) -> dict[str, str]:
    name = str(template).removeprefix('torch.')
    for kind in ('dtype', 'layout', 'memory_format'):
        if _NAMED[kind].get(name) == template:
            return {kind: name}
    raise GraphFormatError(f'an argument of type {type(template).__name__} cannot be serialised')
