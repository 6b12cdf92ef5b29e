# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Samples as the task's data give them: what fails is tried again, then named by its number."""
from __future__ import annotations

from collections.abc import Callable, Sequence
import sys
import time
from typing import Any

from intradp_ros.systems.training.base.task import Data, described, TaskError

#: Seconds before samples are taken for the second time, and for the third.
RESTS = (0.1, 0.5)


def take(data: Data, samples: Sequence[int],
         read: Callable[[Sequence[int]], tuple[Any, Any]] | None = None) -> tuple[Any, Any]:
    """
    Return the inputs and targets of samples, by `data.take` or what reads them in another way.

    A disk or a network may fail once: they are taken again, then one by one.

    :raises TaskError: if they cannot be had; the text names the first sample that fails alone.
    """
    read = read or data.take
    failed: Exception | None = None
    for rest in (0.0, *RESTS):
        if rest:  # sleep(0) lets go of the processor
            time.sleep(rest)
        try:
            found = read(samples)
        except Exception as error:  # whatever code of the user raises
            failed = error
            continue
        if failed is not None:
            print(f'samples {list(samples)} were read at a later attempt only: '
                  f'{described(failed)}', file=sys.stderr)
        return found
    assert failed is not None
    for sample in samples if len(samples) > 1 else ():
        try:
            read([sample])
        except Exception as error:
            raise _named(f'sample {sample} of {len(data)}', error) from error
    what = f'sample {samples[0]}' if len(samples) == 1 else \
        f'the samples {list(samples)} together, though each of them can be,'
    raise _named(what, failed) from failed


def _named(what: str, error: Exception) -> TaskError:
    if isinstance(error, TaskError):
        return TaskError(f'{what} cannot be taken: {error}')
    return TaskError(f'{what} cannot be read, by {1 + len(RESTS)} attempts: {described(error)}. '
                     'Repair it, or let the dataset give another item in its place, so that the '
                     'samples keep their numbers')
