# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Requests and answers of the Open Inference Protocol v2 as bytes: JSON, with binary tensors or not.

A request's ``parameters`` may say ``timeout`` (microseconds, as for Triton) and ``priority``
(whole numbers; larger ones are served earlier, as everywhere here).  All sizes are held to what
the service takes before anything is read.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import itertools
import json
import math
from typing import Any

import numpy as np

from intradp_ros.core.json_text import parse_json
from intradp_ros.runtime.requests.infer_requests import InferEnd, Tensors
from intradp_ros.systems.serving.service import TensorSpec

#: Bytes of JSON that are parsed, and levels of lists in one another.
MAX_JSON, MAX_LEVELS = 4 << 20, 9
MAX_PRIORITY = 1000
DATATYPES = {'bool': 'BOOL', 'float16': 'FP16', 'float32': 'FP32', 'float64': 'FP64',
             **{f'{kind}{bits}': f'{kind.upper()}{bits}'
                for kind in ('int', 'uint') for bits in (8, 16, 32, 64)}}
_NUMBERS = frozenset({bool, int, float})


class ProtocolError(ValueError):
    """A request that is not taken; the text names the field."""


@dataclass(frozen=True)
class InferBody:
    """
    What a request says.

    `timeout` in seconds, infinite where it says none; `batched`: all tensors have a first
    dimension of 1, and so have the outputs; `binary`: whether each output that is wanted is sent
    as bytes, in order, empty for all of them.
    """

    tensors: Tensors
    id: str = ''
    timeout: float = math.inf
    priority: int = 0
    batched: bool = False
    binary: Mapping[str, bool] | None = None
    binary_default: bool = False


def infer_body(body: bytes, header: int | None, inputs: Sequence[TensorSpec]) -> InferBody:
    """
    Return what a body says; `header` are its bytes of JSON if tensors follow, `inputs` its specs.

    :raises ProtocolError: if it is not taken; the text names the field.
    """
    length = len(body) if header is None else header
    if not 0 < length <= min(len(body), MAX_JSON):
        raise ProtocolError(f'{length} bytes of JSON in {len(body)}: send 1 to {MAX_JSON}, and '
                            'larger tensors as binary data')
    try:
        said = parse_json(body[:length], None)
    except ValueError as error:
        raise ProtocolError(f'the request is not JSON: {str(error)[:100]}') from None
    if not isinstance(said, dict):
        raise ProtocolError('the request is not an object of JSON')
    parameters = _parameters(said, 'the request', ('timeout', 'priority', 'binary_data_output'))
    tensors = _tensors(said, memoryview(body)[length:], {spec.name: spec for spec in inputs})
    identity = said.get('id', '')
    if not isinstance(identity, str) or len(identity) > 256:
        raise ProtocolError('id: send a text of at most 256 characters')
    return InferBody(
        tensors, identity, seconds_of(parameters.get('timeout')),
        priority_of(parameters.get('priority', 0)),
        is_batched(tensors, inputs), _wanted(said), parameters.get('binary_data_output') is True)


def _parameters(said: Mapping[str, Any], place: str, known: Sequence[str]) -> Mapping[str, Any]:
    found = said.get('parameters', {})
    if not isinstance(found, dict):
        raise ProtocolError(f'parameters of {place} are not an object')
    for name in found:
        if name not in known:
            raise ProtocolError(f'parameter {name[:40]!r} of {place}: known are '
                                f'{", ".join(known)}')
    return found


def seconds_of(value: Any) -> float:
    """Return the seconds of a ``timeout``; none and 0 set no limit."""
    if value is None or value == 0:
        return math.inf
    if type(value) not in (int, float) or not 0 < value <= 1e15:
        raise ProtocolError(f'timeout {str(value)[:40]!r}: send microseconds above 0')
    return float(value) / 1e6


def priority_of(value: Any) -> int:
    """Return a ``priority``; ProtocolError if it is not one."""
    if type(value) is not int or abs(value) > MAX_PRIORITY:
        raise ProtocolError(f'priority {str(value)[:40]!r}: send a whole number from '
                            f'-{MAX_PRIORITY} to {MAX_PRIORITY}')
    return value


def _entries(said: Mapping[str, Any], key: str, most: int) -> list[Mapping[str, Any]]:
    found = said.get(key, [])
    if not isinstance(found, list) or len(found) > most or not all(
            isinstance(entry, dict) and isinstance(entry.get('name'), str) for entry in found):
        raise ProtocolError(f'{key}: send a list of at most {most} objects with a name')
    names = [entry['name'] for entry in found]
    if len(set(names)) < len(names):
        raise ProtocolError(f'{key}: a name is there twice')
    return found


def _wanted(said: Mapping[str, Any]) -> Mapping[str, bool] | None:
    found = _entries(said, 'outputs', 64)
    return {entry['name']: _parameters(entry, f'output {entry["name"][:80]!r}', (
        'binary_data',)).get('binary_data') is True for entry in found} or None


def _tensors(said: Mapping[str, Any], rest: memoryview, specs: Mapping[str, TensorSpec],
             ) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in _entries(said, 'inputs', 64):
        name = entry['name']
        place = f'input {name[:80]!r}'
        shape = entry.get('shape')
        spec = spec_of(name, entry.get('datatype'), shape, specs)
        dtype = np.dtype(spec.dtype)
        size = _parameters(entry, place, ('binary_data_size',)).get('binary_data_size')
        if size is None:
            values = values_of(entry.get('data'), dtype, math.prod(spec.shape), place)
        elif size != spec.nbytes or 'data' in entry or len(rest) < spec.nbytes:
            raise ProtocolError(f'{place}: binary_data_size {str(size)[:20]}, {len(rest)} bytes '
                                f'follow: send {spec.nbytes} bytes, and no "data"')
        else:
            values = np.frombuffer(bytes(rest[:spec.nbytes]), dtype)
            rest = rest[spec.nbytes:]
        found[name] = values.reshape(shape)
    if len(rest):
        raise ProtocolError(f'{len(rest)} bytes follow the tensors')
    check_all(found, specs)
    return found


def spec_of(name: str, datatype: Any, shape: Any, specs: Mapping[str, TensorSpec]) -> TensorSpec:
    """Return the spec of an input; ProtocolError if there is none, or it is another."""
    place, spec = f'input {name[:80]!r}', specs.get(name)
    if spec is None:
        raise ProtocolError(f'{place} is not taken; taken are {", ".join(specs)}')
    if not isinstance(datatype, str) or datatype != DATATYPES[spec.dtype]:
        raise ProtocolError(f'{place} has datatype {str(datatype)[:20]!r}: send '
                            f'{DATATYPES[spec.dtype]}')
    if shape not in (list(spec.shape), [1, *spec.shape]) \
            or not all(type(n) is int for n in shape):
        raise ProtocolError(f'{place} has shape {str(shape)[:80]}: send {list(spec.shape)}')
    return spec


def check_all(found: Mapping[str, Any], specs: Mapping[str, TensorSpec]) -> None:
    """Raise ProtocolError if an input is missing."""
    for name in specs:
        if name not in found:
            raise ProtocolError(f'input {name!r} is missing')


def is_batched(tensors: Tensors, inputs: Sequence[TensorSpec]) -> bool:
    """Say whether all tensors have a first dimension of 1: so do the outputs then."""
    return bool(inputs) and all(tensors[s.name].ndim == len(s.shape) + 1 for s in inputs)


def wanted(asked: Mapping[str, bool], tensors: Tensors) -> Mapping[str, bool]:
    """Return the outputs that are asked for; ProtocolError if there is no such one."""
    for name in asked:
        if name not in tensors:
            raise ProtocolError(f'output {name[:80]!r} is not given; given are '
                                f'{", ".join(tensors)}')
    return asked


def figures(end: InferEnd) -> dict[str, Any]:
    """Return what an answer says of itself, as parameters."""
    times = {'queue': end.queue, 'compute': end.compute, 'predicted': end.predicted,
             'finished': end.finished}
    return {'site': end.site, 'batch': end.batch, **{
        f'{key}_ms': 1e3 * float(value) for key, value in times.items() if math.isfinite(value)}}


def values_of(data: Any, dtype: np.dtype[Any], count: int, place: str) -> Any:
    """Return numbers of lists of any levels; each has to be one of the dtype."""
    values = data if isinstance(data, list) else None
    for _ in range(MAX_LEVELS):
        if not values or type(values[0]) is not list:
            break
        values = list(itertools.chain.from_iterable(values)) \
            if set(map(type, values)) == {list} else None
    if values is None or len(values) != count or not set(map(type, values)) <= _NUMBERS:
        raise ProtocolError(f'{place}: data has to be a list of {count} numbers')
    found = np.array(values) if values else np.zeros(0)
    kinds = {'b': 'b', 'i': 'iu', 'u': 'iu', 'f': 'iuf'}[dtype.kind]
    try:
        with np.errstate(over='raise', invalid='raise'):
            cast = found.astype(dtype)
        fits = found.dtype.kind in kinds and (dtype.kind == 'f' or bool((cast == found).all()))
    except (FloatingPointError, OverflowError):
        fits = False
    if values and not fits:
        raise ProtocolError(f'{place}: data holds numbers that are not {DATATYPES[dtype.name]}')
    return cast


def described(name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec],
              ) -> dict[str, Any]:
    """Return the metadata of a model; shapes are those of one row."""
    return {'name': name, 'versions': ['1'], 'platform': 'intradp_ros', **{
        what: [{'name': s.name, 'datatype': DATATYPES[s.dtype], 'shape': list(s.shape)}
               for s in specs] for what, specs in (('inputs', inputs), ('outputs', outputs))}}


def answer(model: str, asked: InferBody, end: InferEnd) -> tuple[bytes, int | None]:
    """
    Return the body of an answer in time, and its bytes of JSON if binary tensors follow.

    :raises ProtocolError: if an output is asked for that there is not, or that JSON cannot hold.
    """
    outputs, rest = [], list[bytes]()
    for name, binary in wanted(
            asked.binary or dict.fromkeys(end.tensors, asked.binary_default), end.tensors).items():
        tensor = end.tensors[name]
        entry: dict[str, Any] = {
            'name': name, 'datatype': DATATYPES[tensor.dtype.name],
            'shape': [1, *tensor.shape] if asked.batched else list(tensor.shape)}
        if binary:
            rest.append(tensor.tobytes())
            entry['parameters'] = {'binary_data_size': len(rest[-1])}
        else:
            if tensor.dtype.kind == 'f' and not np.isfinite(tensor).all():
                raise ProtocolError(f'output {name!r} holds NaN or infinity, which JSON has no '
                                    'numbers for: ask for binary data')
            entry['data'] = tensor.reshape(-1).tolist()
        outputs.append(entry)
    said = {'model_name': model, 'model_version': '1', 'parameters': figures(end),
            'outputs': outputs}
    if asked.id:
        said['id'] = asked.id
    head = json.dumps(said).encode()
    return b''.join((head, *rest)), len(head) if rest else None
