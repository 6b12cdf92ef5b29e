# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Signals as a process in the foreground has them, and limits as a full disk sets them."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import resource
import signal


@contextmanager
def heeded(*numbers: signal.Signals) -> Iterator[None]:
    """Let processes that are started here heed signals, which jobs in the background ignore."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def files_of_at_most(nbytes: int) -> Iterator[None]:
    """Let no file of this process and those that it starts grow beyond: a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
