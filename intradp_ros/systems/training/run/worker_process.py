# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A worker as a process: ``python -m intradp_ros.systems.training.run.worker_process NAME``.

The name is for people who look at processes.  The first line of its standard input says what it
is to be; each further line is an order, each line of its standard output a report (see
`worker.py`).  What the task prints goes to standard error.  A thread sends signs of life,
whatever the training does.  The end of its input ends it.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import torch

from intradp_ros.core.child_end import ChildWatch
from intradp_ros.core.plain_file import open_to_write
from intradp_ros.core.processes import open_standard_streams
from intradp_ros.core.steady import Steady
from intradp_ros.profiling.machine import release_memory
from intradp_ros.split.calls.accelerator import DeviceError
from intradp_ros.systems.training.base.task import described, DEVICE, load_task, TaskError
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.task_facts import (
    apart,
    DATA,
    Facts,
    NO_FACTS,
    task_facts,
)
from intradp_ros.systems.training.run.round_groups import check_distributed, GroupError
from intradp_ros.systems.training.run.tunnels import TunnelError
from intradp_ros.systems.training.run.worker import Worker
from intradp_ros.systems.training.run.worker_settings import Emulation, Settings

BEAT = 0.5
MOST_LINE = 1 << 22
#: Heaps of glibc in a worker: what each of many threads freed would stay in one of its own.
ARENAS = '2'


def main() -> int:
    """Serve until the input ends; what ends the trainer by a signal lets it end its workers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    reports = os.fdopen(os.dup(1), 'w', buffering=1)
    os.dup2(2, 1)
    open_standard_streams()
    lock = threading.Lock()

    def report(body: dict[str, Any]) -> None:
        with lock:
            reports.write(json.dumps(body) + '\n')

    what = json.loads(sys.stdin.readline(MOST_LINE))
    ready = threading.Event()
    threading.Thread(target=_beat, args=(report, ready), daemon=True).start()
    try:
        worker = _worker(what, report)
        ready.set()
        threading.Thread(target=_listen, args=(worker,), daemon=True).start()
        worker.run()
    except Exception as error:  # whatever the task's own code raises
        report({'report': 'fault', 'plan': [0, 0], 'error': str(error) if isinstance(
            error, TaskError | GroupError | TunnelError | DeviceError) else described(error)})
        return 1
    return 0


def _worker(what: Mapping[str, Any], report: Callable[[dict[str, Any]], None]) -> Worker:
    check_distributed()
    torch.set_num_threads(int(what['threads']))
    os.environ[DEVICE] = str(what['name'])
    task = load_task(what['task'])
    graph = capture(task, checked=bool(what['facts']))  # the trainer's, of the same facts
    if what['facts'] and (difference := apart(
            task_facts(task, graph, DATA in what['facts']), what['facts'])):
        raise TaskError(f'{what["task"]} is another task here: {difference}. Let all machines '
                        'have the same version and data, and let it seed its own generators, load '
                        'its weights from a file, and sort what comes of a set or a folder')
    given = dict(what['settings'])
    if given['emulation']:
        given['emulation'] = Emulation(**given['emulation'])
    release_memory()  # the export leaves cycles
    return Worker(what['name'], task, graph, (what['host'], what['port']), report,
                  Settings(**given), key=bytes.fromhex(what['key']))


def _beat(report: Callable[[dict[str, Any]], None], ready: threading.Event) -> None:
    steady = Steady('a sign of life')
    while True:
        steady.do(lambda: report({'report': 'beat', 'ready': ready.is_set()}), None)
        time.sleep(BEAT)


def _listen(worker: Worker) -> None:
    steady = Steady('orders')
    while line := sys.stdin.readline(MOST_LINE):
        steady.do(partial(_take, worker, line), None)
    os._exit(0)  # who gives orders is gone


def _take(worker: Worker, line: str) -> None:
    worker.take(json.loads(line))


class ProcessLink:
    """
    A worker in a process of this machine; `take` gets its reports, None when it ends.

    `trainer` is where its trainer's exchange listens, `key` that of all its streams.

    :raises OSError: if the log cannot be written.
    """

    def __init__(self, name: str, task: str, trainer: tuple[str, int], settings: Settings,
                 take: Callable[[str, Mapping[str, Any] | None], None], threads: int = 1,
                 prefix: tuple[str, ...] = (), log: Path | None = None,
                 facts: Facts = NO_FACTS, key: bytes = b'') -> None:
        self._name, self._take, self._watch = name, take, ChildWatch()
        with os.fdopen(open_to_write(log, os.O_APPEND), 'ab') if log else open(
                os.devnull, 'ab') as errors:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, '-m', 'intradp_ros.systems.training.run.worker_process',
                 name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env={'MALLOC_ARENA_MAX': ARENAS, **os.environ},
                start_new_session=True)  # Ctrl-C is for the trainer
        self._lock = threading.Lock()
        self.send({'task': task, 'name': name, 'host': trainer[0], 'port': trainer[1],
                   'settings': asdict(settings), 'threads': threads, 'facts': dict(facts),
                   'key': key.hex()})
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        seen = explained = False
        steady = Steady(f'reports of {self._name}')

        def take(report: Mapping[str, Any] | None) -> None:
            steady.do(lambda: self._take(self._name, report), None)
        for line in self.process.stdout:
            try:
                report = json.loads(line)
            except ValueError:
                continue
            if report['report'] == 'beat' and report['ready'] and not seen:
                seen = True
                take({'report': 'joined', 'link': self})
            explained |= report['report'] == 'fault'
            take(report)
        status = self.process.wait()
        if status and not seen and not explained:
            take({'report': 'fault', 'plan': [0, 0], 'error':
                  f'its process {self._watch.end(status)} before it was ready'})
        take(None)

    def send(self, order: Mapping[str, Any]) -> None:
        """Send an order; one to a worker that is gone is dropped."""
        assert self.process.stdin is not None
        try:
            with self._lock:
                self.process.stdin.write(json.dumps(order) + '\n')
                self.process.stdin.flush()
        except (OSError, ValueError):
            pass

    def kill(self) -> None:
        """End the process at once."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


if __name__ == '__main__':
    sys.exit(main())
