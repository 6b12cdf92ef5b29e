# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The variables that slow a robot down do reach the kernels."""
from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from intradp_lab.emulation import slow_device

CODE = """
import torch
torch.conv2d(torch.zeros(1, 64, 64, 64), torch.zeros(64, 64, 3, 3))
print('kernels', torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())
"""


@pytest.mark.skipif(slow_device.available() is not None, reason=str(slow_device.available()))
def test_kernels_are_the_slow_ones() -> None:
    environment = {**os.environ, **slow_device.slow_environment(), 'ONEDNN_VERBOSE': '1'}
    done = subprocess.run([sys.executable, '-c', CODE], env=environment, check=True,
                          capture_output=True, text=True)
    assert 'kernels DEFAULT 1' in done.stdout
    assert 'convolution,jit:sse41' in done.stdout


def test_other_processors_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, 'machine', lambda: 'aarch64')
    assert 'not aarch64' in str(slow_device.available())
