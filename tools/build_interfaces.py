# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Build vision_msgs and bond from their definitions into this environment, for tests and demo.

No wheel carries them.  What is installed, by ROS or otherwise, is never
replaced.
"""
from __future__ import annotations

import importlib.util
import os
from pathlib import Path
import subprocess
import sys
import tempfile

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / 'cmake'))
from ros_environment import build_environment, ros_modules  # noqa: E402

NAMES = ('vision_msgs', 'bond')
SOURCES = ROOT / 'test' / 'interfaces'


def main() -> int:
    """Build and install what is missing; return the exit status."""
    return max(_installed(name) for name in NAMES)


def _installed(name: str) -> int:
    if importlib.util.find_spec(name):
        print(f'{name} is installed already')
        return 0
    modules = ros_modules()
    prefix = modules.parents[2]
    environment = build_environment(modules, prefix)
    with tempfile.TemporaryDirectory() as build:
        return _build(name, build, prefix, environment)


def _build(name: str, build: str, prefix: Path, environment: dict[str, str]) -> int:
    for command in (
        ['-S', str(SOURCES / name), '-B', build, '-DCMAKE_BUILD_TYPE=Release',
         '-DBUILD_TESTING=OFF', f'-DPython3_EXECUTABLE={sys.executable}',
         f'-DCMAKE_INSTALL_PREFIX={prefix}'],
        ['--build', build, '--parallel', str(os.cpu_count() or 1)],
        ['--install', build],
    ):
        if subprocess.run(['cmake', *command], env=environment).returncode:
            print(f'{name}: CMake failed, see its messages above', file=sys.stderr)
            return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
