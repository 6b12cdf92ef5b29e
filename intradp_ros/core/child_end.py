# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""By what a child process ended: its exit status, a signal, or the end of its memory."""
from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
import signal

from intradp_ros.core.control_groups import (
    Hierarchy,
    MEMORY,
    memory_kills,
    memory_limit,
    own_hierarchies,
)

OUT_OF_MEMORY = 'out of memory'
_MB = 1e6


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """
    How a child ended: `status` as `subprocess` has it, minus the number of a signal.

    `out_of_memory` says whether the kernel killed it for its memory, `limit` how many bytes its
    control group has (None: as many as the machine).
    """

    status: int
    out_of_memory: bool = False
    limit: int | None = None

    @property
    def reason(self) -> str:
        """Return in a few words why it was ended by force; '' if it was not."""
        if self.out_of_memory:
            return OUT_OF_MEMORY + (f' at {self.limit / _MB:.0f} MB' if self.limit else '')
        return _signal_name(-self.status) if self.status < 0 else ''

    def __str__(self) -> str:
        """Return what is said of the process: 'was killed: out of memory at 720 MB'."""
        if self.out_of_memory:
            return f'was killed: {self.reason}'
        if self.status == -signal.SIGKILL:
            return 'was killed (SIGKILL)'
        return f'was ended by {self.reason}' if self.reason else f'ended with code {self.status}'


class ChildWatch:
    """
    What is known before a child starts, to say later how it ended.

    :param group: its control group of memory; by default that of this process, which children
        share unless they are given one.
    """

    def __init__(self, group: Hierarchy | None = None) -> None:
        self._group = group or _own_group()
        self._before = self._kills()

    def end(self, status: int) -> ChildEnd:
        """Return how the child ended that `subprocess` or `multiprocessing` gave a status."""
        if status != -signal.SIGKILL or self._group is None or self._kills() == self._before:
            return ChildEnd(status)
        return ChildEnd(status, True, memory_limit(self._group))

    def _kills(self) -> int:
        return memory_kills(self._group) if self._group else 0


def _own_group() -> Hierarchy | None:
    try:
        return own_hierarchies().get(MEMORY)
    except (OSError, ValueError):
        return None


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f'signal {number}'
