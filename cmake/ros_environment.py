# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Where CMake finds ROS: in the environment of the interpreter that builds, if it has wheels."""
from __future__ import annotations

import importlib.util
import os
from pathlib import Path
import sys


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
