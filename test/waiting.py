# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Waiting for what other threads and processes bring about."""
from __future__ import annotations

from collections.abc import Callable
import faulthandler
import time
from typing import TypeVar

from intradp_ros.core.patience import Patience

Found = TypeVar('Found')


def wait_for(condition: Callable[[], Found | None], seconds: float = 60.0,
             shown: Callable[[], object] = str) -> Found:
    """
    Return what holds in the end; after some seconds, as `Patience` counts them, fail.

    `shown` is called then, and says what there is; where all threads stand is shown, too.
    """
    patience = Patience(seconds)
    while not (found := condition()):
        if patience.over:
            faulthandler.dump_traceback()
            raise AssertionError(f'waited {seconds:g} s in vain: {shown()}')
        time.sleep(0.005)
    return found
