# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Calls a service of a node, sealed with a key: ``python -m ... '{"service": ..., ...}'``."""
from __future__ import annotations

from array import array
from collections.abc import Mapping
import json
import sys
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor

from intradp_ros import srv
from intradp_ros.nodes.common.key_parameter import open_key
from intradp_ros.nodes.common.sealed_caller import SealedCaller
from intradp_ros.nodes.common.unused_overrides import NO_LOG_FILE


def ask(asked: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return a node's answer as a dictionary.

    `asked` has `service` (full name), `kind` (of `intradp_ros.srv`), `fields`, `key_file` ('' for
    none) and `seconds` to wait.  A number that has a name may be given by it, an id in hex digits.

    :raises ValueError: if the key cannot be read, a field makes no sense, or no node answers.
    """
    key = open_key(asked['key_file'], lambda text: None)
    request = request_of(getattr(srv, asked['kind']).Request, asked['fields'])
    context = Context()
    rclpy.init(args=NO_LOG_FILE, context=context)
    node = rclpy.create_node('operator_request', context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        caller = SealedCaller(
            node, executor, getattr(srv, asked['kind']), asked['service'], key,
            lambda text: print(json.dumps({'waiting': text}), flush=True))
        answer = caller.call(request, asked['seconds'])
        return {name: getattr(answer, name) for name in _fields(answer)}
    finally:
        executor.shutdown()
        node.destroy_node()
        context.try_shutdown()


def request_of(kind: Any, fields: Mapping[str, Any]) -> Any:
    """Return a request with these fields; ValueError if one of them makes no sense."""
    request = kind()
    for name, value in fields.items():
        if name not in _fields(request):
            raise ValueError(f'there is no field {name!r:.80}: there are '
                             f'{", ".join(_fields(request))}')
        wanted = type(getattr(request, name))
        if wanted is int and isinstance(value, str):
            value = getattr(kind, value.upper(), value)
        if wanted is float and isinstance(value, int) or wanted is array:
            value = float(value) if wanted is float else array('B', bytes.fromhex(value))
        if type(value) is not wanted or wanted is list and not all(
                isinstance(one, str) for one in value):
            raise ValueError(f'{name}: {value!r:.80} is not {wanted.__name__}')
        setattr(request, name, value)
    return request


def _fields(message: Any) -> list[str]:
    """Return the fields of a message that are not of its seal."""
    return [name for name in message.get_fields_and_field_types()
            if name not in ('number', 'challenge', 'mac')]


def main() -> None:
    """Ask what the command line says, and print the answer as JSON."""
    try:
        print(json.dumps(ask(json.loads(sys.argv[1]))))
    except ValueError as error:
        print(json.dumps({'failed': str(error)}))


if __name__ == '__main__':
    main()
