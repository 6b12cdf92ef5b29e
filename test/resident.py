# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the system says of memory mappings and processes."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch

MAPPINGS = Path('/proc/self/smaps')
needs_proc = pytest.mark.skipif(not MAPPINGS.exists(), reason='the system tells no mappings')


def resident(tensor: torch.Tensor) -> int:
    """Return how many bytes of the mapping that holds a tensor are in memory."""
    holds = False
    for line in MAPPINGS.read_text().splitlines():
        first, second, *_ = line.split()
        if not first.endswith(':'):
            start, stop = (int(address, 16) for address in first.split('-'))
            holds = start <= tensor.data_ptr() < stop
        elif holds and first == 'Rss:':
            return int(second) * 1024
    raise AssertionError('the tensor lies in no mapping')


def runs(pid: int) -> bool:
    """Return whether a process is there and not just waited for."""
    try:
        status = Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return False
    return status.rpartition(')')[2].split()[0] != 'Z'
