# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Asks a coordinator about its plan, sealed with a key: ``python -m ... '{"what": "adapt"}'``."""
from __future__ import annotations

from collections.abc import Mapping
import json
import sys
import time
from typing import Any

import rclpy
from rclpy.client import Client
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor

from intradp_ros.nodes.common.key_parameter import open_key
from intradp_ros.nodes.common.operator_check import PAUSE, sealed_request
from intradp_ros.srv import PlanModel

WHAT: Mapping[str, int] = {'adapt': PlanModel.Request.ADAPT, 'tell': PlanModel.Request.TELL,
                           'hold': PlanModel.Request.HOLD}


def ask(asked: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return a coordinator's answer: ok, text, plan.

    `asked` has `coordinator` (node name), `what`, `qoe`, `without`, `key_file` ('' for none) and
    `seconds` to wait.

    Raises
    ------
    ValueError
        If the key cannot be read, or no coordinator answers.

    """
    key = open_key(asked['key_file'], lambda text: None)
    context = Context()
    rclpy.init(context=context)
    node = rclpy.create_node('operator_request', context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        client: Client[Any, Any] = node.create_client(
            PlanModel, f'{asked["coordinator"]}/plan_model')
        request = PlanModel.Request(what=WHAT[asked['what']], qoe=asked['qoe'],
                                    without=asked['without'])
        if key:
            # The answer has a challenge; a target that is none costs no plan.
            first = PlanModel.Request(what=PlanModel.Request.TELL, qoe='?')
            challenge = _call(executor, client, first, asked['seconds']).challenge
            request = sealed_request(key, request, challenge) if challenge else request
        answer = _call(executor, client, request, asked['seconds'])
        return {'ok': answer.ok, 'text': answer.text, 'plan': answer.plan}
    finally:
        executor.shutdown()
        node.destroy_node()
        context.try_shutdown()


def _call(executor: SingleThreadedExecutor, client: Client[Any, Any],
          request: PlanModel.Request, seconds: float) -> PlanModel.Response:
    end = time.monotonic() + seconds
    while not client.service_is_ready():
        executor.spin_once(timeout_sec=PAUSE / 10)
        if time.monotonic() > end:
            raise ValueError(f'no coordinator serves {client.srv_name} (it does with a target, '
                             'parameter qoe): start it, or name it by --coordinator')
    future = client.call_async(request)
    executor.spin_until_future_complete(future, max(0.1, end - time.monotonic()))
    answer = future.result()
    if answer is None:
        raise ValueError(f'{client.srv_name} did not answer within {seconds:g} s')
    return answer


def main() -> None:
    """Ask what the command line says, and print the answer as JSON."""
    try:
        print(json.dumps(ask(json.loads(sys.argv[1]))))
    except ValueError as error:
        print(json.dumps({'failed': str(error)}))


if __name__ == '__main__':
    main()
