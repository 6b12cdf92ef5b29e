# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Where the transfers of one inference arrive and its program waits for them."""
from __future__ import annotations

from collections.abc import Callable
import threading
import time

import torch


class InferenceAbandonedError(RuntimeError):
    """The program must stop: cancelled, too late, or the other side is gone."""


class Mailbox:
    """
    Transfers of one inference, by transfer id.

    The receive thread delivers; the compute thread waits.  `patience`
    decides how long: called with the seconds waited so far, it returns None
    to go on or the reason to give up.  `changed` is called when a transfer
    came or the program must stop.
    """

    def __init__(self, patience: Callable[[float], str | None],
                 changed: Callable[[], None] = lambda: None) -> None:
        self._patience, self._on_change = patience, changed
        self._arrived: dict[int, tuple[torch.Tensor, float]] = {}
        self._failure: str | None = None
        self._changed = threading.Condition()

    def deliver(self, transfer: int, tensor: torch.Tensor) -> None:
        """Put a finished transfer in."""
        with self._changed:
            self._arrived[transfer] = tensor, time.monotonic()
            self._changed.notify()
        self._on_change()

    def fail(self, reason: str) -> None:
        """Make the program stop at its next step or wait."""
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify()
        self._on_change()

    def holds(self, transfer: int) -> bool:
        """Return whether `take` would return at once, or raise."""
        return transfer in self._arrived or self._failure is not None

    def left(self) -> dict[int, torch.Tensor]:
        """Return the transfers that arrived and were not taken."""
        with self._changed:
            return {transfer: tensor for transfer, (tensor, _) in self._arrived.items()}

    def wait(self, transfer: int, late: Callable[[float], str | None]) -> str | None:
        """
        Wait until a transfer is there or late; return why it is late, None if it is there.

        `late` is called like `patience`, with the seconds waited so far.

        :raises InferenceAbandonedError: if the inference failed, or patience ran out.
        """
        start = time.monotonic()
        with self._changed:
            while transfer not in self._arrived:
                waited = time.monotonic() - start
                reason = self._failure or self._patience(waited)
                if reason:
                    raise InferenceAbandonedError(reason)
                if why := late(waited):
                    return why
                self._changed.wait(0.01)
        return None

    @property
    def failure(self) -> str | None:
        """Why the program must stop, if it must."""
        return self._failure

    def take(self, transfer: int) -> tuple[torch.Tensor, float]:
        """
        Wait for a transfer; return it, and when it came (seconds, monotonic).

        :raises InferenceAbandonedError: if the inference failed, or patience ran out.
        """
        self.wait(transfer, lambda waited: None)
        return self._arrived.pop(transfer)
