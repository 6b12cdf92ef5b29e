# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Devices that are not there: every operator takes the time of a cost table and computes nothing.

The model's operators keep their shapes, regions and bytes, so that sessions,
programs and transfers are those of a real device, and messages as large; the
numbers in them mean nothing.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
import ctypes
from dataclasses import replace
import threading
import time

import numpy as np
import numpy.typing as npt
import torch

from intradp_ros.execution.model import SharedModel
from intradp_ros.operators.local_operator import Kernel, LocalOperator, Parameters, SplitGraph
from intradp_ros.operators.region import Region

Table = npt.NDArray[np.float64]
#: How far (seconds) a device may be ahead of the clock before it sleeps, and how late it may
#: come back from a sleep and still make up for it.  Between the two it is as good as exact.
AHEAD, BEHIND = 0.1e-3, 1e-3
_PR_SET_TIMERSLACK = 29


class DeviceClock:
    """
    The time that an emulated device's operators have taken.

    A sleep ends some 0.1 ms late and an operator may be shorter than that.
    So the clock adds up what operators take and sleeps only when it is ahead
    of the real time, and what a sleep took too long counts for the next one.
    A device that comes later than `BEHIND` had been waiting: its time goes
    on from now.
    """

    def __init__(self, sleep: Callable[[float], None] = time.sleep,
                 now: Callable[[], float] = time.monotonic) -> None:
        self._sleep, self._now = sleep, now
        self._due = 0.0
        self._prepared = threading.local()

    def spend(self, seconds: float) -> None:
        """Let the device be busy for so long."""
        now = self._now()
        if now - self._due > BEHIND:
            self._due = now
        self._due += seconds
        if self._due - now > AHEAD:
            self._prepare_thread()
            self._sleep(self._due - now)

    def _prepare_thread(self) -> None:
        """Let sleeps of this thread end when they should (Linux rounds up by 50 us)."""
        if not hasattr(self._prepared, 'done'):
            self._prepared.done = True
            try:
                ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000)
            except (OSError, AttributeError):  # not Linux: sleeps end a little later
                return


def emulated(model: SharedModel, seconds: Sequence[Table], clock: DeviceClock) -> SharedModel:
    """
    Return a model that runs on an emulated device.

    Parameters
    ----------
    model :
        The model to take shapes and row maps from; the digest stays.
    seconds :
        For each operator the seconds by count of rows, 0 to all.
    clock :
        The device's clock.

    Raises
    ------
    ValueError
        If the tables are not those of this model.

    """
    split = model.split
    _check(split, seconds)
    operators = tuple(_timed(split, op, table, clock)
                      for op, table in zip(split.operators, seconds))
    return SharedModel(replace(split, operators=operators), model.digest)


def _check(split: SplitGraph, seconds: Sequence[Table]) -> None:
    if len(seconds) != len(split.operators):
        raise ValueError(f'there are {len(seconds)} tables for {len(split.operators)} operators')
    for op, table in zip(split.operators, seconds):
        if len(table) != op.rows + 1 or not (table >= 0).all():
            raise ValueError(
                f'the table of operator {op.operator.name} must have seconds for 0 to {op.rows} '
                f'rows, got {len(table)} entries')


def _timed(split: SplitGraph, op: LocalOperator, table: Table, clock: DeviceClock,
           ) -> LocalOperator:
    outputs = [v for v in op.operator.outputs if v is not None]

    def bind(region: Region, parameters: Parameters) -> Kernel:
        results = [_rows(split, v, region) for v in op.operator.outputs if v is not None]
        answer = results[0] if len(op.operator.outputs) == 1 and outputs else [
            results.pop(0) if v is not None else None for v in op.operator.outputs]
        duration = float(table[region.rows])

        def kernel(inputs: Sequence[torch.Tensor]) -> object:
            clock.spend(duration)
            return answer

        return kernel

    return replace(op, bind=bind)


def _rows(split: SplitGraph, value: int, region: Region) -> torch.Tensor:
    """Return rows of a value that take no memory."""
    described = split.graph.values[value]
    shape, dim = list(described.shape), split.dims[value]
    if dim is not None:
        shape[dim] = 1 if value in split.folded else region.rows
    return torch.zeros(1, dtype=described.dtype).expand(shape)
