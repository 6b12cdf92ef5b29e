# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Orders and reports as they come from another machine: nothing in them is trusted."""
from __future__ import annotations

from collections.abc import Callable, Mapping
import ipaddress
import math
import re
from typing import Any

from intradp_ros.cluster.terms import MAX_TERM
from intradp_ros.core.json_text import parse_json
from intradp_ros.systems.training.plan.training_plan import parse_plan
from intradp_ros.systems.training.run.meeting import MOST_VALUE
from intradp_ros.wire.frames import MalformedFrameError

#: What a message may have at most: characters of a text, tags, layers, moves, devices.
MOST_TEXT, MOST_TAGS, MOST_LAYERS, MOST_MOVES = 2000, 256, 1 << 16, 1 << 12
MOST_COUNT, MOST_NUMBER = 1 << 31, 1e300
_DIGEST = re.compile('[0-9a-f]{64}')


def read_report(line: str) -> dict[str, Any]:
    """
    Return a worker's report, tags as numbers.

    :raises MalformedFrameError: if it is none.
    """
    return _read(line, 'report', _REPORTS)


def read_order(line: str) -> dict[str, Any]:
    """Return a trainer's order, as `read_report` does."""
    return _read(line, 'order', _ORDERS)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MOST_COUNT:
        raise ValueError(f'{value!r:.40} is not a count')
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f'{value!r:.40} is not a number')
    # A loss or norm that is not finite is reported, too.  Whole numbers may have any size.
    return float(value) if value != value or abs(value) <= MOST_NUMBER else math.inf


def _seconds(value: Any) -> float:
    return min(max(0.0, _number(value)), 1e6)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f'{value!r:.40} is not a text')
    return value[:MOST_TEXT]


def _short(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MOST_VALUE or not value.isascii():
        raise ValueError(f'{value!r:.40} is not a short text')
    return value


def _port(value: Any) -> int:
    if _count(value) >= 1 << 16:
        raise ValueError(f'{value!r:.40} is not a port')
    return int(value)


def _place(value: Any) -> list[Any]:
    host, port = value
    return [str(ipaddress.ip_address(_short(host))), _port(port)]


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError(f'{value!r:.40} is not a digest')
    return value


def _digests(value: Any) -> dict[int, str]:
    if not isinstance(value, dict) or len(value) > MOST_LAYERS:
        raise ValueError('digests that are not a short table')
    return {_count(int(layer)): _digest(digest) for layer, digest in value.items()}


def _validation(value: Any) -> dict[str, Any] | None:
    return None if value is None else {
        'loss': _number(value['loss']), 'samples': _count(value['samples']),
        'accuracy': None if value['accuracy'] is None else _number(value['accuracy']),
        'seconds': _seconds(value['seconds'])}


def _flag(value: Any) -> bool:
    return value is True


def _plan(value: Any) -> list[int]:
    term, epoch = value
    if type(term) is not int or not 0 <= term < MAX_TERM:
        raise ValueError(f'{term!r:.40} is not a term')
    return [term, _count(epoch)]


def _layers(value: Any, most: int = MOST_LAYERS) -> list[int]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError('layers that are not a short list')
    return [_count(layer) for layer in value]


def _held(value: Any) -> dict[int, list[int]]:
    if not isinstance(value, dict) or len(value) > MOST_TAGS:
        raise ValueError('tags that are not a short table')
    return {_count(int(tag)): _layers(layers) for tag, layers in value.items()}


def _names(value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > MOST_TAGS:
        raise ValueError('names that are not a short list')
    return [_text(name) for name in value]


def _moves(value: Any) -> list[list[Any]]:
    if not isinstance(value, list) or len(value) > MOST_MOVES:
        raise ValueError('moves that are not a short list')
    return [[_text(source), _text(target), _layers(layers)] for source, target, layers in value]


def _training_plan(value: Any) -> dict[str, Any]:
    return parse_plan(value).to_json()


Fields = Mapping[str, Callable[[Any], Any]]
_MEET: Fields = {'plan': _plan, 'label': _short, 'key': _short, 'value': _short, 'port': _port,
                 'place': _place}
_REPORTS: Mapping[str, Fields] = {
    'joined': {'seat': _number, 'held': _held, 'child': _count},
    'beat': {'ready': _flag},
    'ready': {'plan': _plan},
    'round': {'plan': _plan, 'round': _count, 'loss': _number, 'norm': _number,
              'samples': _count, 'seconds': _seconds, 'validation': _validation},
    'replicated': {'plan': _plan, 'tag': _count},
    'idle': {'plan': _plan, 'round': _count, 'error': _text, 'fate': _short, 'peer': _text,
             'cut': _names, 'held': _held},
    'meet': _MEET,
    'collected': {'key': _short, 'digest': _digest},
    'fault': {'plan': _plan, 'error': _text},
    'ended': {},
}
_ORDERS: Mapping[str, Fields] = {
    'plan': {'plan': _plan, 'tag': _count, 'what': _training_plan, 'moves': _moves,
             'given': _digests},
    'meet': {**_MEET, 'device': _text},
    'committed': {'tag': _count},
    'stop': {},
    'collect': {'key': _short, 'tag': _count, 'layers': _layers},
    'end': {},
}


def _read(line: str, what: str, kinds: Mapping[str, Fields]) -> dict[str, Any]:
    try:
        data = parse_json(line)
        kind = data[what]
        found = {name: read(data[name]) for name, read in kinds[kind].items()}
        return {what: kind, 'child': _count(data.get('child', 0)), **found}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError,
            RecursionError) as error:
        raise MalformedFrameError(f'no {what} of training: {error!r:.200}', what) from None
