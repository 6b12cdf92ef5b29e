# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Bags of ROS 2 messages without ROS, by `rosbags`, with the messages of packages found here."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
import os
from pathlib import Path
import sys
from typing import Any, Literal

from rosbags.rosbag2 import Reader, Writer
from rosbags.typesys import get_types_from_msg, get_typestore, Stores

_VERSION: Literal[9] = 9
#: Packages whose messages no typestore of rosbags has.
_PACKAGES = ('intradp_ros', 'vision_msgs')


@cache
def bag_types() -> Any:
    """Return the messages of ROS and of `_PACKAGES`, as far as these are installed."""
    store = get_typestore(Stores.ROS2_KILTED)
    found: dict[str, Any] = {}
    for package in _PACKAGES:
        for path in _definitions(package):
            found.update(get_types_from_msg(path.read_text(), f'{package}/msg/{path.stem}'))
    store.register(found)
    return store


def _definitions(package: str) -> list[Path]:
    prefixes = [*os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep), sys.prefix]
    folders = [Path(prefix) / 'share' / package / 'msg' for prefix in prefixes if prefix]
    return next((found for folder in folders if (found := sorted(folder.glob('*.msg')))), [])


class BagWriter:
    """Writes serialised messages to a new bag."""

    def __init__(self, path: Path) -> None:
        """Create the bag, a folder that must not be there."""
        self._types = bag_types()
        self._writer = Writer(path, version=_VERSION)
        self._writer.open()

    def topic(self, name: str, kind: str) -> Callable[[int, bytes], None]:
        """Return what writes messages of a topic, each with a time in nanoseconds."""
        connection = self._writer.add_connection(name, kind, typestore=self._types)
        return lambda when, data: self._writer.write(connection, when, data)

    def close(self) -> None:
        """Complete the bag."""
        self._writer.close()


def read_bag(path: Path) -> Mapping[str, Mapping[int, Any]]:
    """Return by topic the messages of a bag with a header, by its stamp in nanoseconds."""
    store, found = bag_types(), defaultdict[str, dict[int, Any]](dict)
    with Reader(path) as reader:
        for connection, _, data in reader.messages():
            message = store.deserialize_cdr(data, connection.msgtype)
            stamp = message.header.stamp
            found[connection.topic][stamp.sec * 10**9 + stamp.nanosec] = message
    return found
