# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How devices of a plan learn where the others listen: by reports to the trainer and its orders.

gloo asks a store for the addresses of others.  This one has no socket: what a device puts into it
goes to the trainer with its other reports, and comes from there with other orders.  So who is not
believed in these has no say in whom a device connects to.
"""
from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
import threading
import time
from typing import Any

from torch._C._distributed_c10d import Store

from intradp_ros.cluster.plan_id import PlanId

#: Characters of a value, and values of a plan that are kept.
MOST_VALUE, MOST_VALUES = 4096, 1 << 12
Place = tuple[str, int]


class MeetingError(RuntimeError):
    """What was waited for did not come."""


class Meeting:
    """
    What devices of plans have said of themselves; all but the newest plans are forgotten.

    `report` takes a report to the trainer; `place` is where others reach this device.
    """

    def __init__(self, report: Callable[[dict[str, Any]], None], place: Place) -> None:
        self._report, self.place = report, place
        self._said: dict[PlanId, dict[tuple[str, str], Mapping[str, Any]]] = {}
        self._changed = threading.Condition()

    def take(self, order: Mapping[str, Any]) -> None:
        """Take what another device said, from any thread."""
        plan = PlanId(*order['plan'])
        with self._changed:
            said = self._said.setdefault(plan, {})
            if len(said) < MOST_VALUES:
                said[order['label'], order['key']] = order
            for old in [known for known in self._said if known < max(self._said)]:
                del self._said[old]
            self._changed.notify_all()

    def say(self, plan: PlanId, label: str, key: str, value: bytes, port: int) -> None:
        """Say something to all others of a plan."""
        self._report({'report': 'meet', 'plan': plan, 'label': label, 'key': key,
                      'value': b64encode(value).decode(), 'port': port, 'place': self.place})

    def heard(self, plan: PlanId, label: str, key: str, timeout: float) -> Mapping[str, Any]:
        """Return what another said; MeetingError if that does not come in time."""
        end = time.monotonic() + timeout
        with self._changed:
            while (said := self._said.get(plan, {}).get((label, key))) is None:
                if (left := end - time.monotonic()) <= 0:
                    raise MeetingError(f'not all devices came within {timeout:.0f} s')
                self._changed.wait(left)
        return said

    def places(self, plan: PlanId) -> dict[str, Place]:
        """Return where those of a plan are reached that have said anything."""
        with self._changed:
            return {said['device']: (str(said['place'][0]), int(said['place'][1]))
                    for said in self._said.get(plan, {}).values()}


class MeetingStore(Store):
    """
    What gloo takes for the store of a group; `label` is the group's.

    `port` returns where this device listens for the group; `reach` is called with the device,
    its place and its port before its address is used.
    """

    def __init__(self, meeting: Meeting, plan: PlanId, label: str, timeout: float,
                 port: Callable[[], int], reach: Callable[[str, Place, int], None]) -> None:
        super().__init__()
        self._meeting, self._plan, self._label, self._timeout = meeting, plan, label, timeout
        self._port, self._reach, self._own = port, reach, dict[str, bytes]()
        self._reached: set[str] = set()

    def set(self, key: str, value: Any) -> None:  # noqa: A003
        """Say where this device listens (bytes)."""
        self._own[key] = value
        self._meeting.say(self._plan, self._label, key, value, self._port())

    def get(self, key: str) -> bytes:
        """Return what another said, when it can be reached."""
        return self._value(key, self._timeout)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait for others."""
        seconds = self._timeout if timeout is None else timeout.total_seconds()
        end = time.monotonic() + seconds
        for key in keys:
            self._value(key, max(0.0, end - time.monotonic()))

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all have said so much."""
        try:
            self.wait(keys, timedelta(0))
        except MeetingError:
            return False
        return True

    def _value(self, key: str, timeout: float) -> bytes:
        if key in self._own:
            return self._own[key]
        said = self._meeting.heard(self._plan, self._label, key, timeout)
        device = str(said['device'])
        if device not in self._reached:
            self._reached.add(device)
            self._reach(device, (str(said['place'][0]), int(said['place'][1])),
                        int(said['port']))
        return b64decode(said['value'])
