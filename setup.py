# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Wheel of the package from what CMake installs, so that pip and colcon install the same files.

CMakeLists.txt says what is installed where. CMake installs into a staging directory; of that, the
Python package (messages included) goes to site-packages, `lib/` (message libraries and
executables) and `share/` (the package's ament resources) to the prefix.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
import hashlib
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / 'cmake'))
from ros_environment import build_environment, ros_modules  # noqa: E402

NAME = 'intradp_ros'


@contextmanager
def build_directory(prefix: Path) -> Iterator[Path]:
    """
    Yield CMake's build directory.

    It is kept for an environment that lasts, so that unchanged messages are not compiled again;
    pip's isolated build environment has another path each time.
    """
    if prefix != Path(sys.prefix).resolve():
        with tempfile.TemporaryDirectory() as directory:
            yield Path(directory)
        return
    key = hashlib.sha256(f'{prefix} {sys.version}'.encode()).hexdigest()[:8]
    yield ROOT / 'build' / f'{sys.implementation.cache_tag}-{key}'


def install_with_cmake(stage: Path) -> None:
    """Build the messages and install everything into `stage`."""
    modules = ros_modules()
    prefix = modules.parents[2]
    environment = build_environment(modules, prefix)
    with build_directory(prefix) as directory:
        for command in (
            ['-S', str(ROOT), '-B', str(directory),
             '-DCMAKE_BUILD_TYPE=Release', '-DBUILD_TESTING=OFF',
             f'-DPython3_EXECUTABLE={sys.executable}', f'-DCMAKE_INSTALL_PREFIX={stage}'],
            ['--build', str(directory), '--parallel', str(os.cpu_count() or 1)],
            ['--install', str(directory)],
        ):
            if subprocess.run(['cmake', *command], env=environment).returncode:
                raise SystemExit('intradp_ros: CMake failed, see its messages above')


def prefix_files(stage: Path) -> list[tuple[str, list[str]]]:
    """Return what setuptools calls data files: by directory of the prefix, files of the stage."""
    files: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((*stage.glob('lib/**/*'), *stage.glob('share/**/*'))):
        if path.is_file() and not any(part.endswith('-packages') for part in path.parts):
            files[str(path.parent.relative_to(stage))].append(os.path.relpath(path, ROOT))
    return list(files.items())


class BuildWithCMake(build_py):
    """Takes the Python package, messages included, from what CMake installs."""

    def run(self) -> None:
        """Install with CMake and copy the package to the build directory of the wheel."""
        if self.editable_mode:
            raise SystemExit(
                'intradp_ros cannot be installed as editable, which would leave out the libraries '
                'of its messages; use `pip install .` (quick when the messages are unchanged), '
                'or `colcon build --symlink-install`')
        stage = ROOT / 'build' / 'stage'
        shutil.rmtree(stage, ignore_errors=True)
        install_with_cmake(stage)
        target = Path(self.build_lib) / NAME
        shutil.rmtree(target, ignore_errors=True)
        [package] = stage.glob(f'**/*-packages/{NAME}')
        # of C, what messages were compiled from stays out
        shutil.copytree(package, target, ignore=shutil.ignore_patterns('__pycache__', '_*.c'))
        self.distribution.data_files = prefix_files(stage)


class PlatformDistribution(Distribution):
    """A distribution with compiled parts, though setuptools compiles none of them itself."""

    def has_ext_modules(self) -> bool:
        """Say that wheels are for this platform and interpreter only."""
        return True


setup(packages=[NAME], cmdclass={'build_py': BuildWithCMake}, distclass=PlatformDistribution)
