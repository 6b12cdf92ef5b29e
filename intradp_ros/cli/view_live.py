# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What runs in this ROS domain, for the page: a child process listens while somebody looks."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
import json
import os
import threading
import time
from typing import Any

from intradp_ros.cli.serve_status import asked
from intradp_ros.core.child_process import ChildProcess
from intradp_ros.report.view.observed import Observed, OPTIONS

#: Seconds for which it listens on when nobody looks any more, and between two starts.
LINGER, AGAIN = 5.0, 3.0
#: Seconds without a sign of life: a busy machine takes long to import what it needs.
SILENCE = 60.0
DOMAIN = 'ROS_DOMAIN_ID'


class Live:
    """Starts to listen when the first one looks, and ends when the last one has gone."""

    def __init__(self, gateways: Sequence[str] = (), key: str = '', prefix: Sequence[str] = (),
                 environment: Mapping[str, str] = os.environ) -> None:
        """Take gateways to ask with a key, and where it listens: words before its command."""
        self._gateways, self._key = gateways, key
        self._prefix, self._environment = prefix, environment
        self._lock = threading.Lock()
        self.observed = Observed(environment.get(DOMAIN) or os.environ.get(DOMAIN, '0'))
        self._lookers: list[frozenset[str]] = []
        self._child: ChildProcess | None = None
        self._started, self._left = 0.0, 0.0
        self._gateways_next = 0.0

    @contextmanager
    def look(self, query: Mapping[str, str]) -> Iterator[Callable[[], Mapping[str, Any]]]:
        """Return what gives the view of what was heard."""
        mine = frozenset(name for name in OPTIONS if query.get(name) == '1')
        with self._lock:
            self._lookers.append(mine)
            self._listen()
            self._wish()

        def view() -> Mapping[str, Any]:
            with self._lock:
                self._listen()
                return self.observed.view(query, time.time())
        try:
            yield view
        finally:
            with self._lock:
                self._lookers.remove(mine)
                self._wish()
                self._left = time.monotonic()
            threading.Timer(LINGER, self._leave).start()

    def picture(self, name: str) -> bytes | None:
        """Return the newest picture of a topic."""
        with self._lock:
            return self.observed.pictures.get(name)

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            self._lookers.clear()
            self._left = 0.0
        self._leave()

    @property
    def pid(self) -> int | None:
        """Return the process that listens, None while nobody looks."""
        return self._child.pid if self._child else None

    def _listen(self) -> None:
        now = time.monotonic()
        if self._child is None and now - self._started > AGAIN:
            self._started = now
            self._child = ChildProcess('view', 'intradp_ros.nodes.sharing.view_listener', (),
                                       self._take, self._gone, prefix=self._prefix,
                                       environment=self._environment, silence=SILENCE)
            self._wish()
        if self._gateways and now >= self._gateways_next:
            self._gateways_next = now + 1.0
            threading.Thread(target=self._ask, daemon=True).start()

    def _wish(self) -> None:
        if self._child:
            self._child.send(json.dumps(sorted(frozenset().union(*self._lookers))).encode())

    def _leave(self) -> None:
        with self._lock:
            if self._lookers or time.monotonic() - self._left < LINGER - 0.1:
                return
            child, self._child = self._child, None
        if child:
            child.close()

    def _take(self, message: bytearray) -> None:
        found = json.loads(message)
        with self._lock:
            for kind, topic, when, data in found:
                self.observed.take(kind, topic, data, when)

    def _gone(self, cause: str) -> None:
        with self._lock:
            if self._child is not None:
                self._child = None
                self.observed.take('Notice', 'listener', {
                    'text': f'what listens to ROS has ended: {cause}; intradp doctor finds why'},
                    time.time())

    def _ask(self) -> None:
        for gateway in self._gateways:
            state = asked(gateway, self._key)
            with self._lock:
                self.observed.take('Gateway', gateway, state, time.time())
