# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``services.yaml``: which models are served, and what their requests need."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import math
import os
from pathlib import Path
import re
from typing import Any

from intradp_ros.cluster.located_yaml import FleetFileError, Located, MAX_BYTES, parse, TIME
from intradp_ros.core.plain_file import open_to_read
from intradp_ros.runtime.requests.infer_requests import (
    DTYPES,
    MAX_PRIORITY,
    MAX_TENSOR_BYTES,
    MAX_TENSOR_DIMENSIONS,
    MAX_TENSORS,
)
from intradp_ros.systems.serving.state_row import MAX_NAME, MAX_SERVICES

LARGEST_BATCH = 512
#: Names at a gateway's port that no service may have, and names in observations and answers that
#: no tensor may have.
PATHS = ('sites', 'docks', 'health', 'status', 'metrics', 'v2')
ENTRIES = {'inputs': ('deadline_ms', 'priority'), 'outputs': ('serving', 'server_timing')}
#: Sizes of batches that are tried where a file names none.
LADDER = (1, 2, 4, 8)
#: What matters: each answer's own time, or frames in time for each stream.
KINDS = ('latency', 'frequency')
KEEPS = ('all', 'newest')
_FIELDS = ('model', 'inputs', 'outputs', 'kind', 'deadline', 'rate', 'keep', 'priority', 'batches',
           'seconds', 'ignore')
_ITEM_BYTES = {name: int(bits or 8) // 8 for name, bits in (
    (name, re.sub(r'\D', '', name)) for name in DTYPES)}


class ServicesError(ValueError):
    """A file of services that cannot be used: where, why, and what would do."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, dtype and shape of one row of a tensor; a batch has another dimension before it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Return the bytes of one row."""
        return math.prod(self.shape) * _ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Service:
    """
    A model that is served.

    `deadline` in seconds holds for requests that bring none; `rate` is what a stream may send in
    requests per second, infinite where nothing is declared.  `batches` are the sizes that it may
    run in.  `inputs` and `outputs` are empty until the model is opened, unless the file has them;
    a factory without a shape is captured with one row of such inputs.
    `seconds`, by batches, are those of an emulated executor, empty for a real one.  `ignore` names
    entries of observations that the model does not take, such as a prompt.
    """

    name: str
    model: str
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    kind: str = ''
    deadline: float = 1.0
    rate: float = math.inf
    keep: str = 'all'
    priority: int = 0
    batches: tuple[int, ...] = LADDER
    seconds: tuple[float, ...] = ()
    ignore: tuple[str, ...] = ()

    def order(self, number: int) -> dict[str, Any]:
        """Return what an executor is sent to load it."""
        return {'service': number, 'model': self.model, 'sizes': list(self.batches), 'inputs': [
            (spec.name, spec.dtype, spec.shape) for spec in self.inputs]}


def read_services(path: Path) -> tuple[Service, ...]:
    """
    Read a file; paths of archives are found from its folder.

    :raises ServicesError: if it cannot be read or used; the text names file, line and fix.
    """
    try:
        with open_to_read(path) as stream:
            text = stream.read(MAX_BYTES + 1).decode('utf-8-sig')
    except UnicodeDecodeError:
        raise ServicesError(f'{path}: is not encoded in UTF-8: save it as UTF-8') from None
    except OSError as error:
        raise ServicesError(f'{path}: cannot be read: {error.strerror}') from None
    return parse_services(text, str(path), path.parent)


def parse_services(text: str, file: str = 'services.yaml', folder: Path = Path(),
                   ) -> tuple[Service, ...]:
    """Return the services that a text describes; as `read_services`."""
    try:
        top = parse(text, file, 'services')
        fields = top.fields(('services',), ('services',))
        entries = list(fields['services'].entries())
        if not 0 < len(entries) <= MAX_SERVICES:
            raise fields['services'].fail(f'name 1 to {MAX_SERVICES} services')
        return tuple(_service(name, place, folder) for name, place in entries)
    except FleetFileError as error:
        raise ServicesError(str(error)) from None


def _service(name: str, place: Located, folder: Path) -> Service:
    if not re.fullmatch(rf'[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}', name) or name in PATHS:
        raise place.fail(f'a name of a service has 1 to {MAX_NAME} letters, digits, ".", "_" and '
                         f'"-", and is none of {", ".join(PATHS)}')
    fields = place.fields(_FIELDS, ('model', 'deadline'))
    seconds = _seconds(fields['seconds']) if 'seconds' in fields else ()
    batches = _batches(fields['batches']) if 'batches' in fields else LADDER
    inputs, outputs = (_tensors(fields[what], taken) if what in fields else ()
                       for what, taken in ENTRIES.items())
    ignore = fields['ignore'].names() if 'ignore' in fields else ()
    if both := {spec.name for spec in inputs}.intersection(ignore):
        raise fields['ignore'].fail(f'{both.pop()!r} is an input, which no request could bring '
                                    'then: remove it here')
    if bool(seconds) is not (fields['model'].text() == 'emulated'):
        raise fields['seconds' if seconds else 'model'].fail(
            'times are of emulated models: write "model: emulated", or measure a real one'
            if seconds else 'an emulated model needs times: add "seconds"')
    if seconds and 'batches' in fields and batches[-1] > len(seconds):
        raise fields['batches'].fail(f'"seconds" ends with batches of {len(seconds)}: add the '
                                     f'time of {batches[-1]}')
    if seconds and not (inputs and outputs):
        raise fields['seconds'].fail('an emulated service has no model that would say what goes '
                                     'in and out: add "inputs" and "outputs"')
    priority = fields['priority'].number(-MAX_PRIORITY) if 'priority' in fields else 0.0
    if priority != int(priority) or priority > MAX_PRIORITY:
        raise fields['priority'].fail(f'write a whole number up to {MAX_PRIORITY}')
    return Service(
        name, _model(fields['model'], folder), inputs, outputs,
        _one_of(fields['kind'], KINDS) if 'kind' in fields else '',
        fields['deadline'].quantity(TIME),
        fields['rate'].number(0.0, above=True) if 'rate' in fields else math.inf,
        _one_of(fields['keep'], KEEPS) if 'keep' in fields else 'all', int(priority),
        tuple(range(1, len(seconds) + 1)) if seconds and 'batches' not in fields else
        batches, seconds, ignore)


def _model(place: Located, folder: Path) -> str:
    """Return a factory as it stands, or the path of an archive."""
    text = place.text()
    if ':' in text.split()[0] or text == 'emulated':
        return text
    return str(folder / os.path.expanduser(text))


def _one_of(place: Located, known: tuple[str, ...]) -> str:
    if place.text() not in known:
        raise place.fail(f'write one of: {", ".join(known)}')
    return place.text()


def _batches(place: Located) -> tuple[int, ...]:
    try:
        sizes = tuple(int(text.encode('ascii')) for text in place.names())
    except ValueError:
        sizes = ()
    if not sizes or sizes[0] != 1 or list(sizes) != sorted(set(sizes)) \
            or sizes[-1] > LARGEST_BATCH:
        raise place.fail(f'write sizes of batches that grow from 1 to at most {LARGEST_BATCH}: '
                         '[1, 2, 4, 8]')
    return sizes


def _seconds(place: Located) -> tuple[float, ...]:
    """Return the times of batches of 1, 2, ... rows: those between two that are written lie so."""
    written: dict[int, float] = {}
    for key, value in place.entries():
        if not (key.isascii() and key.isdigit()) or not 0 < int(key) <= LARGEST_BATCH:
            raise value.fail('write times by rows of a batch: "1: 10 ms"')
        written[int(key)] = value.quantity(TIME)
    rows = sorted(written)
    if not rows or rows[0] != 1:
        raise place.fail('lacks the time of one row: add a line "1: 10 ms"')
    if any(written[a] > written[b] for a, b in zip(rows, rows[1:])):
        raise place.fail('a larger batch takes no less time: put the times in order')
    return tuple(_between(written, rows, b) for b in range(1, rows[-1] + 1))


def _between(written: Mapping[int, float], rows: list[int], b: int) -> float:
    above = next(k for k in rows if k >= b)
    if above == b:
        return written[b]
    below = max(k for k in rows if k < b)
    share = (b - below) / (above - below)
    return written[below] + share * (written[above] - written[below])


def _tensors(place: Located, taken: tuple[str, ...]) -> tuple[TensorSpec, ...]:
    for name, value in place.entries():
        if name in taken:
            raise value.fail('stands for something else in requests and answers: rename it')
    found = tuple(_tensor(name, value) for name, value in place.entries())
    if not 0 < len(found) <= MAX_TENSORS:
        raise place.fail(f'name 1 to {MAX_TENSORS} tensors')
    return found


def _tensor(name: str, place: Located) -> TensorSpec:
    dtype, _, shape = place.text().partition(' ')
    sizes = re.fullmatch(r'(\d{1,9}(?:x\d{1,9})*)?', shape.strip())
    if dtype not in DTYPES or sizes is None:
        raise place.fail('write dtype and shape of one row, as in "uint8 224x224x3"; dtypes are '
                         f'{", ".join(DTYPES)}')
    spec = TensorSpec(name, dtype, tuple(int(n) for n in (sizes[1] or '').split('x') if n))
    if len(spec.shape) > MAX_TENSOR_DIMENSIONS or not 0 < spec.nbytes <= MAX_TENSOR_BYTES:
        raise place.fail(f'a row has at most {MAX_TENSOR_DIMENSIONS} dimensions and 1 to '
                         f'{MAX_TENSOR_BYTES} bytes')
    return spec
