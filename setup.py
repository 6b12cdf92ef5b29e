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
import importlib.util
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
NAME = 'intradp_ros'


def ros_modules() -> Path:
    """Return the directory from which this interpreter imports the ROS packages."""
    adapter = importlib.util.find_spec('rosidl_adapter')
    if adapter is None or adapter.origin is None:
        raise SystemExit(
            'intradp_ros needs the ROS 2 interface generators to build its messages: install '
            'ros-kilted-rosidl-default-generators from PyPI, or source /opt/ros/<distro>/setup.sh')
    return Path(adapter.origin).resolve().parents[1]


def search_paths(variable: str, *first: Path) -> str:
    """Return the value of a search path variable with further directories put first."""
    later = os.environ.get(variable, '').split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([*map(str, first), *filter(None, later)]))


def build_environment(modules: Path, prefix: Path) -> dict[str, str]:
    """Return the environment in which CMake finds ROS: Python `modules` and the rest."""
    return dict(
        os.environ,
        AMENT_PREFIX_PATH=search_paths('AMENT_PREFIX_PATH', prefix),
        CMAKE_PREFIX_PATH=search_paths('CMAKE_PREFIX_PATH', prefix),
        LD_LIBRARY_PATH=search_paths('LD_LIBRARY_PATH', prefix / 'lib'),
        PATH=search_paths('PATH', prefix / 'bin', Path(sys.executable).parent),
        PYTHONPATH=search_paths('PYTHONPATH', modules))


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
        shutil.copytree(package, target, ignore=shutil.ignore_patterns('__pycache__', '*.c'))
        self.distribution.data_files = prefix_files(stage)


class PlatformDistribution(Distribution):
    """A distribution with compiled parts, though setuptools compiles none of them itself."""

    def has_ext_modules(self) -> bool:
        """Say that wheels are for this platform and interpreter only."""
        return True


setup(packages=[NAME], cmdclass={'build_py': BuildWithCMake}, distclass=PlatformDistribution)
