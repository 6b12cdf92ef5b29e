# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How fast a disk is read from its first byte to its last, past the page cache; measured once."""
from __future__ import annotations

from dataclasses import dataclass
import os
from pathlib import Path
import statistics
import tempfile
import time

from intradp_ros.blobs.direct_read import read_file, Slot
from intradp_ros.core.measured_once import figures_once, measured_path
from intradp_ros.profiling.machine import device_name

#: Bytes that are written and read: enough for the full rate, little enough for a memory card.
MEASURED = 32 << 20
_READS = 3


@dataclass(frozen=True)
class DiskRate:
    """Bytes per second of sequential reads; `direct`: past the page cache."""

    bytes_per_second: float
    direct: bool


def measure_disk(folder: Path, nbytes: int = MEASURED) -> DiskRate:
    """
    Return the median rate of reads of a file that is written for it in a folder.

    Where the file system refuses direct reads the file is dropped from the page cache before each.

    :raises OSError: if nothing can be written or read there.
    """
    slot, seconds, direct = Slot(nbytes), [], True
    with tempfile.NamedTemporaryFile(dir=folder, prefix='.intradp-disk-') as file:
        for _ in range(nbytes >> 20):
            file.write(os.urandom(1 << 20))  # what repeats might be compressed
        file.flush()
        os.fsync(file.fileno())
        for _ in range(_READS):
            if hasattr(os, 'posix_fadvise'):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            begin = time.perf_counter()
            direct = read_file(Path(file.name), slot.memory).direct
            seconds.append(time.perf_counter() - begin)
    return DiskRate((nbytes >> 20 << 20) / statistics.median(seconds), direct)


def disk_rate(folder: Path, cache: Path | None = None) -> DiskRate:
    """
    Return the rate of the disk that a folder is on, measuring it only the first time.

    It is kept next to the profiles of operators, by machine and file system; OSError as for
    `measure_disk`.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = measured_path('disk', device_name(), os.stat(folder).st_dev, folder=cache)
    try:
        return figures_once(path, DiskRate, lambda: measure_disk(folder),
                            lambda rate: rate.bytes_per_second > 0)
    except OSError as error:  # of what is written, which does not say where
        raise OSError(error.errno, error.strerror, str(folder)) from error
