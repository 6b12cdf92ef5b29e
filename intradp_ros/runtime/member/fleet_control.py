# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What devices and coordinators send each other, as control frames and back.

The sender is whom the channel names, not whom a body might name.
"""
from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

from intradp_ros.cluster.fleet_messages import (
    Abort,
    Claim,
    Commit,
    Committed,
    Goodbye,
    Heartbeat,
    LinkMeasurement,
    Order,
    Prepare,
    Ready,
    Refused,
    Reply,
    Resign,
)
from intradp_ros.cluster.plan_id import NO_PLAN, PlanId
from intradp_ros.cluster.terms import MAX_TERM
from intradp_ros.core.limits import MAX_DELAY, MAX_RATE
from intradp_ros.wire.frames import Control, ControlKind, MalformedFrameError
from intradp_ros.wire.sanitise import quoted

FleetMessage = Heartbeat | Goodbye | Claim | Resign | Order | Reply
#: What a message may name: each a little more than a fleet needs.
MAX_PLANS, MAX_LINKS, MAX_ANSWERS, MAX_TAGS, MAX_COMPUTES = 16, 64, 64, 64, 64
#: No fleet gets so far; above it the next number would not fit into a frame.
MAX_EPOCH = 1 << 31
MAX_PRIORITY = 1 << 31
MAX_NUMBER, MAX_SPEED = 1e18, 1e6
#: Characters of a refusal's reason that are sent: whatever they are, they fit into its frame.
MAX_REASON = 600


def to_control(message: FleetMessage) -> Control:
    """Return the frame that carries a message."""
    if isinstance(message, Heartbeat):
        return _beat(message)
    if isinstance(message, Goodbye):
        return Control(ControlKind.BYE)
    if isinstance(message, Claim):
        return Control(ControlKind.CLAIM, message.term, body={'priority': message.priority})
    if isinstance(message, Resign):
        return Control(ControlKind.RESIGN, message.term)
    boundary = message.boundary if isinstance(message, Commit) else 0
    return Control(_KINDS[type(message)], *message.id, boundary, _body(message))


def from_control(peer: str, frame: Control) -> FleetMessage:
    """
    Return what a peer's frame says; the plan of a Prepare is JSON, and checked by who takes it.

    :raises MalformedFrameError: if it says nothing of the kind, or something impossible.
    """
    kind, body = frame.kind, frame.body
    if kind is ControlKind.HEARTBEAT:
        return _heartbeat(peer, frame)
    if kind is ControlKind.BYE:
        return Goodbye(peer)
    id_ = plan_id([frame.session, frame.epoch])
    if kind is ControlKind.CLAIM:
        return Claim(peer, int(_number(body.get('priority'), -MAX_PRIORITY, MAX_PRIORITY)),
                     id_.term)
    if kind is ControlKind.RESIGN:
        return Resign(peer, id_.term)
    if kind is ControlKind.PREPARE:
        return Prepare(id_, body.get('plan'))
    if kind is ControlKind.COMMIT:
        return Commit(id_, frame.inference)
    if kind is ControlKind.ABORT:
        return Abort(id_)
    if kind is ControlKind.READY:
        return Ready(peer, id_)
    if kind is ControlKind.COMMITTED:
        return Committed(peer, id_)
    if kind is ControlKind.REFUSE:
        return Refused(peer, id_, quoted(body.get('reason')), _term(body.get('term')),
                       body.get('unable') is True)
    raise MalformedFrameError(f'{kind.name} says nothing of members and plans', 'kind')


def plan_ids(data: Any) -> frozenset[PlanId]:
    """
    Return the plans that a frame's body names.

    :raises MalformedFrameError: if they are not a short list of pairs of whole numbers.
    """
    if not isinstance(data, list) or len(data) > MAX_PLANS:
        raise MalformedFrameError('plans that are not a short list', 'plans')
    return frozenset(plan_id(item) for item in data)


def plan_id(item: Any) -> PlanId:
    """Return the plan that a pair of whole numbers names; MalformedFrameError otherwise."""
    if not isinstance(item, list) or len(item) != 2 or not all(
            type(number) is int and 0 <= number < most
            for number, most in zip(item, (MAX_TERM, MAX_EPOCH))):
        raise MalformedFrameError('a plan that is not two whole numbers', 'plans')
    return PlanId(*item)


_KINDS: Mapping[type, ControlKind] = {
    Prepare: ControlKind.PREPARE, Commit: ControlKind.COMMIT, Abort: ControlKind.ABORT,
    Ready: ControlKind.READY, Committed: ControlKind.COMMITTED, Refused: ControlKind.REFUSE}


def _body(message: Order | Reply) -> dict[str, Any]:
    if isinstance(message, Prepare):
        return {'plan': message.plan.to_json()}
    if isinstance(message, Refused):
        return {'reason': message.reason[:MAX_REASON], 'term': message.term,
                'unable': message.unable}
    return {}


def _beat(beat: Heartbeat) -> Control:
    # The process is the session: so another one that speaks as this device is known as such.
    return Control(ControlKind.HEARTBEAT, beat.incarnation, 0, beat.sequence, {
        'load': beat.load, 'free': beat.free_memory, 'battery': beat.battery,
        'links': {name: [link.bytes_per_second, link.delay]
                  for name, link in sorted(beat.links.items())[:MAX_LINKS]},
        'term': beat.term, 'committed': list(beat.committed),
        'held': [list(id_) for id_ in sorted(beat.held)[-MAX_PLANS:]],
        'answers': [s if math.isfinite(s) else None for s in beat.answers[-MAX_ANSWERS:]],
        'speed': beat.speed, **({'computes': beat.computes} if beat.computes else {}),
        **({'tags': dict(sorted(beat.tags.items())[:MAX_TAGS])} if beat.tags else {})})


def _heartbeat(peer: str, frame: Control) -> Heartbeat:
    body = frame.body
    battery, links = body.get('battery'), body.get('links', {})
    if not isinstance(links, dict) or len(links) > MAX_LINKS:
        raise MalformedFrameError('links that are not a short table', 'links')
    return Heartbeat(
        peer, frame.session, frame.inference, _number(body.get('load', 0.0)),
        _number(body.get('free', 0.0)), None if battery is None else _number(battery, 0.0, 1.0),
        {name: _link(item) for name, item in links.items()}, _term(body.get('term', 0)),
        plan_id(body.get('committed', list(NO_PLAN))), plan_ids(body.get('held', [])),
        _answers(body.get('answers', [])), _tags(body.get('tags', {})),
        _number(body.get('speed', 0.0), 0.0, MAX_SPEED), _computes(body.get('computes', '')))


def _answers(data: Any) -> tuple[float, ...]:
    if not isinstance(data, list) or len(data) > MAX_ANSWERS:
        raise MalformedFrameError('answers that are not a short list', 'answers')
    return tuple(math.inf if item is None else _number(item) for item in data)


def _computes(data: Any) -> str:
    if not isinstance(data, str) or len(data) > MAX_COMPUTES or not data.isprintable():
        raise MalformedFrameError('what computes is not a short text', 'computes')
    return data


def _tags(data: Any) -> Mapping[str, int]:
    if not isinstance(data, dict) or len(data) > MAX_TAGS or not all(
            type(tag) is int and 0 <= tag < MAX_TERM for tag in data.values()):
        raise MalformedFrameError('tags that are not a short table of whole numbers', 'tags')
    return data


def _link(item: Any) -> LinkMeasurement:
    if not isinstance(item, list) or len(item) != 2:
        raise MalformedFrameError('a link that is not a rate and a delay', 'links')
    return LinkMeasurement(_number(item[0], 0.0, MAX_RATE), _number(item[1], 0.0, MAX_DELAY))


def _term(item: Any) -> int:
    return plan_id([item, 0]).term


def _number(item: Any, least: float = 0.0, most: float = MAX_NUMBER) -> float:
    """Return a number within limits; MalformedFrameError otherwise."""
    if type(item) not in (int, float) or not least <= item <= most:
        raise MalformedFrameError(f'{quoted(item)} in place of a number', 'number')
    return float(item)
