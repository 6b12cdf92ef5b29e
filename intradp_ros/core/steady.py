# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Loops that others live from: an error ends the turn at hand, never the loop."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
import logging
from pathlib import Path
import time
import traceback
from typing import TypeVar

from intradp_ros.core.owned_errors import ends_process

T = TypeVar('T')
#: Seconds after which the same error is logged again, and between two that differ.
SAME, OTHER = 60.0, 1.0
_LOG = logging.getLogger(__name__)


class Steady:
    """
    Does the turns of a loop, such as a heartbeat or a coordinator's tick.

    What a turn raises is counted in `failures`, and logged: the same error
    once a minute.  Threads that do one thing together may share one.
    """

    def __init__(self, name: str, log: Callable[[str], object] = _LOG.error) -> None:
        self.failures = 0
        self._name, self._log = name, log
        self._said, self._at = '', -SAME

    def do(self, work: Callable[[], T], otherwise: T) -> T:
        """Return what `work` returns, or `otherwise` if it fails."""
        try:
            return work()
        except BaseException as error:  # noqa: BLE001 - whatever it is: the next turn is to come
            if ends_process(error):
                raise
            self.failures += 1
            with suppress(Exception):  # to say so may fail for the same reason
                self._say(error)
            return otherwise

    def _say(self, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = f' ({Path(frames[-1].filename).name}:{frames[-1].lineno})' if frames else ''
        text, now = f'{type(error).__name__}: {str(error)[:500]}{place}', time.monotonic()
        if now - self._at >= (SAME if text == self._said else OTHER):
            self._said, self._at = text, now
            self._log(f'{self._name} failed and goes on: {text}')
