# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Text from the network on its way into a log."""
from __future__ import annotations

from typing import Any

MAX_QUOTED = 300


def quoted(text: Any) -> str:
    """Return the text cut short, on one line and in ASCII: some loggers fail on anything else."""
    try:
        whole = str(text)
    except (RecursionError, ValueError) as error:  # nested too deeply; a number of too many digits
        whole = f'{type(text).__name__}: {error}'
    short = whole if len(whole) <= MAX_QUOTED else f'{whole[:MAX_QUOTED]} ...'
    return ascii(short)[1:-1]
