# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a robot's node waits for: a server that answers and agrees, a book, the sensor."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import math
import time

from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.common.silence import Awaited, explain_topic, network_of, SilenceWatch
from intradp_ros.nodes.sharing.profile_publisher import BOOK_TOPIC
from intradp_ros.systems.sharing.session.connection import Connection, State
from intradp_ros.wire.rejections import Rejections

#: Seconds between two lines about the same thing that images or cameras lack.
REPORT_AGAIN = 600.0


class RobotSilence:
    """
    Watches what should come, and reports it once when it does not.

    It names things as the user does: the model by its text, the server by its name.  `missing` is
    what is absent now, `findings` what images and cameras lack.
    """

    def __init__(self, node: ManagedNode, model: str, server: str) -> None:
        self._node, self._model, self._server = node, model, server
        self.missing: list[str] = []
        self.findings: list[str] = []
        self._seen: dict[int, float] = {}
        self._watch, self._reported = SilenceWatch(), Rejections(REPORT_AGAIN)

    def saw(self, number: int) -> None:
        """Take note that one of the sensor's topics gave something."""
        self._seen[number] = time.monotonic()

    def look(self, connection: Connection, peers: int, sources: Sequence[str], *, sharing: bool,
             findings: Iterable[str]) -> None:
        """
        Report what is absent now.

        :param peers: how many subscribe to what the robot sends to the server.
        :param sources: the sensor's topics.
        :param sharing: whether the mode needs a server.
        :param findings: what images and cameras lack, each logged once in a while.
        """
        now, self.missing, self.findings = time.monotonic(), [], [*findings]
        for text in self.findings:  # two that differ in what they count are of one cause
            if self._reported.count(''.join(c for c in text if not c.isdigit()), now):
                self._node.warn(text)
        seen = [self._seen.get(number, -math.inf) for number in range(len(sources))]
        silent = min(range(len(sources)), key=seen.__getitem__)
        for awaited in self._awaited(connection, peers, sources[silent], sharing,
                                     now - seen[silent] < 1.0):
            overdue, text = self._watch.look(awaited, now)
            if overdue:
                self.missing.append(awaited.absent)
            if text:
                (self._node.warn if overdue else self._node.info)(text)

    def _awaited(self, connection: Connection, peers: int, sensor: str, sharing: bool,
                 seen: bool) -> Iterator[Awaited]:
        """Yield what should be there now; `seen` says whether the sensor gave anything lately."""
        yield Awaited(sensor, seen, f'no message on {sensor}', lambda: explain_topic(
            self._node, sensor, f'check its name: ros2 topic list; set it with '
            f'image_topic:=NAME or points_topic:=NAME at launch, or -r {sensor}:=NAME'))
        if not sharing:
            return
        answers = connection.answers
        yield Awaited('server', answers, f"no answer of the server '{self._server}'",
                      lambda: self._no_server(peers))
        if not answers:
            return
        refused = connection.state is State.REFUSED
        yield Awaited('agreement', not refused, f'the server refuses model {self._model}',
                      lambda: connection.refusal)
        yield Awaited('schedule table', refused or connection.book is not None,
                      f'no schedule table for model {self._model}',
                      lambda: explain_topic(
                          self._node, BOOK_TOPIC, 'start planner_node in this namespace, or '
                          'wait: it publishes once it has planned'))

    def _no_server(self, peers: int) -> str:
        looked = f'looked on {self._server}/control_up ({network_of(self._node)})'
        if not peers:
            return (f'{looked}, to which nobody listens; start offload_node with server:='
                    f'{self._server} in the same domain, namespace and transport; is multicast '
                    'blocked between the machines? Run: intradp doctor')
        return (f'{looked}, which is listened to; is the server busy or stopped, does it use '
                'another transport, or is a link of one way only? Over large_data two processes '
                'that started together may miss each other: start one again. Run: intradp doctor')
