# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What members of a fleet say crosses the network unchanged; what is impossible is refused."""
from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.cluster.fleet_messages import (
    Abort,
    Claim,
    Commit,
    Committed,
    Goodbye,
    Heartbeat,
    LinkMeasurement,
    Prepare,
    Ready,
    Refused,
    Resign,
)
from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.cluster.terms import MAX_TERM
from intradp_ros.dds.convert import control_from_message, control_to_message
from intradp_ros.runtime.member.fleet_control import from_control, to_control
from intradp_ros.schedule.stage_plan import Member, Stage, StagePlan
from intradp_ros.wire.frames import Control, ControlKind, MalformedFrameError

TERMS = st.integers(0, MAX_TERM - 1)
IDS = st.builds(PlanId, TERMS, st.integers(0, 2**31 - 1))
SHARES = st.floats(0, 1)
LINKS = st.dictionaries(st.sampled_from('abc'), st.builds(
    LinkMeasurement, st.floats(0, 1e11), st.floats(0, 10)))
MESSAGES = st.one_of(
    st.builds(Heartbeat, st.just('b'), st.integers(0, 2**62), st.integers(0, 2**40), SHARES,
              st.floats(0, 1e12), st.none() | SHARES, LINKS, TERMS, IDS,
              st.frozensets(IDS, max_size=16),
              st.lists(st.floats(0, 1e3) | st.just(math.inf), max_size=64).map(tuple)),
    st.just(Goodbye('b')), st.builds(Claim, st.just('b'), st.integers(-1000, 1000), TERMS),
    st.builds(Resign, st.just('b'), TERMS), st.builds(Commit, IDS, st.integers(0, 2**40)),
    st.builds(Abort, IDS), st.builds(Ready, st.just('b'), IDS),
    st.builds(Committed, st.just('b'), IDS),
    st.builds(Refused, st.just('b'), IDS, st.just('no memory'), TERMS))


@given(message=MESSAGES)
@settings(max_examples=200)
def test_messages_cross_dds_unchanged(message: Any) -> None:
    assert from_control('b', control_from_message(
        control_to_message(to_control(message), 1))) == message


def test_a_refusal_arrives_however_long_its_reason_is() -> None:
    for reason in ('é' * 10_000, '"' * 10_000, 'x' * 10_000):
        found = from_control('b', control_from_message(control_to_message(to_control(
            Refused('b', PlanId(3, 4), reason, 5)), 1)))
        assert isinstance(found, Refused) and len(found.reason) > 100


def test_a_plan_of_many_operators_fits_into_a_frame() -> None:
    members = (Member('a', 1),)
    plan = StagePlan('d' * 64, 'a', 1, tuple(
        Stage(tuple(range(k, k + 500)), members) for k in range(0, 20_000, 500)))
    message = control_to_message(to_control(Prepare(PlanId(1, 2), plan)), 1)
    arrived = from_control('coordinator', control_from_message(message))
    assert isinstance(arrived, Prepare) and StagePlan.from_json(arrived.plan) == plan


@pytest.mark.parametrize(('kind', 'session', 'body', 'cause'), [
    (ControlKind.HEARTBEAT, 1, {'battery': 1.5}, 'number'),
    (ControlKind.HEARTBEAT, 1, {'load': 10**400}, 'number'),
    (ControlKind.HEARTBEAT, 1, {'load': True}, 'number'),
    (ControlKind.HEARTBEAT, 1, {'links': {str(k): [1, 0] for k in range(65)}}, 'links'),
    (ControlKind.HEARTBEAT, 1, {'links': {'a': [1]}}, 'links'),
    (ControlKind.HEARTBEAT, 1, {'links': {'a': [1.1e11, 0.0]}}, 'number'),
    (ControlKind.HEARTBEAT, 1, {'links': {'a': [1e6, 10.1]}}, 'number'),
    (ControlKind.HEARTBEAT, 1, {'tags': {str(k): 1 for k in range(65)}}, 'tags'),
    (ControlKind.HEARTBEAT, 1, {'tags': {'a': MAX_TERM}}, 'tags'),
    (ControlKind.HEARTBEAT, 1, {'links': [1]}, 'links'),
    (ControlKind.HEARTBEAT, 1, {'held': [[1, 1]] * 17}, 'plans'),
    (ControlKind.HEARTBEAT, 1, {'held': [[1, 1.0]]}, 'plans'),
    (ControlKind.HEARTBEAT, 1, {'committed': [1, 2**31]}, 'plans'),
    (ControlKind.HEARTBEAT, 1, {'answers': [0.1] * 65}, 'answers'),
    (ControlKind.HEARTBEAT, 1, {'answers': ['x']}, 'number'),
    (ControlKind.HEARTBEAT, 1, {'term': -1}, 'plans'),
    (ControlKind.CLAIM, MAX_TERM, {'priority': 1}, 'plans'),
    (ControlKind.CLAIM, 1, {}, 'number'),
    (ControlKind.REFUSE, 1, {'reason': 'x'}, 'plans'),
    (ControlKind.HELLO, 1, {}, 'kind')])
def test_what_is_impossible_is_refused(
        kind: ControlKind, session: int, body: Mapping[str, Any], cause: str) -> None:
    with pytest.raises(MalformedFrameError) as refused:
        from_control('b', Control(kind, session, 1, 1, body))
    assert refused.value.cause == cause
