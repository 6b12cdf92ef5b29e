# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""An action of real nodes: feedback, cancel, deadline, refusal, and its mirror as a service."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
import threading
import time
from typing import Any

from action_msgs.msg import GoalStatus
from node_processes import end_of
import pytest
import rclpy
from rclpy.action.client import ActionClient
from rclpy.executors import MultiThreadedExecutor
from unique_identifier_msgs.msg import UUID
from waiting import wait_for

from intradp_ros.action import GenerateResponse, Train
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.msg import GeneratedText
from intradp_ros.nodes.common.call_seals import CallSeals, check_answer, seal_request
from intradp_ros.nodes.common.goal_server import (
    _Work,
    GoalServer,
    MAX_CALLS,
    MOST_RESULTS,
    MOST_UNKNOWN,
    RESULTS,
)
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.srv import GenerateResponse as GenerateResponseCall
from intradp_ros.wire.rejections import Rejections

PATIENCE = 60.0
ended = partial(end_of, seconds=PATIENCE)


class Speller:
    """Spells the prompt letter by letter as feedback; one that ends with '...' never ends."""

    def __init__(self) -> None:
        self.stopped: list[Fate] = []
        self.begun = threading.Event()

    def __call__(self, goal: Any, report: Callable[[Any], None],
                 finish: Callable[[Fate, Any], None]) -> Callable[[Fate], None]:
        self.begun.set()
        if not goal.prompt:
            raise ValueError('the prompt is empty')
        stop, fates = threading.Event(), list[Fate]()

        def spell() -> None:
            for letter in goal.prompt:
                report(GenerateResponse.Feedback(partial_response=GeneratedText(text=letter)))
            if goal.prompt.endswith('...'):
                stop.wait()
            finish(fates[0] if fates else Fate.DONE,
                   GenerateResponse.Result(response=GeneratedText(text=goal.prompt)))

        def cancel(fate: Fate) -> None:
            fates.append(fate)
            self.stopped.append(fate)
            if not goal.prompt.startswith('deaf'):
                stop.set()
        threading.Thread(target=spell, daemon=True).start()
        return cancel


class Pair:
    """A server and a client, each a node, spun by threads."""

    def __init__(self, context: rclpy.Context) -> None:
        self.speller = Speller()
        self.nodes = [rclpy.create_node(name, context=context) for name in ('speller', 'asker')]
        self.server = GoalServer(self.nodes[0], GenerateResponse, GenerateResponseCall, 'spell',
                                 self.speller, CallSeals(None, lambda *refusal: None))
        self.client = ActionClient(self.nodes[1], GenerateResponse, 'spell')
        self.calls = self.nodes[1].create_client(GenerateResponseCall, 'spell')
        self.executor = MultiThreadedExecutor(MAX_CALLS + 3, context=context)
        for node in self.nodes:
            self.executor.add_node(node)
        threading.Thread(target=self.executor.spin, daemon=True).start()
        assert self.client.wait_for_server(PATIENCE)
        assert self.calls.wait_for_service(PATIENCE)

    def close(self) -> None:
        self.server.close()
        self.executor.shutdown()
        for node in self.nodes:
            node.destroy_node()

    def goal(self, feedback: Callable[[Any], None] | None = None, **fields: Any) -> Any:
        return ended(self.client.send_goal_async(GenerateResponse.Goal(**fields), feedback))

    def refusal(self, **fields: Any) -> str:
        """Return why a goal is refused."""
        result = ended(self.goal(**fields).get_result_async()).result
        assert result.fate == 'refused'
        return result.reason


@pytest.fixture
def pair(context: rclpy.Context) -> Iterator[Pair]:
    pair = Pair(context)
    yield pair
    pair.close()


def test_feedback_comes_in_order_and_the_result_after_it(pair: Pair) -> None:
    letters: list[str] = []
    handle = pair.goal(lambda m: letters.append(m.feedback.partial_response.text), prompt='abcde')
    response = ended(handle.get_result_async())
    assert response.status == GoalStatus.STATUS_SUCCEEDED
    assert (response.result.response.text, response.result.fate) == ('abcde', 'done')
    assert ''.join(letters) == 'abcde'[:len(letters)]  # DDS keeps ten


def test_a_client_may_cancel(pair: Pair) -> None:
    handle = pair.goal(prompt='long...')
    assert ended(handle.cancel_goal_async()).goals_canceling
    response = ended(handle.get_result_async())
    assert response.status == GoalStatus.STATUS_CANCELED
    assert response.result.fate == 'cancelled' and pair.speller.stopped == [Fate.CANCELLED]


@pytest.mark.parametrize('prompt', ['long...', 'deaf...'])
def test_a_goal_ends_at_its_deadline_even_if_its_work_does_not(pair: Pair, prompt: str) -> None:
    handle = pair.goal(prompt=prompt, deadline=0.2)
    response = ended(handle.get_result_async())
    assert response.status == GoalStatus.STATUS_ABORTED
    assert response.result.fate == 'late' and pair.speller.stopped == [Fate.LATE]


def test_what_cannot_begin_is_refused_with_the_reason(pair: Pair) -> None:
    response = ended(pair.goal(prompt='').get_result_async())
    assert response.status == GoalStatus.STATUS_ABORTED
    assert (response.result.fate, response.result.reason) == ('refused', 'the prompt is empty')
    for deadline in (-1.0, float('nan'), float('inf')):
        assert (refused := pair.refusal(prompt='a', deadline=deadline)).startswith(
            'deadline must be within 0..1e6 s, not '), refused


def test_the_mirror_answers_as_the_action(pair: Pair) -> None:
    def call(**fields: Any) -> Any:
        return ended(pair.calls.call_async(GenerateResponseCall.Request(**fields)))
    assert (call(prompt='abc').response.text, call(prompt='').fate) == ('abc', 'refused')
    assert call(prompt='long...', deadline=0.2).fate == 'late'
    waiting = [pair.calls.call_async(GenerateResponseCall.Request(prompt='long...', deadline=2.0))
               for _ in range(MAX_CALLS)]
    fates = [ended(future).fate for future in waiting]
    assert fates == ['late'] * MAX_CALLS


def test_closing_ends_what_is_open(pair: Pair) -> None:
    handle = pair.goal(prompt='long...')
    result = handle.get_result_async()
    assert pair.speller.begun.wait(PATIENCE)
    pair.server.close()
    wait_for(lambda: pair.speller.stopped)  # it may have been about to begin
    assert pair.speller.stopped == [Fate.REFUSED]
    assert not result.done() or result.result().result.fate == 'refused'


def test_a_goal_that_is_accepted_while_the_server_closes_is_not_begun(pair: Pair) -> None:
    accept = pair.server._accepted

    def late(handle: Any) -> None:
        pair.server.close()
        accept(handle)
    pair.server._action.register_handle_accepted_callback(late)
    pair.goal(prompt='long...')
    wait_for(lambda: pair.server._closed)
    assert not pair.speller.begun.wait(0.2) and not pair.server._works


def test_a_flood_of_goals_is_bounded_and_with_a_key_harms_only_itself(
        context: rclpy.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('intradp_ros.nodes.common.goal_server.MOST_KEPT', 20)
    monkeypatch.setattr('intradp_ros.nodes.common.goal_server.MOST_REFUSED', 16)
    pair = Pair(context)
    try:
        assert {pair.refusal() for _ in range(20)} == {'the prompt is empty'}
        assert [pair.refusal(prompt=prompt) for prompt in ('', 'a' * (1 << 16))] == [
            'spell takes 20 goals of 64 MB in 10 s: send it again later',
            'spell takes requests of at most 64 kB']
        assert [pair.goal().accepted for _ in range(16)] == 14 * [True] + 2 * [False]
    finally:
        pair.close()
    refusals, key = Rejections(), SharedKey.generate()
    seals = CallSeals(key, lambda cause, text: refusals.count(cause, 0.0) and None)
    node = rclpy.create_node('trainer', context=context)
    server = GoalServer(node, Train, None, 'flooded', lambda goal, report, finish: finish(
        Fate.DONE, Train.Result(round=7)) or (lambda fate: None), seals)
    client = ActionClient(node, Train, 'flooded')
    executor = MultiThreadedExecutor(2, context=context)
    executor.add_node(node)
    threading.Thread(target=executor.spin, daemon=True).start()
    try:
        assert client.wait_for_server(PATIENCE)
        strangers = [ended(client.send_goal_async(Train.Goal())) for _ in range(30)]
        told = [ended(handle.get_result_async()).result for handle in strangers if handle.accepted]
        assert len(told) == 16 and refusals.by_cause() == {'unsealed': 30}
        assert all(one.fate == 'refused' and 'not sealed' in one.reason for one in told)
        challenge = seals.sealed(Train.Result(), Train.Goal()).challenge
        goal = seal_request(key, Train.Goal(), challenge)
        handle = ended(client.send_goal_async(goal))
        result = ended(handle.get_result_async()).result
        assert (result.fate, result.round) == ('done', 7)
        check_answer(key, result, goal)
        ended(client.send_goal_async(goal))
        assert refusals.by_cause()['replayed'] == 1
    finally:
        server.close()
        executor.shutdown()
        client.destroy()
        node.destroy_node()


def test_who_asks_for_results_again_and_again_is_answered_seldom(context: rclpy.Context) -> None:
    """Of a goal that takes hours, and of goals that there are not: else each is kept."""
    node, finishes = rclpy.create_node('asked', context=context), list[Any]()

    def begin(goal: Any, report: Any, finish: Callable[[Fate, Any], None],
              ) -> Callable[[Fate], None]:
        finishes.append(finish)
        return lambda fate: None
    server = GoalServer(node, Train, None, 'asked', begin, CallSeals(None, lambda *_: None))
    client = ActionClient(node, Train, 'asked', result_service_qos_profile=RESULTS)
    kind = Train.Impl.GetResultService
    asks = node.create_client(kind, 'asked/_action/get_result')
    executor = MultiThreadedExecutor(2, context=context)
    executor.add_node(node)
    threading.Thread(target=executor.spin, daemon=True).start()
    try:
        assert client.wait_for_server(PATIENCE) and asks.wait_for_service(PATIENCE)
        handle = ended(client.send_goal_async(Train.Goal()))
        waiting, others = handle.get_result_async(), list[Any]()
        for goal_id in (handle.goal_id, UUID(uuid=[7] * 16)):
            for _ in range(3 * MOST_RESULTS):
                others.append(asks.call_async(kind.Request(goal_id=goal_id)))
                time.sleep(0.002)
        finishes[0](Fate.DONE, Train.Result(round=7))
        assert ended(waiting).result.round == 7
        time.sleep(0.5)
        answered = [one.done() for one in others]
        assert sum(answered[:3 * MOST_RESULTS]) < MOST_RESULTS
        assert sum(answered[3 * MOST_RESULTS:]) <= MOST_UNKNOWN
        assert ended(client.send_goal_async(Train.Goal())).accepted
    finally:
        server.close()
        executor.shutdown()
        client.destroy()
        node.destroy_node()


def test_work_that_is_stopped_while_it_begins_is_cancelled_once() -> None:
    ends: list[Fate] = []
    cancelled: list[Fate] = []
    work = _Work(GenerateResponse.Result, lambda fate, result: ends.append(fate), 0.0)

    def begin(goal: Any, report: Any, finish: Any) -> Callable[[Fate], None]:
        work.stop(Fate.CANCELLED)
        return cancelled.append
    work.start(begin, GenerateResponse.Goal(), lambda feedback: None)
    assert cancelled == [Fate.CANCELLED]
