# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Sends a goal to train to nodes, follows it to its end: ``python -m ... '{"nodes": [...], ...}'``.

Prints a JSON object a line: `{"sent": node}`, `{"feedback": {...}}`, `{"lost": why}`,
`{"waiting": why}`, and at last `{"result": {...}, "node": node}` or `{"failed": why}`.  SIGINT
cancels the goal.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
import json
import signal
import sys
import threading
import time
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from intradp_ros.action import Train
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.nodes.common.call_seals import check_answer, seal_request
from intradp_ros.nodes.common.goal_client import GoalClient, SentGoal
from intradp_ros.nodes.common.key_parameter import open_key
from intradp_ros.nodes.common.sealed_caller import AGAIN, SealedCaller
from intradp_ros.nodes.common.unused_overrides import NO_LOG_FILE
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.srv import ControlTraining

Say = Callable[[dict[str, Any]], None]
_SPIN = 0.1
#: Seconds to wait for a challenge, and for the answer to a cancel.
_CALL = 5.0


class _Trainer:
    """A node that trains: goals to it, and their cancels, are sealed where there is a key."""

    def __init__(self, node: Node, executor: SingleThreadedExecutor, name: str,
                 key: SharedKey | None) -> None:
        self._key, self.goals = key, GoalClient(node, Train, f'{name}/train')
        self._control = SealedCaller(node, executor, ControlTraining,
                                     f'{name}/control_training', key)

    def sealed(self, goal: Any) -> Any:
        """Return a goal with its seal; ValueError if no answer of the node is sealed with ours."""
        return goal if self._key is None else \
            seal_request(self._key, goal, self._control.challenge(_CALL))

    def cancel(self, sent: SentGoal) -> bool:
        """Ask that a goal ends; return whether it does."""
        if self._key is None:
            sent.cancel()
            return True
        try:
            return bool(self._control.call(ControlTraining.Request(
                what=ControlTraining.Request.END, goal=array('B', sent.goal_id)), _CALL).success)
        except ValueError:  # it is asked again, until the node answers or is gone
            return False

    def why_not_ours(self, result: Any, goal: Any) -> str:
        """Return why a result is not to be believed, '' if it is."""
        if self._key is None:
            return ''
        try:
            check_answer(self._key, result, goal)
        except ValueError as error:
            return f'{self.goals.name}: {error}'
        return ''


def follow(asked: Mapping[str, Any], say: Say, cancelled: threading.Event) -> dict[str, Any]:
    """
    Return the result of a goal, and the node that has it.

    `asked` has `nodes`, of which the first that does not refuse trains; `task`, `resume`,
    `deadline`, `seconds` to wait for a node, and `key_file` ('' or none: no key).  Where that
    node is lost, or another one coordinates in its place, the goal goes to the others, to join
    what goes on there.

    :raises ValueError: if no node is there, or the one that trained is gone and none of the others
        goes on; if the key cannot be read.
    """
    key = open_key(asked.get('key_file', ''), lambda text: None)
    context = Context()
    rclpy.init(args=NO_LOG_FILE, context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node('train_request', context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    clients = {name: _Trainer(node, executor, name, key) for name in asked['nodes']}
    try:
        return _followed(asked, say, cancelled, clients, executor)
    finally:
        for client in clients.values():
            client.goals.close()
        executor.shutdown()
        node.destroy_node()
        context.try_shutdown()


def _followed(asked: Mapping[str, Any], say: Say, cancelled: threading.Event,
              clients: Mapping[str, _Trainer], executor: SingleThreadedExecutor,
              ) -> dict[str, Any]:
    begun, lost, unsealed = time.monotonic(), '', ''
    resume, told = bool(asked['resume']), False
    end, refusals = begun + asked['seconds'], dict[str, dict[str, Any]]()
    while True:
        for name, client in clients.items():
            if not client.goals.ready or (name in refusals and not lost):
                continue
            goal = Train.Goal(task=asked['task'], resume=resume)
            if asked['deadline']:
                goal.deadline = max(0.1, asked['deadline'] - (time.monotonic() - begun))
            try:
                goal = client.sealed(goal)
            except ValueError as error:
                unsealed = str(error)
                continue
            say({'sent': name})
            result, why, heard = _ended(client, goal, say, cancelled, executor)
            if result is None:
                lost, resume, end = why, resume or heard, time.monotonic() + asked['seconds']
                say({'lost': why})
            elif result.fate != Fate.REFUSED.value or cancelled.is_set():
                return {'result': _plain(result), 'node': name}
            else:
                resume = resume or result.rounds > 0
                refusals.setdefault(name, {'result': _plain(result), 'node': name})
        if not (told or refusals or lost or unsealed) and time.monotonic() > begun + AGAIN:
            told = True
            say({'waiting': 'no node serves '
                 + ' or '.join(each.goals.name for each in clients.values())
                 + f' so far: waiting for one, {end - time.monotonic():.0f} s more'})
        late = time.monotonic() > end or cancelled.is_set()
        if refusals and (late or not lost) and (late or len(refusals) == len(clients)):
            return next(iter(refusals.values()))
        if late:
            names = ' or '.join(each.goals.name for each in clients.values())
            raise ValueError(f'{lost}, and no node went on within {asked["seconds"]:g} s: send '
                             'the goal with resume when one is back' if lost else unsealed or
                             f'no node serves {names}: start it, or name it')
        executor.spin_once(timeout_sec=_SPIN)


def _ended(client: _Trainer, goal: Any, say: Say, cancelled: threading.Event,
           executor: SingleThreadedExecutor) -> tuple[Any, str, bool]:
    """Return the result of a goal, or why there is none; and whether it was begun."""
    found, fed = list[tuple[Any, str]](), list[bool]()

    def heard(feedback: Any) -> None:
        fed.append(True)
        say({'feedback': _plain(feedback)})
    sent = client.goals.send(goal, heard, lambda result, why: found.append((result, why)))
    asked = False
    while not found:
        executor.spin_once(timeout_sec=_SPIN)
        if cancelled.is_set() and sent.goal_id and not asked:
            asked = client.cancel(sent)
    result, why = found[0]
    if result is not None and (not_ours := client.why_not_ours(result, goal)):
        result, why = None, not_ours
    return result, why, bool(fed)


def _plain(message: Any) -> dict[str, Any]:
    """Return a message's fields for JSON."""
    return {name: list(value) if isinstance(value := getattr(message, name), list) else value
            for name in message.get_fields_and_field_types() if name not in ('challenge', 'mac')}


def main() -> None:
    """Follow what the command line says, and print what happens."""
    cancelled = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: cancelled.set())

    def say(what: dict[str, Any]) -> None:
        print(json.dumps(what), flush=True)
    try:
        say(follow(json.loads(sys.argv[1]), say, cancelled))
    except ValueError as error:
        say({'failed': str(error)})


if __name__ == '__main__':
    main()
