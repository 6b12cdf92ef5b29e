# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What must be the same wherever a task is trained: else results would be those of no process.

Facts are short texts by what they say, so that a device that has another version of a task, or
other data, is refused with what differs.  Pictures and other real numbers of samples are compared
with a tolerance: decoders differ a little from machine to machine.
"""
from __future__ import annotations

from collections.abc import Mapping
from functools import partial
import hashlib
import inspect
from os.path import commonprefix
import re
from types import MappingProxyType
from typing import Any

import torch

from intradp_ros.systems.training.base.reading import take
from intradp_ros.systems.training.base.structure import tensors_of
from intradp_ros.systems.training.base.task import Data, TrainingTask, weights_digest
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.layers.parameter_hooks import hooks_of
from intradp_ros.systems.training.layers.stage_optimiser import whole_optimiser

#: Facts of a task, and characters of their names and texts.
MOST_FACTS, MOST_NAME, MOST_TEXT = 16, 40, 1200
#: Characters of a fact that an error shows.
_SHOWN = 40
#: Samples that are looked at, words of them in a text, and how far these may be apart, in parts
#: of the sample's root mean square.
SAMPLES, _MOST_WORDS, TOLERANCE = 4, 28, 0.01
#: Rounds at which a schedule of learning rates is compared.
_ROUNDS = 16
#: The facts of samples: of each tensor mean, slope and root mean square, or of labels a digest.
DATA, CHECK = 'data', 'check'

Facts = Mapping[str, str]
NO_FACTS: Facts = MappingProxyType({})


def task_facts(task: TrainingTask, graph: LayerGraph, everywhere: bool = True) -> dict[str, str]:
    """
    Return the facts of a task.

    Those of the samples are among them where all of them can be read `everywhere`.
    """
    optimiser = whole_optimiser(task)
    groups = [{key: value for key, value in group.items() if key != 'params' and value}
              for group in optimiser.param_groups]
    rounds = sorted({k * (task.rounds - 1) // (_ROUNDS - 1) for k in range(_ROUNDS)})
    figures = ', '.join(f'{name} {getattr(task, name)}' for name in (
        'batch', 'grain', 'micro_batches', 'rounds', 'seed', 'clip', 'autocast', 'freeze_norms',
        'validate_every', 'best_by', 'patience'))
    return {
        'initial weights': weights_digest(task),
        'network': _digest([[layer.parameters, layer.buffers, [str(n.target) for n in layer.nodes]]
                            for layer in graph.layers], graph.cuts),
        'figures': figures,
        'optimiser': _short(f'{type(optimiser).__name__} {groups}'),
        'schedule': ' '.join(f'{task.schedule(k):.6g}' for k in rounds) if task.schedule else '',
        'loss': _source(task.loss),
        'hooks': _short(' '.join(
            f'{name} {_source(hook)}' for name, p in task.module.named_parameters()
            for hook in sum(hooks_of(p), []))),
        'augmentation': _source(augment) if (
            augment := getattr(task.data, 'augment', None)) else '',
        'number of samples': str(len(task.data)),
        **({CHECK: _numbers(task.check)} if task.validate_every and task.check else {}),
        **({DATA: samples} if (samples := sample_facts(task, everywhere)) else {})}


def sample_facts(task: TrainingTask, everywhere: bool = True) -> str:
    """Return what some samples are, '' where not all of them can be read `everywhere`."""
    return _numbers(task.data) if everywhere and not hasattr(task.data, 'examples') else ''


def apart(here: Facts, wanted: Facts) -> str:
    """Return in words what differs first between the facts here and those wanted; '' if none."""
    for name, text in wanted.items():
        found = here.get(name)
        if found is not None and found != text and not (
                name in (DATA, CHECK) and alike(found, text)):
            begin = found[:len(commonprefix([found, text]))].rfind(' ') + 1  # of what differs
            return (f'{name} {"... " * bool(begin)}{found[begin:begin + _SHOWN]}, where it is '
                    f'planned {text[begin:begin + _SHOWN]}')
    return ''


def _short(text: str) -> str:
    """Return a text without places in memory; what is too long as a digest."""
    text = re.sub(r' at 0x[0-9a-f]+', '', text)
    return text if len(text) <= MOST_TEXT else _digest(text)


def _digest(*what: Any) -> str:
    return hashlib.sha256(re.sub(r' at 0x[0-9a-f]+', '', repr(what)).encode()).hexdigest()[:16]


def _source(function: Any) -> str:
    """Return what stands for a function: its name and a digest of its text."""
    if isinstance(function, partial):
        return _short(f'{_source(function.func)} {function.args} {function.keywords}')
    name = getattr(function, '__qualname__', '') or repr(function)
    try:
        return _short(f'{name} {_digest(inspect.getsource(function))}')
    except (OSError, TypeError):  # built in, or an object that is called
        return _short(name)


def _numbers(data: Data) -> str:
    """Return what each tensor of some samples is: labels and words to the last bit."""
    count, found = len(data), list[str]()
    for sample in sorted({k * (count - 1) // (SAMPLES - 1) for k in range(SAMPLES)}):
        for tensor in tensors_of(take(data, [sample])):
            if tensor.is_floating_point() or tensor.dtype is torch.uint8 or tensor.dim() > 3:
                values = tensor.to(torch.float64).flatten()
                slope = torch.linspace(-1, 1, len(values), dtype=torch.float64)
                found.append('/'.join(f'{number:.6g}' for number in (
                    values.mean(), (values * slope).mean(), values.square().mean().sqrt())))
            else:
                found.append(_digest(tensor.tolist())[:8])
    return ' '.join(found[:_MOST_WORDS])


def alike(one: str, other: str) -> bool:
    """Whether the numbers of samples are almost the same."""
    words = one.split(), other.split()
    return len(words[0]) == len(words[1]) and all(
        a == b or '/' in a and '/' in b and _near(a, b) for a, b in zip(*words))


def _near(one: str, other: str) -> bool:
    try:
        a, b = ([float(word) for word in text.split('/')] for text in (one, other))
    except ValueError:
        return False
    return len(a) == len(b) and all(
        abs(x - y) <= TOLERANCE * max(b[-1], 1e-9) for x, y in zip(a, b))
