# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp language run``: a prompt or a chat, with devices on threads of this process."""
from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
import sys
from typing import Any

from intradp_ros.cli.arguments import looked_at, MOST_SEED, number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.language_model import (
    add_device,
    add_drafts,
    add_fleet,
    add_model,
    add_plan,
    planned_model,
)
from intradp_ros.cli.output import add_json, Output, output
from intradp_ros.core.json_text import parse_json
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_requests import ChatTurn, Sampling, TextEnd, TextRequest
from intradp_ros.systems.language.families import MissingPackageError
from intradp_ros.systems.language.grammar import check_schema
from intradp_ros.systems.language.head import HeadPolicy
from intradp_ros.systems.language.limits import DeviceRates, plan_limit
from intradp_ros.systems.language.live_planner import LanguagePlanner
from intradp_ros.systems.language.local_fleet import Answering, LocalLanguage
from intradp_ros.systems.language.role import LanguageOptions

DESCRIPTION = """\
Answer a prompt, or chat where none is given, with a model over devices on threads of this
process: to see what a plan does before it runs on machines. Tokens are shown as they come.

The devices share this machine's processor and disk; networks have the rates of the fleet file."""

EPILOG = """\
examples:
  intradp language run smollm2 'What is a robot?'
  intradp language run smollm2 'What is a robot?' --devices 3 --memory 200 --max-tokens 32
  intradp language run ~/models/Qwen3-0.6B --fleet fleet.yaml     # a chat; end it by Ctrl-D"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_model(parser)
    parser.add_argument('prompt', nargs='?', help='what is asked (default: a chat)')
    add_fleet(parser)
    add_device(parser)
    add_plan(parser)
    parser.add_argument('--max-tokens', type=whole(1, 1 << 20), default=256, metavar='N',
                        help='tokens of an answer at most (default %(default)s)')
    parser.add_argument('--temperature', type=number(0.0, 10.0), default=0.0,
                        help='0 takes the likeliest token (default)')
    parser.add_argument('--top-p', type=number(0.0, 1.0), default=1.0,
                        help='draw among the likeliest tokens of this share (default: all)')
    parser.add_argument('--seed', type=whole(0, MOST_SEED), default=0,
                        help='of what is drawn (default 0)')
    parser.add_argument('--schema', type=looked_at(schema_object), default='', metavar='JSON',
                        help='JSON schema that the answer meets')
    parser.add_argument('--raw', action='store_true',
                        help="continue the prompt as text, without the model's chat template")
    add_drafts(parser)
    parser.add_argument('--threads', type=whole(0, 256), default=0, metavar='N',
                        help='processor threads (default: all)')
    add_json(parser)


def schema_object(text: str) -> object:
    """Return the JSON object of a schema; ValueError if it is not one."""
    found = parse_json(text or '{}')
    if not isinstance(found, dict):
        raise ValueError(f'is a {type(found).__name__}, not a JSON object')
    return found


def run(args: argparse.Namespace) -> int:
    """Answer, or chat."""
    if args.schema:
        try:
            check_schema(args.schema)
        except (ValueError, MissingPackageError) as error:
            raise CommandError(f'--schema: {error}') from error
    with output(args.json) as out:
        if args.threads:
            prepare_process(args.threads)
        with local_language(args, out) as (local, rate):
            if args.prompt is not None:
                return _one(args, local, rate, out)
            return _chat(args, local, rate, out)


@contextmanager
def local_language(args: argparse.Namespace, out: Output,
                   ) -> Iterator[tuple[LocalLanguage, float]]:
    """
    Open the model on devices of this process; yield them, and the memory's rate (bytes/s).

    :raises CommandError: if it does not fit.
    """
    model = planned_model(args, out, args.plan)
    costs, head = model.costs, model.head
    planner = LanguagePlanner(costs, head, lambda text: None, model.make)
    with LocalLanguage(costs, head, planner, {head: model.opened.store},
                       LanguageOptions(device=model.opened.device, policy=HeadPolicy(
                           chunk=costs.lane, drafts=args.drafts))) as local:
        with out.status(f'loading: {model.planned.answer}'):
            local.wait_ready(300.0)
        yield local, model.opened.seconds.memory_rate


def _one(args: argparse.Namespace, local: LocalLanguage, rate: float, out: Output) -> int:
    prompt: str | tuple[ChatTurn, ...] = args.prompt if args.raw else \
        (ChatTurn('user', args.prompt),)
    text, end, figures = _ask(args, local, rate, prompt, show=not args.json)
    out.result({'text': text, 'fate': end.fate.value, 'reason': end.reason,
                'finish_reason': end.finish_reason, 'prompt_tokens': end.prompt_tokens,
                'completion_tokens': end.completion_tokens, **figures})
    if not args.json:
        _say_figures(out, end, figures)
    return 0 if end.fate in (Fate.DONE, Fate.RESUMED) else 1


def _chat(args: argparse.Namespace, local: LocalLanguage, rate: float, out: Output) -> int:
    turns: tuple[ChatTurn, ...] = ()
    while True:
        try:
            line = input('you: ').strip()
        except EOFError:
            return 0
        if not line:
            continue
        turns += (ChatTurn('user', line),)
        text, end, figures = _ask(args, local, rate, turns, show=True)
        if end.fate in (Fate.DONE, Fate.RESUMED):
            turns += (ChatTurn('assistant', text),)
        else:
            turns = turns[:-1]
        _say_figures(out, end, figures)


def _ask(args: argparse.Namespace, local: LocalLanguage, rate: float,
         prompt: str | tuple[ChatTurn, ...], show: bool) -> tuple[str, TextEnd, dict[str, Any]]:
    before = {name: _meter(local, name) for name in local.devices}
    answering = Answering()
    try:
        cancel = local.head.submit(TextRequest(
            prompt, args.max_tokens, Sampling(args.temperature, 0, args.top_p, args.seed),
            schema=args.schema), answering.heard)
    except (ValueError, MissingPackageError) as error:
        raise CommandError(str(error)) from error
    try:
        while not isinstance(item := answering.pieces.get(), TextEnd):
            if show:
                sys.stdout.write(item.text)
                sys.stdout.flush()
    except KeyboardInterrupt:
        cancel(Fate.CANCELLED)
        raise
    if show:
        print()
    tokens = max(1, item.completion_tokens)
    figures = {name: {key: (value - before[name][key]) / tokens for key, value in _meter(
        local, name).items()} for name in local.devices}
    each = (item.seconds - item.first_token_seconds) / max(1, tokens - 1)
    return answering.text, item, {'ms_per_token': 1e3 * each, **_limit(
        local, rate, each, item.prompt_tokens + tokens), 'per_token': figures}


def _limit(local: LocalLanguage, rate: float, seconds: float, tokens: int) -> dict[str, Any]:
    """
    Return the estimated least of the plan in use, and how far the answer was from it.

    Disks count as they were read in this run: they are this machine's, whatever the fleet's file
    says.
    """
    engine, costs = local.roles[local.head_name].engine, local.costs
    plan = engine.plan if engine else None
    if plan is None:
        return {}
    rates = {}
    for device in costs.topology.devices:
        own = local.roles[device.name].engine
        disk = own.loader.nbytes / own.loader.seconds if own and own.loader.seconds else 1e-9
        rates[device.name] = DeviceRates(rate, disk, device.memory_bytes)
    limit = plan_limit(plan, costs.manifest, rates, 0.0, tokens)
    return {'limit_ms': 1e3 * limit.seconds, 'x': seconds / limit.seconds, 'binds': limit.binds}


def _meter(local: LocalLanguage, name: str) -> dict[str, float]:
    engine = local.roles[name].engine
    meter = engine.meter if engine else None
    return {'computing_ms': 1e3 * meter.computing, 'disk_ms': 1e3 * meter.disk,
            'transfer_ms': 1e3 * meter.peers, 'sent_kb': meter.sent / 1e3,
            'received_kb': meter.received / 1e3} if meter else dict.fromkeys(
        ('computing_ms', 'disk_ms', 'transfer_ms', 'sent_kb', 'received_kb'), 0.0)


def _say_figures(out: Output, end: TextEnd, figures: dict[str, Any]) -> None:
    if end.reason:
        out.warn(f'{end.fate.value}: {end.reason}')
        return
    out.show(f'[dim]{end.completion_tokens} tokens, first after {end.first_token_seconds:.2f} s, '
             f'then {figures["ms_per_token"]:.0f} ms each'
             + (f': {figures["x"]:.2f} times the estimated least, '
                f'{figures["limit_ms"]:.0f} ms ({figures["binds"]} binds)'
                if 'x' in figures else '') + '[/dim]')
    for name, row in figures['per_token'].items():
        out.show(f'[dim]  {name}: computing {row["computing_ms"]:.1f} ms, waiting for the disk '
                 f'{row["disk_ms"]:.1f} ms, for others {row["transfer_ms"]:.1f} ms, sent '
                 f'{row["sent_kb"]:.1f} kB, received {row["received_kb"]:.1f} kB[/dim]')
