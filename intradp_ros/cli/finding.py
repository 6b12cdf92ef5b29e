# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a check found."""
from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, ERROR = 'ok', 'warning', 'error'


@dataclass(frozen=True, slots=True)
class Finding:
    """
    The outcome of one check.

    `state` is `OK`, `WARNING` (works, but worse than it could) or `ERROR`
    (keeps inferences from being shared); `fix` says what to do, '' if nothing.
    """

    name: str
    state: str
    found: str
    fix: str = ''
