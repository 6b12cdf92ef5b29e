# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Build, capture, split and verify one architecture, with the functions of the commands."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
import json
from pathlib import Path
import resource
from time import perf_counter
from typing import Any
import warnings

import torch
from torch import nn

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.inspect_model import inspection
from intradp_ros.cli.subject import captured, Subject
from intradp_ros.cli.verify_model import precisions, unsplit
from intradp_ros.graph.operator_graph import ParameterRef, ValueRef
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.split.checks.calibrate import calibrate, reactions
from intradp_ros.split.checks.verify import output_error, verify
from intradp_ros.split.local_operator import Kind
from survey.architectures import Architecture
from survey.sources import build

Record = dict[str, Any]
PARTS = 3
INPUTS = 5
UNDECIDED = 1e-5
LEAST_REACTION = 1e-3
NOTEWORTHY = 0.005
"""Share of operations or bytes from which a whole operator is listed."""


def measure(architecture: Architecture, seed: int = 0) -> Record:
    """
    Return a record of how an architecture is captured and split, and how exact that is.

    Its weights are calibrated on one random input; it is captured on that,
    and verified on another one.
    """
    clock = Clock()
    example = architecture.inputs(seed)
    model = build(architecture, seed)
    clock.lap('build')
    calibrate(model, example, seed)
    clock.lap('calibrate')
    try:
        subject = _captured(architecture, model, example)
    except CommandError as error:
        return {'status': 'not captured', 'reason': str(error), 'seconds': clock.laps}
    clock.lap('capture')
    record = {**_split(subject), **_trial(subject, architecture, seed)}
    clock.lap('verify')
    return {'status': _status(record), **record, 'seconds': clock.laps}


class Clock:
    """Seconds of each step."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        """End a step."""
        now = perf_counter()
        self.laps[name] = round(now - self._last, 2)
        self._last = now


def _captured(architecture: Architecture, model: nn.Module,
              example: tuple[torch.Tensor, ...]) -> Subject:
    """Capture; if that fails, the error says first what the capture had warned of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter('always')
        try:
            return captured(architecture.name, model, example, None)
        except CommandError as error:
            reasons = [str(w.message) for w in warned if 'as one operator' in str(w.message)]
            raise CommandError('; '.join([*reasons, str(error)])) from error


def _status(record: Mapping[str, Any]) -> str:
    if record['undecided']:
        return 'undecided'
    if not record['exact']:
        return 'NOT exact'
    return 'exact' if record['reacts'] > LEAST_REACTION else 'constant'


def _trial(subject: Subject, architecture: Architecture, seed: int) -> Record:
    """
    Verify on another input than the captured one, and say how far the outputs react.

    With random weights some outputs are nearly undecided: where a model
    selects the best of its proposals, or attends to one of several nearly
    equal keys, the unsplit model's own rounding shows.  Such an input says
    nothing of the split in the model's own precision, and another one is
    tried; an error of the split would show with any.  What is exact in double
    precision, and on every input no better than the unsplit model's own
    rounding in single, is `undecided`.
    """
    undecided = False
    for number in range(1, INPUTS + 1):
        subject = replace(subject, inputs=architecture.inputs(seed + number))
        record = _errors(subject, seed)
        undecided = not record['exact'] and record['double_exact'] and \
            _rounding(subject) >= UNDECIDED
        if not undecided:
            break
    return {'reacts': _least(subject), 'inputs_tried': number, 'undecided': undecided, **record}


def _rounding(subject: Subject) -> float:
    """Return the largest difference of the unsplit graph in its own precision and in double."""
    wide, narrow = ([torch.as_tensor(x) for x in run_graph(split.graph, inputs) if x is not None]
                    for _, split, inputs in precisions(subject))
    return max(output_error('', a, b).relative for a, b in zip(narrow, wide))


def _least(subject: Subject) -> float:
    """Return the least reaction of an output that is not captured as a constant."""
    computed = [isinstance(ref, ValueRef) for ref in subject.graph.outputs
                if isinstance(ref, (ValueRef, ParameterRef))]
    moved = reactions(subject.model, subject.inputs)
    return min((m for m, own in zip(moved, computed) if own and m is not None), default=0.0)


def _split(subject: Subject) -> Record:
    found = inspection(subject, every=True)
    operators = found['operator_list']
    flops = found['flops'] or 1
    nbytes = sum(row['bytes'] for row in operators) or 1
    local = [row for row in operators if row['kind'] != Kind.GLOBAL.value]
    return {
        'method': found['capture'], 'axis': found['axis'], 'rows': found['rows'],
        'operators': len(operators), 'flops': found['flops'],
        'local_flops': sum(row['flops'] for row in local) / flops,
        'local_bytes': sum(row['bytes'] for row in local) / nbytes,
        'meet': len(found['rows_meet']),
        'whole': _whole(operators, flops, nbytes)}


def _whole(operators: Sequence[Record], flops: int, nbytes: int) -> list[Record]:
    """Sum up the whole operators by target and whether they read split rows, the large ones."""
    sums: dict[tuple[str, bool], Record] = {}
    for row in operators:
        if row['kind'] == Kind.GLOBAL.value:
            own = sums.setdefault((row['target'], row['meets']), {
                'target': row['target'], 'meets': row['meets'], 'count': 0, 'flops': 0.0,
                'bytes': 0.0, 'example': row['name'], 'shape': row['shape']})
            own['count'] += 1
            own['flops'] += row['flops'] / flops
            own['bytes'] += row['bytes'] / nbytes
    large = [own for own in sums.values() if max(own['flops'], own['bytes']) > NOTEWORTHY]
    return sorted(large, key=lambda own: -own['flops'])


def _errors(subject: Subject, seed: int) -> Record:
    """Compare model and captured graph, then graph and parts, in both precisions."""
    trial = unsplit(subject, seed)
    record: Record = {'captured_error': trial.worst, 'exact': trial.exact, 'double_exact': True}
    for precision, split, inputs in precisions(subject):
        report = verify(split, inputs, PARTS, seed)
        worst = report.worst
        record[f'{precision}_error'] = worst.relative if worst else 0.0
        record['exact'] = record['exact'] and report.exact
        if precision == 'double':
            record['double_exact'] = report.exact
        record['split_flops'] = report.split_share
    return record


def write_record(architecture: Architecture, path: Path, memory: int) -> None:
    """Measure in this process, which may grow by `memory` bytes (0: no limit), and keep it."""
    torch.set_num_threads(1)
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    try:
        record = measure(architecture)
    except Exception as error:
        record = {'status': 'failed', 'reason': f'{type(error).__name__}: {error}'}
    path.write_text(json.dumps(record))
