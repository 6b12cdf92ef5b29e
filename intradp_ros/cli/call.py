# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp call``: a service of a running node, sealed with the key that the nodes have."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
import json
from pathlib import Path
from typing import Any

from intradp_ros.cli.arguments import looked_at, number
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.node_request import node_request, NodeRequestError
from intradp_ros.cli.output import add_json, Output, output, plain
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.core.yaml_text import parse_yaml

DESCRIPTION = """\
Call a service of a node as `ros2 service call` does, sealed with the key that the node has: with a
key_file nodes refuse what is not. FIELDS are those of its request, in YAML."""

EPILOG = """\
examples:
  intradp call /trainer_node/control_training '{what: pause}' --key-file fleet.key
  intradp call /inference_node/load_weights '{path: new.safetensors, sha256: ...}'

exit status: 1 if the node refuses"""

#: The types of services, by the last part of their names.
KINDS: Mapping[str, str] = {'control_training': 'ControlTraining', 'load_weights': 'LoadWeights',
                            'plan_model': 'PlanModel'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('service', metavar='SERVICE', type=looked_at(_kind),
                        help=f'NODE/NAME; names are {", ".join(KINDS)}')
    parser.add_argument('fields', metavar='FIELDS', nargs='?', default='{}',
                        type=looked_at(_fields), help='of the request (default: none)')
    add_call(parser)


def run(args: argparse.Namespace) -> int:
    """Call, and print the answer."""
    with output(args.json) as out:
        answer = called(out, args.service, _kind(args.service), _fields(args.fields), args)
        out.show('\n'.join(f'{key}: {plain(str(value))}' for key, value in answer.items()))
        out.result(answer)
    return 0 if answer.get('success', answer.get('ok')) else 1


def add_call(parser: argparse.ArgumentParser) -> None:
    """Declare the options of commands that call a service."""
    add_key_file(parser)
    parser.add_argument('--seconds', type=number(0.0, 1e6, above=True), default=20.0,
                        help='seconds to wait for an answer (default 20)')
    add_json(parser)


def add_key_file(parser: argparse.ArgumentParser) -> None:
    """Declare the option that names the key."""
    parser.add_argument('--key-file', type=looked_at(_key), default='', metavar='FILE',
                        help='key file of the nodes, by which requests and answers are sealed')


def called(out: Output, service: str, kind: str, fields: Mapping[str, Any],
           args: argparse.Namespace) -> Mapping[str, Any]:
    """Return what a node answers, from a short-lived process; CommandError if nothing."""
    command = Command('ask', module_arguments(
        'intradp_ros.nodes.common.operator_request', json.dumps({
            'service': service, 'kind': kind, 'fields': fields, 'key_file': args.key_file,
            'seconds': args.seconds})))
    with out.status('asking'):
        try:
            answer = node_request(command, 2 * args.seconds, warn=out.warn)
        except NodeRequestError as error:
            raise CommandError('; '.join(filter(None, (str(error), error.fix)))) from None
    if 'failed' in answer:
        raise CommandError(answer['failed'])
    return answer


def _kind(service: str) -> str:
    node, _, name = service.rpartition('/')
    if not node or name not in KINDS:
        raise ValueError(f'{service!r:.80} is not NODE/NAME, with a NAME of {", ".join(KINDS)}')
    return KINDS[name]


def _key(text: str) -> object:
    return text and SharedKey.load(Path(text))


def _fields(text: str) -> Mapping[str, Any]:
    try:
        found = parse_yaml(text)
    except ValueError as error:
        raise ValueError(f'{text!r:.80}: {error}') from None
    if not isinstance(found, dict):
        raise ValueError(f'{text!r:.80}: write fields as {{name: value, ...}}')
    return found
