# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
An error has an owner: it ends what it belongs to, and no loop that others live from.

Extensions in other languages raise what is not an `Exception` (a panic of pyo3); that is an
error like others.
"""
from __future__ import annotations


def ends_process(error: BaseException) -> bool:
    """Return whether something that was raised means to end the process or a generator."""
    return isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit))


def reason_of(error: BaseException) -> str:
    """Return one line that says what an error says, and of what kind it is where that helps."""
    text = ' '.join(str(getattr(error, 'message', None) or error).split())[:400]
    kind = type(error).__name__
    if not text:
        return kind
    return text if isinstance(error, ValueError) else f'{kind}: {text}'
