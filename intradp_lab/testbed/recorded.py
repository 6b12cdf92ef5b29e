# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Profiles from operator times that somebody recorded elsewhere, for the same architecture.

A recording is JSON: ``ops``, in the order in which they ran, each with
``name`` (of the torch function), ``output_shapes``, and a time in ms for each
device (``robot_ms``, ``server_ms``).  What a capture folds away (batch norm,
dropout) is in the recording; its time goes to the operator before it.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from math import log2, prod
from pathlib import Path
from typing import Any

from intradp_ros.core.json_text import read_json
from intradp_ros.core.limits import MAX_FILE
from intradp_ros.profiling.profile import OperatorTiming, Profile
from intradp_ros.split.local_operator import LocalOperator, SplitGraph

DEVICES = ('robot', 'server')
#: Seconds of an operator that do not shrink with its rows: launching a kernel.  The logs have
#: operators of a few elements at about these times.
FIXED = {'robot': 10e-6, 'server': 5e-6}
#: The part of the recorded time that must find its operator.
LEAST_MATCHED = 0.9
_SAME = {'reshape': 'flatten', 'view': 'flatten', 'type': 'to_copy', 'getitem': 'unsqueeze'}
_FOLDED = ('batch_norm', 'dropout', 'start', 'end')


@dataclass(frozen=True)
class RecordedOperator:
    """One operator of a recording; seconds by device."""

    name: str
    shape: tuple[int, ...]
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Recording:
    """Operator times of a model; `devices` says on what they were taken."""

    model: str
    devices: Mapping[str, str]
    operators: tuple[RecordedOperator, ...]


def read_recording(path: Path) -> Recording:
    """
    Read a recording.

    :raises ValueError: if the file is not a recording.
    """
    try:
        data = read_json(path, MAX_FILE)
        return Recording(str(data['model']), {d: str(data[d]) for d in DEVICES},
                         tuple(_operator(row) for row in data['ops']))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f'{path} is not a recording of operator times: {error!r}') from error


def _operator(row: Mapping[str, Any]) -> RecordedOperator:
    seconds = {d: float(row[f'{d}_ms']) * 1e-3 for d in DEVICES}
    if not all(0 <= s < float('inf') for s in seconds.values()):
        raise ValueError(f'impossible time in {row}')
    return RecordedOperator(str(row['name']), tuple(map(int, row['output_shapes'][0])), seconds)


def profile_from_recording(split: SplitGraph, digest: str, recording: Recording, device: str,
                           ) -> Profile:
    """
    Return a device's profile for a captured model of the recorded architecture.

    Operators are matched in the order of capture, by function and size relative to the
    input; where the captured one has another resolution, its time is scaled
    by the elements of its output.

    :raises ValueError: if less than nine tenths of the recorded time find their operator.
    """
    source = split.graph.values[split.graph.inputs[0]].shape
    order = as_captured(split)
    shapes = [_shape(split, op) for op in split.operators]
    matches = _matches(
        [(_kind(op.name), *_size(op.shape, recording.operators[0].shape))
         for op in recording.operators],
        [(_kind(split.operators[i].operator.target), *_size(shapes[i], source))
         for i in order])
    seconds, lost, index, factor = [0.0] * len(shapes), 0.0, 0, 1.0
    for k, op in enumerate(recording.operators):
        if k in matches:
            index = order[matches[k]]
            factor = prod(shapes[index]) / prod(op.shape)
        elif _kind(op.name) not in _FOLDED:
            lost += op.seconds[device]
        seconds[index] += op.seconds[device] * factor
    whole = sum(op.seconds[device] for op in recording.operators)
    if lost > (1 - LEAST_MATCHED) * whole:
        raise ValueError(
            f'the recording of {recording.model} is of another architecture than '
            f'{split.graph.name!r}: {lost / whole:.0%} of its time belong to operators that '
            f'are not there')
    timings = tuple(timing_by_rows(op, s, FIXED[device])
                    for op, s in zip(split.operators, seconds))
    return Profile(digest, split.axis, recording.devices[device], 1, timings, sum(seconds))


def _shape(split: SplitGraph, op: LocalOperator) -> tuple[int, ...]:
    """Return the shape of an operator's first output that is read."""
    value = next(v for v in op.operator.outputs if v is not None)
    return split.graph.values[value].shape


def _size(shape: tuple[int, ...], source: tuple[int, ...]) -> tuple[str, float]:
    """Return what identifies a shape at any resolution of the input, and in any layout."""
    elements = prod(shape)
    if elements == max(shape):
        return 'vector', elements
    return 'map', round(log2(elements / prod(source)), 1)


def _kind(name: str) -> str:
    """Return what kind of operator it is: ``aten.add.Tensor`` and ``__iadd__`` are both add."""
    word = name.removeprefix('aten.').partition('.')[0].strip('_')
    word = word.removeprefix('i') if name.startswith('__i') else word
    return _SAME.get(word, word)


def _matches(theirs: Sequence[object], ours: Sequence[object]) -> dict[int, int]:
    """Return which of the recorded operators is which captured one; both keep their order."""
    blocks = SequenceMatcher(None, theirs, ours, autojunk=False).get_matching_blocks()
    return {b.a + k: b.b + k for b in blocks for k in range(b.size)}


def timing_by_rows(op: LocalOperator, seconds: float, fixed: float) -> OperatorTiming:
    """Return the timing of an operator: a fixed part (at most half), and the rest by rows."""
    if op.rows == 1:
        return OperatorTiming((1,), (seconds,))
    fixed = min(fixed, seconds / 2)
    return OperatorTiming((1, op.rows), (fixed + (seconds - fixed) / op.rows, seconds))


def as_captured(split: SplitGraph) -> list[int]:
    """Return a split graph's operators in the order of the captured graph."""
    graph, place = split.graph, dict(split.captured.producer)
    for op in reversed(graph.operators):
        outputs = [v for v in op.outputs if v is not None]
        later = [place[v] for reader in {r for v in outputs for r in graph.consumers[v]}
                 for v in graph.operators[reader].outputs if v is not None]
        for value in outputs:  # one that reductions added counts with what is made of it
            place.setdefault(value, min(later, default=len(graph.operators)))
    return sorted(range(len(graph.operators)), key=lambda index: min(
        place[v] for v in graph.operators[index].outputs if v is not None))
