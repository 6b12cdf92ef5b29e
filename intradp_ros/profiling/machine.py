# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The machine that computes: its name for profiles, and settings that make its times steady."""
from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path
import platform
import sys

import torch

from intradp_ros.graph.paging import page_all_out
from intradp_ros.split.kernel_device import HOST, KernelDevice

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def prepare_process(threads: int = 1) -> None:
    """
    Set up this process for steady inference times on the CPU.

    By default glibc returns big activations to the system at every free,
    and page faults then dominate large layers; and Python hands the GIL
    over every 5 ms, which delays the receive thread.
    """
    torch.set_num_threads(threads)
    sys.setswitchinterval(0.0005)
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(M_MMAP_THRESHOLD, 2**30)
    except (OSError, AttributeError):  # not glibc: times are only less steady
        return


def release_memory() -> None:
    """
    Give memory that nothing uses back to the system.

    A prepared process keeps what it freed, so that inferences need no new
    pages; after capture, profiling or compiling that is far more than an
    inference ever uses.  Weights in mapped files come back as they are read.
    """
    gc.collect()
    page_all_out()
    trim_heap()


def trim_heap() -> None:
    """Give the pages of the heap that hold nothing back to the system."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # not glibc
        return


def settle_process() -> None:
    """
    Let the garbage collector look no more at what there is now: modules, model, programs.

    It would do so every few hundred inferences, and for some 100 ms.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def device_name(device: KernelDevice = HOST) -> str:
    """Name the hardware and whatever else decides operator times."""
    isa = os.environ.get('ONEDNN_MAX_CPU_ISA', '')
    parts = [device.hardware, _cpu_model(), torch.backends.cpu.get_cpu_capability(),
             isa and f'oneDNN {isa}', f'{torch.get_num_threads()} thread(s)',
             f'torch {torch.__version__}']
    return ', '.join(part for part in parts if part)


def available_cores() -> int:
    """Return how many processor cores this process may use."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    return names[0] if names else platform.machine()
