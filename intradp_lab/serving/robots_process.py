# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Robots of a demo in one process: ``python -m intradp_lab.serving.robots_process SETTINGS.json``.

Each robot has a client of its own.  A line ``{"play": FOLDER}`` plays the requests of
``FOLDER/requests.npz``, which may take no longer than they should, and writes what became of them
to ``FOLDER/ends.npz``.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
import json
from pathlib import Path
import sys
import threading
import time
from typing import Any

import numpy as np

from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.graph.compare import explained_by_rounding
from intradp_ros.runtime.requests.infer_requests import InferEnd, InferFate, InferRequest
from intradp_ros.web.access import own_key
from intradp_ros.web.loop_thread import LoopThread
from intradp_ros.web.serving_client import ServingClient

#: By number, as they are written; the last stands for requests that never ended.
FATES = (*(fate.value for fate in InferFate), 'lost')
#: Seconds after the last deadline in which ends may still be heard.
GRACE = 2.0


@dataclass(frozen=True, slots=True)
class Settings:
    """
    `robots`: gateways of each, the first is its own; `services`: their names.

    `examples` is a file of inputs (NAME/KEY/input) and answers (NAME/KEY/output), by service;
    `key` the file of the key by which sites know the robots, '' for none.
    """

    robots: list[list[str]]
    services: list[str]
    examples: str
    key: str = ''

    def written(self, path: Path) -> Path:
        """Write them to a file and return its path."""
        write_atomically(path, json.dumps(asdict(self)))
        return path


@dataclass(frozen=True)
class Requests:
    """By request: seconds from the begin, robot, service, example, seconds that it has."""

    time: Any
    robot: Any
    service: Any
    example: Any
    remaining: Any

    def save(self, path: Path) -> None:
        """Write them to a file."""
        np.savez(path, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    @classmethod
    def load(cls, path: Path) -> Requests:
        """Read what `save` wrote."""
        with np.load(path) as file:
            return cls(**{name: file[name] for name in cls.__dataclass_fields__})


def main() -> int:
    """Play what is asked for until the input ends."""
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text()))
    out = sys.stdout
    loop = LoopThread('robots')
    with np.load(settings.examples) as file:
        examples = {name: file[name] for name in file.files}
    key = own_key(Path(settings.key) if settings.key else None)
    clients = [ServingClient(gateways, key, loop=loop) for gateways in settings.robots]
    _say(out, ready=True)
    for line in sys.stdin:
        folder = Path(json.loads(line)['play'])
        play(Requests.load(folder / 'requests.npz'), clients, settings.services, examples,
             folder / 'ends.npz', out)
    for client in clients:
        client.close()
    loop.close()
    return 0


def play(requests: Requests, clients: Sequence[ServingClient], services: Sequence[str],
         examples: Mapping[str, Any], path: Path, out: Any) -> None:
    """Send each request at its time; compare answers with those of the model alone."""
    count = len(requests.time)
    ends: list[InferEnd | None] = [None] * count
    heard_at, begun_at = np.full(count, np.nan), np.full(count, np.nan)
    doubled = [0]
    left = threading.Semaphore(0)
    start = time.monotonic() + 0.2
    _say(out, begun=start)
    for k in range(count):
        wait = start + float(requests.time[k]) - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        begun_at[k] = time.monotonic() - start

        def heard(end: InferEnd, k: int = k) -> None:
            doubled[0] += ends[k] is not None
            ends[k], heard_at[k] = end, time.monotonic() - start
            left.release()
        name = services[int(requests.service[k])]
        clients[int(requests.robot[k])].submit(InferRequest(
            name, {'image': examples[f'{name}/{requests.example[k]}/input']},
            float(requests.remaining[k]), frame=k), heard)
    until = time.monotonic() + float(requests.remaining.max(initial=0.0)) + GRACE
    for _ in range(count):
        if not left.acquire(timeout=max(0.0, until - time.monotonic())):
            break
    fates = [len(FATES) - 1 if end is None else FATES.index(end.fate.value) for end in ends]
    wrong = [_wrong(end, services[int(requests.service[k])], int(requests.example[k]), examples)
             for k, end in enumerate(ends)]
    np.savez(path, fate=fates, wrong=wrong, heard=heard_at, begun=begun_at, doubled=doubled,
             site=[end.site if end else '' for end in ends],
             batch=[end.batch if end else 0 for end in ends],
             reason=[end.reason if end else 'lost' for end in ends])
    _say(out, played=str(path))


def _wrong(end: InferEnd | None, name: str, example: int, examples: Mapping[str, Any]) -> bool:
    """Return whether an answer is another than the model's alone."""
    if end is None or end.fate is not InferFate.IN_TIME:
        return False
    import torch
    expected = examples[f'{name}/{example}/output']
    answer, = end.tensors.values()
    return not explained_by_rounding([torch.from_numpy(expected)],
                                     [torch.from_numpy(answer.copy())])


def _say(out: Any, **what: Any) -> None:
    out.write(json.dumps(what) + '\n')
    out.flush()


if __name__ == '__main__':
    sys.exit(main())
