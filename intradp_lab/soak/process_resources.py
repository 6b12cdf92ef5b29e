# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What processes hold, as Linux reports it: memory, threads, open descriptors."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
import os
from pathlib import Path
import statistics

_PAGE = os.sysconf('SC_PAGE_SIZE')


@dataclass(frozen=True, slots=True)
class ProcessResources:
    """What a process holds at a time (seconds of the monotonic clock); `pid` names it."""

    pid: int
    at: float
    resident_bytes: int
    threads: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Growth:
    """What a process held early and late in a run: medians."""

    early: ProcessResources
    late: ProcessResources

    @property
    def memory(self) -> float:
        """Return by what share the memory grew; below 0 if it shrank."""
        return self.late.resident_bytes / self.early.resident_bytes - 1.0


def process_resources(pid: int, now: float) -> ProcessResources | None:
    """Return what a process and its children hold together; None if it is gone."""
    try:
        tree = [pid, *_children(pid)]
        parts = [_of_one(each) for each in tree]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return ProcessResources(pid, now, *(sum(column) for column in zip(*parts)))


def growth(samples: Sequence[ProcessResources]) -> Growth | None:
    """
    Compare the second tenth of the samples with the last; None if there are too few.

    Of several processes, one after another, that counts which was there longest.
    The first tenth is left out: processes load, plan and warm up in it.
    """
    longest = {pid for pid, _ in Counter(sample.pid for sample in samples).most_common(1)}
    samples = [sample for sample in samples if sample.pid in longest]
    tenth = len(samples) // 10
    if tenth < 1:
        return None
    return Growth(_median(samples[tenth:2 * tenth]), _median(samples[-tenth:]))


def _median(samples: Sequence[ProcessResources]) -> ProcessResources:
    return ProcessResources(samples[0].pid, samples[0].at, *(
        round(statistics.median(getattr(each, name) for each in samples))
        for name in ('resident_bytes', 'threads', 'descriptors')))


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f'/proc/{pid}/task').iterdir():
        for child in map(int, (task / 'children').read_text().split()):
            found += [child, *_children(child)]
    return found


def _of_one(pid: int) -> tuple[int, int, int]:
    root = Path(f'/proc/{pid}')
    resident = int((root / 'statm').read_text().split()[1]) * _PAGE
    return resident, len(os.listdir(root / 'task')), len(os.listdir(root / 'fd'))
