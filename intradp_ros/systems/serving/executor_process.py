# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
An executor as a process: ``python -m intradp_ros.systems.serving.executor_process NAME``.

It loads services as it is told, one after another, and computes batches in between.  Messages are
in `executor_messages`.
"""
from __future__ import annotations

from collections.abc import Sequence
import json
import os
import queue
import sys
import time
import traceback
from typing import Any

import numpy as np
import torch

from intradp_ros.core.child_process import ChildSide
from intradp_ros.profiling.machine import prepare_process, release_memory
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.split.kernel_device import KernelDevice
from intradp_ros.systems.serving.executor_messages import (
    answer_message,
    BATCH,
    Batch,
    batch_of,
    JSON,
    json_message,
)
from intradp_ros.systems.serving.loaded_service import load_service, LoadedService


def main() -> int:
    """Serve until the parent ends."""
    side = ChildSide()
    orders: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
    side.listen(orders.put)
    start = json.loads(memoryview(orders.get())[1:].tobytes())
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # services may name a module of the working directory
    prepare_process(int(start['threads']))
    device = open_device(start['device'])
    services: dict[int, LoadedService] = {}
    while True:
        message = orders.get()
        if message[:1] == JSON:
            _load(side, json.loads(memoryview(message)[1:].tobytes()), device, services)
        elif message[:1] == BATCH:
            batch = batch_of(message)
            _compute(side, batch, services[batch.service])


def _load(side: ChildSide, what: dict[str, Any], device: KernelDevice,
          services: dict[int, LoadedService]) -> None:
    began = time.monotonic()
    number = int(what['service'])
    try:
        loaded = load_service(what['model'], what['sizes'], device)
        loaded.measure()
    except Exception as error:  # whatever the model's own code raises
        traceback.print_exc()
        side.send(json_message(said='failed', service=number,
                               error=f'{type(error).__name__}: {error}'[:2000]))
        return
    services[number] = loaded
    release_memory()
    side.send(json_message(
        said='opened', service=number, sizes=loaded.sizes, rows=loaded.ladder.rows,
        why=loaded.ladder.why, load_seconds=time.monotonic() - began,
        nbytes=sum(t.nbytes for t in loaded.ladder.one.parameters.values()),
        seconds=[loaded.seconds[b] for b in loaded.sizes],
        spread=[loaded.spread[b] for b in loaded.sizes],
        inputs=[[s.name, s.dtype, s.shape] for s in loaded.inputs],
        outputs=[[s.name, s.dtype, s.shape] for s in loaded.outputs]))


def _compute(side: ChildSide, batch: Batch, service: LoadedService) -> None:
    """Answer a batch; rows that fail together are computed alone: one harms only itself."""
    began = time.perf_counter()
    stacked = _stacked(batch, service)
    why = [''] * batch.rows
    try:
        outputs = service.run(stacked, batch.rows)
    except Exception as error:  # whatever an operator raises on these values
        outputs, why = _alone(stacked, batch.rows, service, error)
    side.send(*answer_message(
        batch.number, time.perf_counter() - began, why,
        [out.contiguous().numpy().reshape(-1).view(np.uint8).data for out in outputs]))


def _stacked(batch: Batch, service: LoadedService) -> list[torch.Tensor]:
    """Return the rows of a batch as tensors over its message."""
    found, at = [], batch.start
    for spec in service.inputs:
        nbytes = batch.rows * spec.nbytes
        flat = np.frombuffer(batch.message, spec.dtype, nbytes // np.dtype(spec.dtype).itemsize,
                             at)
        found.append(torch.from_numpy(flat.reshape((batch.rows, *spec.shape))))
        at += nbytes
    return found


def _alone(stacked: Sequence[torch.Tensor], rows: int, service: LoadedService,
           first: Exception) -> tuple[list[torch.Tensor], list[str]]:
    outputs = [torch.zeros((rows, *spec.shape), dtype=getattr(torch, spec.dtype))
               for spec in service.outputs]
    why = [''] * rows
    for k in range(rows):
        try:
            if rows == 1:
                raise first
            for out, row in zip(outputs, service.run([t[k:k + 1] for t in stacked], 1)):
                out[k:k + 1] = row
        except Exception as error:  # whatever an operator raises on these values
            why[k] = f'the model fails on it: {type(error).__name__}: {error}'[:500]
    return outputs, why


if __name__ == '__main__':
    sys.exit(main())
