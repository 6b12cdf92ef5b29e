# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What computes batches: a process with real models, or a thread that takes as long as a table."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
import json
from pathlib import Path
import queue
import threading
import time
from typing import Any, Protocol

import numpy as np

from intradp_ros.core.child_process import Bytes, ChildProcess
from intradp_ros.runtime.requests.infer_requests import Tensors
from intradp_ros.systems.serving.executor_messages import (
    answer_number,
    answer_of,
    batch_message,
    BatchResult,
    json_message,
    RESULT,
)
from intradp_ros.systems.serving.service import ENTRIES, Service, TensorSpec

EXECUTOR_MODULE = 'intradp_ros.systems.serving.executor_process'


@dataclass(frozen=True)
class Opened:
    """
    A service that an executor has loaded, with its times by the sizes of batches.

    `why` says why there are no larger batches, where the service asks for them.  `digest` is that
    of the model, '' where it has none: it is emulated, or cannot be written.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    spread: tuple[float, ...]
    why: str = ''
    nbytes: int = 0
    load_seconds: float = 0.0
    digest: str = ''

    def same(self, other: Opened) -> bool:
        """Return whether another executor has loaded the same model."""
        return (self.inputs, self.outputs, self.digest) == (
            other.inputs, other.outputs, other.digest)


class Listener(Protocol):
    """Hears what executors have to say, on their threads; it returns at once."""

    def opened(self, executor: int, service: int, found: Opened) -> None:
        """Hear that a service is ready."""

    def failed(self, executor: int, service: int, why: str) -> None:
        """Hear that a service cannot be loaded."""

    def ended(self, executor: int, result: BatchResult) -> None:
        """Hear of the end of a batch."""

    def lost(self, executor: int, why: str, which: Executor) -> None:
        """Hear that an executor is gone; another may have its number by now."""


class Executor(Protocol):
    """Runs one batch at a time; every method returns at once."""

    def run(self, number: int, service: int, rows: Sequence[Tensors]) -> None:
        """Begin a batch of a service that was opened."""

    def kill(self) -> None:
        """End it at once; the listener hears that it is lost."""

    def close(self) -> None:
        """End it in order."""


class RemoteExecutor:
    """
    What a process does for a gateway, as `executor_messages` has it; see its subclasses.

    Services open once all are loaded: a batch would wait behind the model that is being loaded.
    """

    def __init__(self, number: int, services: Mapping[int, Service], listener: Listener) -> None:
        self._number, self._listener = number, listener
        self._services = services
        self._specs: dict[int, Opened] = {}
        self._loading, self._loaded = set(services), list[int]()
        self._running: dict[int, int] = {}
        self._closing = False

    def run(self, number: int, service: int, rows: Sequence[Tensors]) -> None:
        """Begin a batch."""
        self._running[number] = service
        self._send(batch_message(number, service, self._specs[service].inputs, rows))

    def kill(self) -> None:
        """End it at once."""
        raise NotImplementedError

    def close(self) -> None:
        """End it in order."""
        raise NotImplementedError

    def _send(self, parts: Sequence[Bytes]) -> None:
        raise NotImplementedError

    def _heard(self, message: bytearray) -> None:
        if message[:1] == RESULT:
            service = self._running.pop(answer_number(message))
            self._listener.ended(self._number, answer_of(message, self._specs[service].outputs))
            return
        said = json.loads(memoryview(message)[1:].tobytes())
        service = int(said['service'])
        try:
            if said['said'] == 'failed':
                raise ValueError(said['error'])
            self._specs[service] = _named(_opened(said), self._services[service])
            self._loaded.append(service)
        except ValueError as error:
            self._listener.failed(self._number, service, str(error))
        self._loading.discard(service)
        while self._loaded and not self._loading:
            self._listener.opened(self._number, ready := self._loaded.pop(0), self._specs[ready])

    def _gone(self, why: str) -> None:
        if not self._closing:
            self._listener.lost(self._number, why, self)


class ProcessExecutor(RemoteExecutor):
    """A process that loads the given services in order and runs their batches."""

    def __init__(self, number: int, services: Mapping[int, Service], listener: Listener, *,
                 threads: int = 1, device: str = 'cpu', log: Path | None = None) -> None:
        """Start it."""
        super().__init__(number, services, listener)
        self._child = ChildProcess(f'executor{number}', EXECUTOR_MODULE, [f'executor{number}'],
                                   self._heard, self._gone, log=log)
        self._child.send(json_message(threads=threads, device=device))
        for k, service in services.items():
            self._child.send(json_message(**service.order(k)))

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._child.pid

    def kill(self) -> None:
        """End it at once."""
        self._child.kill()

    def close(self) -> None:
        """End it in order."""
        self._closing = True
        self._child.close()

    def _send(self, parts: Sequence[Bytes]) -> None:
        self._child.send(*parts)


def _opened(said: Mapping[str, Any]) -> Opened:
    inputs, outputs = (tuple(TensorSpec(name, dtype, tuple(shape))
                             for name, dtype, shape in said[key]) for key in ('inputs', 'outputs'))
    return Opened(inputs, outputs, tuple(said['sizes']), tuple(said['seconds']),
                  tuple(said['spread']), said['why'], said['nbytes'], said['load_seconds'],
                  said['digest'])


def _named(found: Opened, service: Service) -> Opened:
    """Return what was opened with the names that the service declares, in the model's order."""
    parts = []
    for what, declared, real in (('inputs', service.inputs, found.inputs),
                                 ('outputs', service.outputs, found.outputs)):
        names = {spec.name: spec for spec in declared}
        if names.keys() == {spec.name for spec in real}:  # the file may have another order
            declared = tuple(names[spec.name] for spec in real)
        if declared and [(s.dtype, s.shape) for s in declared] != [
                (s.dtype, s.shape) for s in real]:
            raise ValueError(f'{service.name}: its {what} are declared as {_shown(declared)}, '
                             f'the model has {_shown(real)}')
        parts.append(declared or real)
        if taken := set(ENTRIES[what]).intersection(spec.name for spec in parts[-1]):
            raise ValueError(f'{service.name}: {taken.pop()!r} among its {what} stands for '
                             f'something else: declare {what} with other names')
    return replace(found, inputs=parts[0], outputs=parts[1])


def _shown(specs: Sequence[TensorSpec]) -> str:
    return ', '.join(f'{s.name}: {s.dtype} {"x".join(map(str, s.shape))}' for s in specs)


class EmulatedExecutor:
    """
    Takes as long as the services say, and answers with sums of the inputs' bytes.

    So that each row has an answer of its own that can be checked (`emulated_answer`).
    """

    def __init__(self, number: int, services: Mapping[int, Service], listener: Listener) -> None:
        self._number, self._services, self._listener = number, services, listener
        self._batches: queue.SimpleQueue[tuple[int, int, Sequence[Tensors]] | None] = \
            queue.SimpleQueue()
        self._lost = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f'executor{number}', daemon=True)
        self._thread.start()

    def run(self, number: int, service: int, rows: Sequence[Tensors]) -> None:
        """Begin a batch."""
        self._batches.put((number, service, rows))

    def kill(self) -> None:
        """End it at once."""
        if not self._lost.is_set():
            self._lost.set()
            self._batches.put(None)
            self._listener.lost(self._number, 'killed', self)

    def close(self) -> None:
        """End it in order."""
        self._lost.set()
        self._batches.put(None)
        self._thread.join()

    def _work(self) -> None:
        for k, service in self._services.items():
            seconds = tuple(service.seconds[b - 1] for b in service.batches)
            self._listener.opened(self._number, k, Opened(
                service.inputs, service.outputs, service.batches, seconds, (0.0,) * len(seconds)))
        while (batch := self._batches.get()) is not None:
            number, k, rows = batch
            service = self._services[k]
            size = next(b for b in service.batches if b >= len(rows))
            begun = time.monotonic()
            end = begun + service.seconds[size - 1]
            while (left := end - time.monotonic()) > 0 and not self._lost.wait(left):
                pass
            if self._lost.is_set():
                return
            self._listener.ended(self._number, BatchResult(
                number, time.monotonic() - begun,
                [emulated_answer(service, row) for row in rows], [''] * len(rows)))


def emulated_answer(service: Service, row: Tensors) -> dict[str, Any]:
    """Return what an emulated executor answers to a row."""
    total = sum(int(row[spec.name].reshape(-1).view(np.uint8).sum()) for spec in service.inputs)
    return {spec.name: np.full(spec.shape, total % 127, spec.dtype) for spec in service.outputs}
