# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether samples are the same in each process, whatever was taken before, and with what."""
from __future__ import annotations

from collections.abc import Sequence
import copy
import sys
from typing import Any

import numpy as np
import torch

from intradp_ros.systems.training.base.reading import take
from intradp_ros.systems.training.base.structure import rows_of, taken_apart
from intradp_ros.systems.training.base.task import Data, TaskError, TensorData, TrainingTask
from intradp_ros.systems.training.base.user_code import drawing, MOST_NUMBERS, objects_reached
from intradp_ros.systems.training.layers.export_checks import generators
from intradp_ros.systems.training.layers.trying import done

#: Samples that are taken in other orders; the seed of what the copy draws.
_TAKEN, _DRAWN = 4, 29


def try_data(task: TrainingTask) -> None:
    """
    Take samples together, alone, and from a copy of the data that nothing was taken from yet.

    Raises
    ------
    TaskError
        If one is another in the end, or that cannot be seen: it is drawn when it is first taken,
        and kept.

    """
    data = task.data
    if isinstance(data, TensorData) or hasattr(data, 'examples'):
        return  # what lies elsewhere is tried there
    copied, numbers = _fresh(data), list(range(min(_TAKEN, len(data))))
    moved = list[bool]()

    def taken(of: Data, order: Sequence[int]) -> Any:
        before = _generators()
        found = done('data.take', lambda: take(of, order))
        moved.append(before != _generators())
        return found
    first = taken(data, numbers)
    for k in reversed(numbers):
        if not _row_is(first, k, taken(data, [k])):
            raise TaskError(f'sample {k} is another one when it is taken alone than together with '
                            'others: let the dataset return a tensor of its own each time (a '
                            'clone() of what it writes to again), and draw by the number of the '
                            'sample')
    drawn_once = moved[0] and not any(moved[1:])
    moved.clear()
    if copied is not None:
        with drawing(_DRAWN):
            others = [(k, taken(copied, [k])) for k in reversed(numbers)]
    if copied is not None and not all(_row_is(first, k, other) for k, other in others) or \
            drawn_once and not any(moved):
        raise TaskError('the data draw at random when a sample is first taken, and keep it: '
                        'devices, which take samples in other orders, would have other ones. Let '
                        'the dataset draw by the number of the sample: '
                        'generator=torch.Generator().manual_seed(k)')


def _generators() -> object:
    return generators(), torch.get_rng_state().tolist()


def _row_is(together: Any, row: int, alone: Any) -> bool:
    """Whether a row is what was taken alone; what is padded by what is taken with it, may be."""
    (one, structure), (other, again) = (taken_apart(whole) for whole in (
        rows_of(together, slice(row, row + 1)), alone))
    return structure != again or all(
        a.shape != b.shape or torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(one, other))


def _fresh(data: Data) -> Data | None:
    """Return a copy; large arrays and what is of libraries it shares.  None if there is none."""
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
    kind = type(one).__module__.partition('.')[0]
    file = getattr(sys.modules.get(kind), '__file__', None) or ''
    return 'site-packages' in file and kind not in ('torch', 'numpy', 'intradp_ros')
