# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The parameter that names the key file, and what is said where there is none."""
from __future__ import annotations

from collections.abc import Callable, Mapping
import os
from pathlib import Path
from typing import Any

from intradp_ros.core.plain_file import check_file
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.nodes.common.parameters import Parameter

KEY_FILE = Parameter(
    'key_file', '', 'File with the key that robots, servers, planners and devices of a fleet '
    'share (make one by "intradp key FILE"); empty: anybody on the ROS domain may speak as any '
    'of them.', check=check_file)
WITHOUT = (
    'no key_file: anybody on this ROS domain may pose as robot, server, planner or device, '
    'stop the sharing, and (by forging datagrams) falsify results; make a key by "intradp key '
    'FILE" and give all nodes the same, or keep strangers off the domain (doc/security.md)')


def open_key(path: str, warn: Callable[[str], None]) -> SharedKey | None:
    """
    Return the key that a file holds; without one None, having warned what that means.

    :raises ValueError: if the file cannot be read or is not a key.
    """
    if not path:
        warn(WITHOUT)
        return None
    try:
        return SharedKey.load(Path(os.path.expanduser(path)))
    except OSError as error:
        raise ValueError(f'key_file {path}: {error.strerror}') from error


def key_of(parameters: Mapping[str, Any], warn: Callable[[str], None]) -> SharedKey | None:
    """Return the key that a node's parameters name, as `open_key` does."""
    return open_key(parameters[KEY_FILE.name], warn)
