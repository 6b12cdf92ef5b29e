# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
An executor as a process: ``python -m intradp_ros.systems.serving.executor_process NAME``.

It loads services on request, one after another, and computes batches in between.  Messages are
in `executor_messages`.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
import json
import queue
import sys
import time
import traceback
from typing import Any

import numpy as np
import torch

from intradp_ros.core.child_process import Bytes, ChildSide
from intradp_ros.core.processes import search_working_directory
from intradp_ros.graph.graph_errors import CaptureError, GraphFormatError
from intradp_ros.graph.serialise import digest
from intradp_ros.profiling.machine import prepare_process, release_memory
from intradp_ros.runtime.models.catalogue import ModelSpecError
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.split.kernel_device import KernelDevice
from intradp_ros.systems.serving.executor_messages import (
    answer_message,
    BATCH,
    Batch,
    batch_of,
    JSON,
    json_message,
    MOST_WHY,
)
from intradp_ros.systems.serving.loaded_service import load_service, LoadedService
from intradp_ros.systems.serving.service import TensorSpec


def main() -> int:
    """Serve until the parent ends."""
    side = ChildSide()
    orders: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
    side.listen(orders.put)
    start = json.loads(memoryview(orders.get())[1:].tobytes())
    search_working_directory()  # services may name a module of it
    prepare_process(int(start['threads']))
    device = open_device(start['device'])
    services: dict[int, LoadedService] = {}
    while True:
        message = orders.get()
        if message[:1] == JSON:
            side.send(loaded(json.loads(memoryview(message)[1:].tobytes()), device, services))
        elif message[:1] == BATCH:
            side.send(*computed(batch_of(message), services))


def loaded(what: dict[str, Any], device: KernelDevice, services: dict[int, LoadedService],
           ) -> bytes:
    """Load and measure a service; return the message that says so, or why it cannot be."""
    began = time.monotonic()
    number = int(what['service'])
    try:
        found = load_service(what['model'], what['sizes'], device, [
            TensorSpec(name, dtype, tuple(shape)) for name, dtype, shape in what['inputs']])
        found.measure()
    except Exception as error:  # whatever the model's own code raises
        if not isinstance(error, (ModelSpecError, CaptureError, GraphFormatError)):
            traceback.print_exc()
        return json_message(said='failed', service=number,
                            error=f'{type(error).__name__}: {error}'[:2000])
    services[number] = found
    release_memory()
    return json_message(
        said='opened', service=number, sizes=found.sizes, rows=found.ladder.rows,
        why=found.ladder.why, digest=_digest(found), load_seconds=time.monotonic() - began,
        nbytes=sum(t.nbytes for t in found.ladder.one.parameters.values()),
        seconds=[found.seconds[b] for b in found.sizes],
        spread=[found.spread[b] for b in found.sizes],
        inputs=[[s.name, s.dtype, s.shape] for s in found.inputs],
        outputs=[[s.name, s.dtype, s.shape] for s in found.outputs])


def _digest(found: LoadedService) -> str:
    try:
        return digest(found.ladder.one)
    except GraphFormatError:  # it holds what no archive can
        return ''


def computed(batch: Batch, services: Mapping[int, LoadedService]) -> list[Bytes]:
    """
    Return the answer to a batch; those that fail together go alone: each harms itself.

    It raises what the device raises where that computes nothing any more.
    """
    began, service = time.perf_counter(), services[batch.service]
    stacked = _stacked(batch, service)
    why = [''] * batch.rows
    try:
        outputs = service.run(stacked, batch.rows)
    except Exception as error:  # whatever an operator raises on these values
        outputs, why = _alone(stacked, batch.rows, service, error)
        if any(why):  # after some errors a device computes nothing any more
            service.run(service.example(1), 1)
    return answer_message(
        batch.number, time.perf_counter() - began, why,
        [out.contiguous().numpy().reshape(-1).view(np.uint8).data for out in outputs])


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
            why[k] = f'the model fails on it: {type(error).__name__}: {error}'[:MOST_WHY]
    return outputs, why


if __name__ == '__main__':
    sys.exit(main())
