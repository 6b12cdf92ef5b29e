# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
An executor as an actor of a Ray cluster, where a site has one.

Ray decides on which machine it runs, and starts it anew where and when it dies; here it is only
asked to load services.  Machines need this package, and archives at the same paths.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
import os
import queue
import sys
import threading
from typing import Any

from intradp_ros.core.child_process import Bytes
from intradp_ros.core.extras import pip_install
from intradp_ros.systems.serving.executor import Listener, RemoteExecutor
from intradp_ros.systems.serving.executor_messages import batch_of
from intradp_ros.systems.serving.service import Service

try:
    import ray
except ModuleNotFoundError as error:  # said with the command that brings it
    raise ModuleNotFoundError(f'executors in a Ray cluster need ray: {pip_install("ray")}',
                              name='ray') from error

NAMESPACE = 'intradp_ros'


def join_cluster(address: str) -> None:
    """
    Join a cluster: ``auto`` finds that of this machine, ``local`` starts one here.

    :raises ConnectionError: if there is none.
    """
    if not ray.is_initialized():
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False,
                 include_dashboard=False if address == 'local' else None)


class _Lane:
    """The actor."""

    def __init__(self, threads: int, device: str, folder: str) -> None:
        # what computes is imported where it computes
        from intradp_ros.profiling.machine import prepare_process
        from intradp_ros.split.calls.accelerator import open_device
        if folder not in sys.path:
            sys.path.append(folder)  # as for processes: a module of the working directory
        prepare_process(threads)
        self._device, self._services = open_device(device), dict[int, Any]()

    def load(self, what: Mapping[str, Any]) -> bytes:
        """Load a service; return the message that says so."""
        from intradp_ros.systems.serving.executor_process import loaded
        return loaded(dict(what), self._device, self._services)

    def watch(self) -> bytes:
        """Return never: who waits for it hears that the actor has died."""
        threading.Event().wait()
        return b''

    def run(self, message: bytes) -> bytes:
        """Return the answer to a batch."""
        from intradp_ros.systems.serving.executor_process import computed
        return b''.join(computed(batch_of(bytearray(message)), self._services))


class RayExecutor(RemoteExecutor):
    """An actor that loads the given services in order and runs their batches."""

    def __init__(self, number: int, services: Mapping[int, Service], listener: Listener, *,
                 site: str, threads: int = 1, device: str = 'cpu') -> None:
        """Start it; where there is one already, which Ray has started anew, take that."""
        super().__init__(number, services, listener)
        self._ends: queue.SimpleQueue[Future[bytes] | None] = queue.SimpleQueue()
        lane = ray.remote(concurrency_groups={'watch': 1})(_Lane).options(
            name=f'{site} {number}', get_if_exists=True, max_restarts=-1, num_cpus=threads,
            num_gpus=int(device != 'cpu'))
        self._actor: Any = lane.remote(threads, device, os.getcwd())
        for k, service in services.items():
            # asked again of the one that takes the place of one that dies
            self._ask(self._actor.load.options(max_task_retries=-1), service.order(k))
        threading.Thread(target=self._hear, name=f'executor{number}', daemon=True).start()

    def kill(self) -> None:
        """End it at once; Ray starts it anew."""
        ray.kill(self._actor, no_restart=False)

    def close(self) -> None:
        """End it."""
        self._closing = True
        self._ends.put(None)
        ray.kill(self._actor)

    def _send(self, parts: Sequence[Bytes]) -> None:
        self._ask(self._actor.run, b''.join(parts))

    def _ask(self, method: Any, *what: Any) -> None:
        asked: Future[bytes] = method.remote(*what).future()
        asked.add_done_callback(self._ends.put)

    def _hear(self) -> None:
        """Hear answers, until the actor or this ends; it is watched once it runs."""
        watched = False
        while (ended := self._ends.get()) is not None:
            if error := ended.exception():
                self._gone(f'is lost: {type(error).__name__}: {str(error)[:120]}')
                return
            if not watched:
                watched = True
                self._ask(self._actor.watch.options(concurrency_group='watch'))
            self._heard(bytearray(ended.result()))
