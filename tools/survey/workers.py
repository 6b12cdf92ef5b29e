# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""One process for each architecture, so that none can take others down."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed, ThreadPoolExecutor
from dataclasses import asdict, dataclass
import json
import multiprocessing
from pathlib import Path

from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.child_end import ChildWatch
from survey.architectures import Architecture
from survey.measure import Record, write_record


@dataclass(frozen=True)
class Limits:
    """Seconds and bytes that one architecture may take, and how many run at a time."""

    seconds: float = 600.0
    memory: int = 12 * 2**30
    jobs: int = 1


def run_all(architectures: Sequence[Architecture], folder: Path, limits: Limits,
            resume: bool) -> Iterator[Record]:
    """
    Measure architectures and yield their records as they come.

    Each record is kept as ``folder/NAME.json``.  With `resume`, a record of
    the same line of the list is taken from there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(limits.jobs) as pool:
        jobs = [pool.submit(_record, each, folder, limits, resume) for each in architectures]
        try:
            for job in as_completed(jobs):
                yield job.result()
        finally:
            pool.shutdown(cancel_futures=True)


def describe(architecture: Architecture) -> Record:
    """Return what stands in the list, as JSON has it."""
    described: Record = json.loads(json.dumps(asdict(architecture)))
    return described


def _record(architecture: Architecture, folder: Path, limits: Limits, resume: bool) -> Record:
    path = folder / f'{architecture.name}.json'
    line = describe(architecture)
    if resume and (known := _known(path, line)):
        return known
    record = {**line, **_measured(architecture, path.with_suffix('.part'), limits)}
    write_atomically(path, json.dumps(record, indent=1))
    return record


def _known(path: Path, line: Record) -> Record | None:
    try:
        known: Record = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return known if all(known.get(key) == value for key, value in line.items()) else None


def _measured(architecture: Architecture, path: Path, limits: Limits) -> Record:
    process = _CONTEXT.Process(target=write_record, args=(architecture, path, limits.memory))
    watch = ChildWatch()
    process.start()
    process.join(limits.seconds)
    if process.is_alive():
        process.kill()
        process.join()
        return {'status': 'failed', 'reason': f'took longer than {limits.seconds:g} s'}
    try:
        record: Record = json.loads(path.read_text())
    except (OSError, ValueError):
        return {'status': 'failed', 'reason': f'its process {watch.end(process.exitcode or 0)}'}
    finally:
        path.unlink(missing_ok=True)
    return record


_CONTEXT = multiprocessing.get_context('forkserver')
_CONTEXT.set_forkserver_preload(['survey.preload'])  # packages are imported once
