# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A bag of ROS 2 as views: at each moment what was heard until then."""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
import threading
from typing import Any

from intradp_ros.cli.command_errors import CommandError
from intradp_ros.core.extras import pip_install
from intradp_ros.nodes.common.plain_messages import PICTURE_TOPICS, plain, small_png
from intradp_ros.report.view.observed import Observed
from intradp_ros.report.view.recorded import Recorded

#: Moments of a bag, and seconds from one to the next, at least.
MOST_STEPS, STEP = 600, 0.5
#: Messages that are looked at; bytes of one.
MOST_MESSAGES, MOST_BYTES = 200_000, 8 << 20
_IMAGE = 'sensor_msgs/msg/Image'


def is_bag(path: Path) -> bool:
    """Return whether a path looks like a bag, and not like a demo's folder."""
    return path.suffix in ('.mcap', '.db3') or (path / 'metadata.yaml').is_file()


def opened(path: Path) -> Recorded | Bag:
    """Return a demo's folder or a bag; ValueError where it is neither."""
    return Bag(path) if is_bag(path) else Recorded(path)


class Bag:
    """
    What was recorded by `ros2 bag record`, without ROS.

    :raises ValueError: if the bag cannot be read, or has nothing that a view is made of.
    """

    def __init__(self, path: Path) -> None:
        try:
            from rosbags.rosbag2 import Reader

            from intradp_ros.nodes.common.bags import bag_types
        except ModuleNotFoundError as error:
            raise CommandError(f'a bag needs {error.name}: {pip_install("training")}') from error
        self._path, self._lock, self._reader = path, threading.Lock(), Reader
        self._types, self._observed = bag_types(), Observed()
        self._said, self._cut = list[tuple[float, str, str, Any]](), False
        self._pictures: dict[str, list[int]] = {}
        self._taken, self._shown = 0, dict[str, int]()
        try:
            self._read()
        except Exception as error:  # whatever a damaged bag brings about
            raise ValueError(f'{path} cannot be read as a bag: {type(error).__name__}: {error}') \
                from error
        if not self._said:
            raise ValueError(f'{path} has nothing that a view is made of: record what nodes '
                             'publish by `ros2 bag record -a`')
        self._begin, self._seconds = self._said[0][0], self._said[-1][0] - self._said[0][0]
        self._step = max(STEP, self._seconds / MOST_STEPS)
        self.length = int(self._seconds / self._step) + 2

    def seconds(self, step: int) -> float:
        """Return the seconds from the first message to a moment."""
        return min(self._seconds, step * self._step)

    def view(self, step: int, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the view of a moment, the nearest one; a query may name a chosen frame."""
        step = min(max(0, step), self.length - 1)
        moment = self._begin + self.seconds(step) + 1e-6
        with self._lock:
            self._until(moment)
            found = self._observed.view(query or {}, moment)
        notes = [f'Only the first {MOST_MESSAGES:,} messages are shown.'] * self._cut
        return {**found, 'title': self._path.name, 'live': False, 'options': [],
                'length': self.length, 'at': step, 'notes': [*notes, *found['notes']],
                'step': f'{self.seconds(step):.1f} of {self._seconds:.1f} s'}

    def picture(self, name: str) -> bytes | None:
        """Return the newest picture of a topic at the moment that was shown last."""
        with self._lock:
            return self._observed.pictures.get(name)

    def _read(self) -> None:
        with self._reader(self._path) as reader:
            mine = [each for each in reader.connections
                    if each.msgtype.rpartition('/')[2] in self._observed.kinds
                    and each.msgtype in self._types.fielddefs
                    and (each.msgtype != _IMAGE or each.topic.endswith(PICTURE_TOPICS))]
            for connection, when, data in reader.messages(mine) if mine else ():
                if len(self._said) >= MOST_MESSAGES:
                    self._cut = True
                    return
                if len(data) > MOST_BYTES:
                    continue
                if connection.msgtype == _IMAGE:
                    self._pictures.setdefault(connection.topic, []).append(when)
                else:
                    self._said.append((1e-9 * when, connection.msgtype.rpartition('/')[2],
                                       connection.topic, plain(
                                           self._types.deserialize_cdr(data, connection.msgtype))))

    def _until(self, moment: float) -> None:
        """Take what was said until a moment; from the beginning if it is an earlier one."""
        if self._taken and self._said[self._taken - 1][0] > moment:
            self._observed, self._taken, self._shown = Observed(), 0, {}
        while self._taken < len(self._said) and self._said[self._taken][0] <= moment:
            when, kind, topic, data = self._said[self._taken]
            self._observed.take(kind, topic, data, when)
            self._taken += 1
        for topic, times in self._pictures.items():
            number = bisect_right(times, int(1e9 * moment))
            if number and self._shown.get(topic) != number:
                self._shown[topic] = number
                self._observed.take('Image', topic, self._picture(topic, times[number - 1]),
                                    moment)

    def _picture(self, topic: str, when: int) -> dict[str, str]:
        """Return a picture of the bag as plain data; nothing where it cannot be decoded."""
        try:
            with self._reader(self._path) as reader:
                data = next(data for _, _, data in reader.messages(
                    [each for each in reader.connections if each.topic == topic], when, when + 1))
            return {'png': small_png(self._types.deserialize_cdr(data, _IMAGE)).hex()}
        except Exception:  # noqa: BLE001 - whatever a damaged picture brings about
            return {}
