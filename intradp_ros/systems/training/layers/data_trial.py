# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether samples are the same in each process, whatever was taken before, and with what."""
from __future__ import annotations

from collections.abc import Sequence
import copy
import sys
import time
from typing import Any

import numpy as np
import torch

from intradp_ros.systems.training.base.reading import take
from intradp_ros.systems.training.base.structure import rows_of, taken_apart
from intradp_ros.systems.training.base.task import (
    Data,
    examples,
    TaskError,
    TensorData,
    TrainingTask,
)
from intradp_ros.systems.training.base.user_code import (
    changed_between,
    counted,
    drawing,
    MOST_NUMBERS,
    objects_reached,
)
from intradp_ros.systems.training.layers.export_checks import generators
from intradp_ros.systems.training.layers.trying import done

#: Samples that are taken in other orders; the seed of what the copy draws; times by which it is
#: seen that data draw, since other threads may draw now and then.
_TAKEN, _DRAWN, _TRIES = 4, 29, 3


def try_data(task: TrainingTask, untouched: Data | None, drawn: bool) -> None:
    """
    Take samples together, alone, and from a copy of the data that nothing was taken from yet.

    Before that, the first samples were taken from the task's data; `drawn` says whether the
    process's generators moved then.

    :raises TaskError: if one is another in the end, or that cannot be seen: it is drawn when it is
        first taken, and kept.
    """
    data = task.data
    if isinstance(data, TensorData) or hasattr(data, 'examples'):
        return  # what lies elsewhere is tried there
    numbers, before = list(range(min(_TAKEN, len(data)))), drawn_so_far()
    first = _taken(data, numbers)
    for k in reversed(numbers):
        if not _row_is(first, k, _taken(data, [k])):
            raise TaskError(f'sample {k} is another one when it is taken alone than together with '
                            'others: let the dataset return a tensor of its own each time (a '
                            'clone() of what it writes to again), and draw by the number of the '
                            'sample')
    draws_once, draws_again, same = drawn and before == drawn_so_far(), False, True
    if untouched is not None:
        with drawing(_DRAWN):
            before = drawn_so_far()
            same = all(_row_is(first, k, _taken(untouched, [k])) for k in reversed(numbers))
            draws_again = before != drawn_so_far()
    if not same or draws_once and not draws_again:
        raise TaskError('the data draw at random when a sample is first taken, and keep it: '
                        'devices, which take samples in other orders, would have other ones. Let '
                        'the dataset draw by the number of the sample: '
                        'generator=torch.Generator().manual_seed(k)')


def taken_twice(data: Data, samples: Sequence[int], what: str = 'data') -> tuple[Any, list[float]]:
    """
    Take samples twice; return them, and the seconds of each.

    :raises TaskError: if they differ, or others might: by draws that nothing seeds, or a count.
    """
    for _ in range(_TRIES):
        taken, seconds, counts, states = [], [], [], [drawn_so_far()]
        for _ in range(2):
            begun = time.perf_counter()
            taken.append(_taken(data, samples, what))
            seconds.append(time.perf_counter() - begun)
            states.append(drawn_so_far())
            counts.append(counted(**{what: data}))
        (one, structure), (two, again) = map(taken_apart, taken)
        same = structure == again and len(one) == len(two) and all(
            a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
            for a, b in zip(one, two))
        if not same or not any(a != b != c for a, b, c in zip(*states)):
            break
    else:
        same = False
    if not same:
        raise TaskError(
            f'{what}.take draws by generators of the process, or returns other values each time, '
            f'for the samples {list(samples)}: a round that is played again would train on other '
            'samples; draw by the number of the sample instead, '
            'generator=torch.Generator().manual_seed(k), and write to a clone() of what is kept. '
            'What is to differ from round to round is made by Items(dataset, augment=...)')
    if changed := changed_between(*counts):
        raise TaskError(f'{changed} changes with each time that samples are taken: what a dataset '
                        'counts is not the same on all devices. Let it remember nothing, and draw '
                        'by the number of the sample')
    return taken[0], seconds


def drawn_so_far() -> tuple[object, ...]:
    """Return the states of the process's generators, of Python, NumPy and PyTorch."""
    python, *numpy = generators()
    return python, numpy, torch.get_rng_state().tolist()


def _taken(data: Data, samples: Sequence[int], what: str = 'data') -> Any:
    return done(f'{what}.take', lambda: examples(data, len(samples))
                if hasattr(data, 'examples') else take(data, samples))


def _row_is(together: Any, row: int, alone: Any) -> bool:
    """Whether a row is what was taken alone; what is padded by what is taken with it, may be."""
    (one, structure), (other, again) = (taken_apart(whole) for whole in (
        rows_of(together, slice(row, row + 1)), alone))
    return structure != again or all(
        a.shape != b.shape or torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(one, other))


def untouched_copy(data: Data) -> Data | None:
    """Return a copy; large arrays and what is of libraries it shares.  None if there is none."""
    if isinstance(data, TensorData) or hasattr(data, 'examples'):
        return None
    shared = {id(one): one for one in objects_reached(data) if _stays(one)}
    try:
        return copy.deepcopy(data, shared)
    except Exception:  # locks, files and the like
        return None


def _stays(one: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.numel() > MOST_NUMBERS
    if isinstance(one, np.ndarray):
        return one.size > MOST_NUMBERS
    kind = str(type(one).__module__).partition('.')[0]
    file = getattr(sys.modules.get(kind), '__file__', None) or ''
    return 'site-packages' in file and kind not in ('torch', 'numpy', 'intradp_ros')
