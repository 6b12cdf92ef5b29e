# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Devices that are not there: every operator takes the time of a cost table and computes nothing.

The model's operators keep their shapes, regions and bytes, so that sessions,
programs and transfers are those of a real device, and messages as large; the
numbers in them mean nothing.  Neither are rows copied where pieces are put
together: the machine that emulates would take far longer over that than a
device with fast memory, which is charged for what its memory takes.
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

from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.split.kernel_device import KernelDevice
from intradp_ros.split.local_operator import Kernel, LocalOperator, Parameters, SplitGraph
from intradp_ros.split.regions.region import Region

Table = npt.NDArray[np.float64]
#: How far (seconds) a device may be ahead of the clock before it sleeps.
AHEAD = 0.1e-3
_PR_SET_TIMERSLACK = 29


class DeviceClock:
    """
    The time that an emulated device's operators have taken.

    A sleep ends some 0.1 ms late and an operator may be shorter than that.
    So the clock adds up what operators take and sleeps only when it is ahead
    of the real time, and what a sleep took too long counts for the next one,
    as does what other threads of the process kept this one from.  Only time
    in which there was nothing to compute is not made up for.
    """

    def __init__(self, sleep: Callable[[float], None] = time.sleep,
                 now: Callable[[], float] = time.monotonic) -> None:
        self._sleep, self._now = sleep, now
        self._due = now()
        self._prepared = threading.local()

    def idle_until(self, when: float) -> None:
        """Hear that there was nothing to compute until then."""
        self._due = max(self._due, when)

    def spend(self, seconds: float) -> None:
        """Let the device be busy for so long."""
        now = self._now()
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


class EmulatedDevice(KernelDevice):
    """Puts pieces together in the time that its memory takes (`copies`: seconds for a byte)."""

    def __init__(self, clock: DeviceClock, copies: float) -> None:
        self._clock, self._copies = clock, copies

    def join(self, pieces: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
        """Return rows of the right shape that take no memory."""
        shape = list(pieces[0].shape)
        shape[dim] = sum(piece.shape[dim] for piece in pieces)
        joined = _weightless(shape, pieces[0].dtype)
        self._clock.spend(self._copies * joined.nbytes)
        return joined

    def idle_until(self, when: float) -> None:
        """Let the device's time go on from then, if it was not busy."""
        self._clock.idle_until(when)


def emulated(model: SharedModel, seconds: Sequence[Table], clock: DeviceClock, *,
             copies: float = 0.0) -> SharedModel:
    """
    Return a model that runs on an emulated device.

    :param model: the model to take shapes and row maps from; the digest stays.
    :param seconds: for each operator the seconds by count of rows, 0 to all.
    :param clock: the device's clock.
    :param copies: seconds for each byte that is copied where pieces are put together.

    :raises ValueError: if the tables are not those of this model.
    """
    split = model.split
    _check(split, seconds)
    operators = tuple(_timed(split, op, table, clock)
                      for op, table in zip(split.operators, seconds))
    return SharedModel(
        replace(split, operators=operators, device=EmulatedDevice(clock, copies)), model.digest)


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
    return _weightless(shape, described.dtype)


def _weightless(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros((), dtype=dtype).expand(tuple(shape))
