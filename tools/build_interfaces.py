# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Build vision_msgs from its definitions into this environment, for tests and demo.

No wheel carries it.  One that is installed, by ROS or otherwise, is never
replaced: then nothing is done.
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

NAME = 'vision_msgs'
SOURCE = ROOT / 'test' / 'interfaces' / NAME


def main() -> int:
    """Build and install; return the exit status."""
    if importlib.util.find_spec(NAME):
        print(f'{NAME} is installed already')
        return 0
    modules = ros_modules()
    prefix = modules.parents[2]
    environment = build_environment(modules, prefix)
    with tempfile.TemporaryDirectory() as build:
        return _build(build, prefix, environment)


def _build(build: str, prefix: Path, environment: dict[str, str]) -> int:
    for command in (
        ['-S', str(SOURCE), '-B', build, '-DCMAKE_BUILD_TYPE=Release',
         '-DBUILD_TESTING=OFF', f'-DPython3_EXECUTABLE={sys.executable}',
         f'-DCMAKE_INSTALL_PREFIX={prefix}'],
        ['--build', build, '--parallel', str(os.cpu_count() or 1)],
        ['--install', build],
    ):
        if subprocess.run(['cmake', *command], env=environment).returncode:
            print(f'{NAME}: CMake failed, see its messages above', file=sys.stderr)
            return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
