# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the command line says instead of a traceback."""
from __future__ import annotations

import signal


class CommandError(Exception):
    """The command cannot do what it was asked for; the text is for the user: cause and fix."""


class Ended(KeyboardInterrupt):
    """A signal asked the command to end; as at Ctrl-C, everything that it began is undone."""

    def __init__(self, number: int) -> None:
        super().__init__('interrupted' if number == signal.SIGINT else
                         f'ended by {signal.Signals(number).name}')
        self.number = number


def status_of(end: KeyboardInterrupt) -> int:
    """Return the exit status of a command that Ctrl-C or another signal has ended."""
    return 128 + (end.number if isinstance(end, Ended) else signal.SIGINT)


def printable(text: str) -> str:
    """Return a text with its control characters written out, lines as they are."""
    return ''.join(c if c.isprintable() or c == '\n' else ascii(c)[1:-1] for c in text)
