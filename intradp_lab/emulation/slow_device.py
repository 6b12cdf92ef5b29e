# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A robot that is slower than its server, on the same machine and without stalls.

A CPU quota stops a process for tens of milliseconds at a time; narrower
vector instructions slow every operator evenly instead.  On a Zen 4 core the
convolutions of `intradp_lab.zoo.hed` took 2.8 times as long, those of
`intradp_lab.zoo.mobilenet_v2` 1.6 times.
"""
from __future__ import annotations

import platform


def slow_environment() -> dict[str, str]:
    """Return variables that make PyTorch slow in a process that starts with them."""
    return {
        'ONEDNN_MAX_CPU_ISA': 'SSE41',      # convolutions
        'ATEN_CPU_CAPABILITY': 'default',   # PyTorch's own kernels
        'OMP_NUM_THREADS': '1',
    }


def available() -> str | None:
    """Return why `slow_environment` has no effect here; None if it has."""
    machine = platform.machine()
    if machine in ('x86_64', 'AMD64'):
        return None
    return f'only x86 processors can be slowed down by their instruction set, not {machine}'
