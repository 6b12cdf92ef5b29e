# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A goal ends once: with its result, or when its server is gone, though another took its name."""
from __future__ import annotations

from collections.abc import Iterator
import queue
import threading
from typing import Any

import pytest
import rclpy
from rclpy.action.server import ActionServer
from rclpy.executors import MultiThreadedExecutor
from waiting import wait_for

from intradp_ros.action import GenerateResponse
from intradp_ros.nodes.common.call_seals import CallSeals
from intradp_ros.nodes.common.goal_client import GoalClient
from intradp_ros.nodes.common.goal_server import _Recent, GoalServer
from intradp_ros.runtime.requests.admission import Fate

PATIENCE = 60.0


class Side:
    """Nodes that are spun together; a name is served by as many of them as it is asked for."""

    def __init__(self, context: rclpy.Context) -> None:
        self._context, self._nodes = context, list[Any]()
        self._servers = list[Any]()
        self._executor = MultiThreadedExecutor(4, context=context)
        self.asker = self.node('asker')
        self.client = GoalClient(self.asker, GenerateResponse, 'served')
        self.heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.ends: queue.SimpleQueue[tuple[Any, str]] = queue.SimpleQueue()
        threading.Thread(target=self._executor.spin, daemon=True).start()

    def node(self, name: str) -> Any:
        node = rclpy.create_node(name, context=self._context)
        self._executor.add_node(node)
        self._nodes.append(node)
        return node

    def deaf(self, name: str) -> Any:
        """Return a server that takes goals and never ends them, on a node of its own."""
        server: Any = ActionServer(
            self.node(name), GenerateResponse, 'served', lambda handle: None,
            handle_accepted_callback=lambda handle: None)
        self._servers.append(server)
        return server

    def send(self, **fields: Any) -> Any:
        wait_for(lambda: self.client.ready, PATIENCE)
        return self.client.send(GenerateResponse.Goal(**fields), self.heard.put,
                                lambda result, why: self.ends.put((result, why)))

    def end(self) -> tuple[Any, str]:
        return self.ends.get(timeout=PATIENCE)

    def leave(self, server: Any) -> None:
        """Let a server go without a word to its clients."""
        self._servers.remove(server)
        server.destroy()

    def close(self) -> None:
        self._executor.shutdown()
        self.client.close()
        for server in self._servers:
            server.destroy()
        for node in self._nodes:
            node.destroy_node()


@pytest.fixture
def side(context: rclpy.Context) -> Iterator[Side]:
    side = Side(context)
    yield side
    side.close()


def test_feedback_result_cancel_and_rejection_come_to_who_sent(side: Side) -> None:
    def begin(goal: Any, report: Any, finish: Any) -> Any:
        report(GenerateResponse.Feedback())
        return lambda fate: finish(fate, GenerateResponse.Result(reason='as wished'))
    server = GoalServer(side.node('server'), GenerateResponse, None, 'served', begin,
                        CallSeals(None, lambda *refusal: None))
    sent = side.send(prompt='a')
    assert isinstance(side.heard.get(timeout=PATIENCE), GenerateResponse.Feedback)
    sent.cancel()
    result, why = side.end()
    assert (result.fate, result.reason, why) == (Fate.CANCELLED.value, 'as wished', '')
    side.send(prompt='a').cancel()  # before it is accepted
    assert side.end()[0].fate == Fate.CANCELLED.value
    server._refused = _Recent(1, 1000)
    side.send(deadline=-1.0)
    assert side.end()[0].reason == 'deadline must be within 0..1e6 s, not -1'
    side.send(deadline=-1.0)
    assert side.end() == (None, '/served rejects the goal: it refused many a moment ago, and its '
                          'log says why')
    server.close()
    assert side.ends.empty()


def test_a_goal_ends_when_its_server_is_gone_though_another_serves_the_name(side: Side) -> None:
    first = side.deaf('first')
    sent = side.send(prompt='a')
    wait_for(lambda: sent._handle is not None and len(side.client.servers()) == 1, PATIENCE)
    side.deaf('second')
    wait_for(lambda: len(side.client.servers()) == 2, PATIENCE)
    with pytest.raises(queue.Empty):  # the first is still there
        side.ends.get(timeout=2.0)
    side.leave(first)
    result, why = side.end()
    assert result is None and why in (
        'the node that serves /served is gone', 'the node that served /served was started anew')
    wait_for(lambda: len(side.client.servers()) == 1, PATIENCE)
    assert side.client.ready and side.ends.empty()
