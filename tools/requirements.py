# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Print requirements that pyproject.toml names, one a line, for `pip install -r`.

Usage: ``requirements.py NAME...`` where NAME is ``build`` (what builds the package), an extra or
a dependency group.
"""
from __future__ import annotations

from pathlib import Path
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

PYPROJECT = Path(__file__).resolve().parents[1] / 'pyproject.toml'


def requirements(pyproject: dict[str, Any], name: str) -> list[str]:
    """
    Return the requirements called `name`.

    :raises KeyError: when there is neither an extra nor a group of that name.
    """
    if name == 'build':
        return list(pyproject['build-system']['requires'])
    extras = pyproject['project']['optional-dependencies']
    return list((extras | pyproject['dependency-groups'])[name])


if __name__ == '__main__':
    contents = tomllib.loads(PYPROJECT.read_text())
    print('\n'.join(line for name in sys.argv[1:] for line in requirements(contents, name)))
