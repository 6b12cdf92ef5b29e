# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What batches take while several executors of one device compute at once (MT)."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
import queue
from typing import Any

import numpy as np

from intradp_ros.runtime.models.catalogue import ModelSpecError
from intradp_ros.systems.serving.executor import Executor, Opened, ProcessExecutor
from intradp_ros.systems.serving.executor_messages import BatchResult
from intradp_ros.systems.serving.loaded_service import RUNS
from intradp_ros.systems.serving.service import Service
from intradp_ros.systems.serving.service_table import measured

#: Seconds in which a model must be loaded, or a batch computed.
PATIENCE = 600.0


class _Heard:
    """Hears executors, for one thread that waits."""

    def __init__(self) -> None:
        self._said: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()

    def opened(self, executor: int, service: int, found: Opened) -> None:
        """Hear that a service is ready."""
        self._said.put((executor, found))

    def failed(self, executor: int, service: int, why: str) -> None:
        """Hear that a service cannot be loaded."""
        self._said.put((executor, why))

    def ended(self, executor: int, result: BatchResult) -> None:
        """Hear of the end of a batch."""
        self._said.put((executor, result))

    def lost(self, executor: int, why: str, which: Executor) -> None:
        """Hear that an executor is gone."""
        self._said.put((executor, f'its process {why}'))

    def next(self) -> tuple[int, Any]:
        """Return who said what next; ModelSpecError for bad news."""
        try:
            executor, said = self._said.get(timeout=PATIENCE)
        except queue.Empty:
            raise ModelSpecError(f'an executor says nothing for {PATIENCE:g} s') from None
        if isinstance(said, str):
            raise ModelSpecError(said)
        return executor, said


def measured_together(service: Service, tasks: int, *, threads: int = 1, device: str = 'cpu',
                      start: Callable[..., Executor] = ProcessExecutor) -> Opened:
    """
    Return what a service is, with the times that its batches take while so many run at once.

    :raises ModelSpecError: if it cannot be loaded.
    """
    heard = _Heard()
    with ExitStack() as stack:
        executors = []
        for k in range(tasks):
            executors.append(start(k, {0: service}, heard, threads=threads, device=device))
            stack.callback(executors[-1].close)
        found: Opened = [heard.next() for _ in executors][0][1]
        chance = np.random.default_rng(0)
        row = {spec.name: (chance.random(spec.shape) if np.dtype(spec.dtype).kind == 'f'
                           else np.zeros(spec.shape)).astype(spec.dtype) for spec in found.inputs}
        times = [_times(executors, heard, [row] * size) for size in found.sizes]
    seconds, spread = zip(*map(measured, times))
    return replace(found, seconds=seconds, spread=spread)


def _times(executors: Sequence[Executor], heard: _Heard, rows: Sequence[Any]) -> list[float]:
    """Return the seconds of batches that ran while all executors were at work."""
    runs, times = [0] * len(executors), list[float]()
    for executor in executors:
        executor.run(1, 0, rows)
    running = len(executors)
    while running:
        k, result = heard.next()
        runs[k] += 1
        if max(runs) <= RUNS and runs[k] > 1:  # the first one warms
            times.append(result.seconds)
        if max(runs) <= RUNS:
            executors[k].run(runs[k] + 1, 0, rows)
        else:
            running -= 1
    return times
