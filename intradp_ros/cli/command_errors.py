# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the command line says instead of a traceback."""
from __future__ import annotations


class CommandError(Exception):
    """The command cannot do what it was asked for; the text is for the user: cause and fix."""


def printable(text: str) -> str:
    """Return a text with its control characters written out, lines as they are."""
    return ''.join(c if c.isprintable() or c == '\n' else ascii(c)[1:-1] for c in text)
