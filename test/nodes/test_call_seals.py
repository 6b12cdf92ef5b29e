# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Seals of calls: who has the key, once for each request; of every service and action there is."""
from __future__ import annotations

from array import array
import ast
from collections.abc import Callable
from copy import deepcopy
from functools import cache
import math
from pathlib import Path
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from rclpy.serialization import deserialize_message, serialize_message

import intradp_ros
from intradp_ros import action, msg, srv
from intradp_ros.action import Train
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.msg import OperatorProfile
from intradp_ros.nodes.common.call_seals import (
    _parts,
    CallSeals,
    check_answer,
    GOOD,
    MOST_BYTES,
    MOST_USES,
    question_of,
    seal_request,
    SealError,
    sros2_enforces,
)
from intradp_ros.srv import ControlTraining, LoadWeights, PlanModel

KEY = SharedKey.generate()
ADAPT = PlanModel.Request(what=PlanModel.Request.ADAPT, qoe='latency=1s', without=['b'])
SOURCE = Path(intradp_ros.__file__).parent
#: What creates services and actions: all others go by these, which check seals.
CREATORS = {'nodes/common/call_seals.py': {'create_service'},
            'nodes/common/goal_server.py': {'_Server'},
            'nodes/serving/infer_server.py': {'create_service'}}  # RequestSeals
ACTION_SERVERS = {'nodes/common/goal_server.py'}
#: Types that have no fields for a seal, so that a key closes the service.
CLOSED = {'SetBool', 'GenerateResponse', 'GenerateChatCompletions'}
#: Topics whose messages have no seal, and what a stranger can do by them.
OPEN = {'Image': 'is one more camera', 'CameraInfo': 'is one more camera',
        'String': 'names gateways, as the parameter does',
        'Status': "ends a node as its lifecycle manager's bond",
        'InferenceTimeline': 'is watched', 'InferenceResult': 'is watched',
        'DiagnosticArray': 'is watched'}


def no(cause: str, text: str) -> None:
    """Refuse without a word."""


def refused(seals: CallSeals, request: Any, now: float | None = None) -> str | None:
    """Return the cause for which a request is refused, None if it is taken."""
    try:
        seals.check(request, 'it', time.monotonic() if now is None else now)
    except SealError as error:
        return error.cause
    return None


def challenge(seals: CallSeals) -> int:
    return int(seals.sealed(PlanModel.Response(), PlanModel.Request()).challenge)


def test_requests_are_sealed_and_taken_once() -> None:
    seals = CallSeals(KEY, no)
    assert refused(seals, ADAPT) == 'unsealed'
    request = seal_request(KEY, deepcopy(ADAPT), challenge(seals))
    changed = deepcopy(request)
    changed.without = ['c']
    assert refused(seals, changed) == 'forged'
    other = seal_request(SharedKey.generate(), deepcopy(ADAPT), challenge(seals))
    assert refused(seals, other) == 'forged'
    recorded = deepcopy(request)
    assert refused(seals, request) is None
    assert refused(CallSeals(KEY, no), deepcopy(recorded)) == 'challenge', 'a node begun anew'
    assert refused(seals, recorded) == 'replayed'
    late = seal_request(KEY, deepcopy(ADAPT), challenge(seals))
    assert refused(seals, late, time.monotonic() + GOOD + 1) == 'challenge'
    for junk in (b'', b'x', bytes(16), bytes(range(16))):
        request = seal_request(KEY, deepcopy(ADAPT), challenge(seals))
        request.mac = array('B', junk)
        assert refused(seals, request) in ('', 'forged')


def test_a_question_for_a_challenge_is_no_attempt_and_its_answer_is_fresh() -> None:
    seals, question = CallSeals(KEY, no), question_of(ControlTraining.Request)
    assert refused(seals, question) == ''
    answer = seals.sealed(ControlTraining.Response(message='x'), question)
    check_answer(KEY, answer, question)
    with pytest.raises(SealError):  # a recorded answer
        check_answer(KEY, answer, question_of(ControlTraining.Request))
    answer.success = True
    with pytest.raises(SealError):
        check_answer(KEY, answer, question)
    with pytest.raises(SealError, match='not sealed'):
        check_answer(KEY, ControlTraining.Response(), question)
    request = seal_request(KEY, ControlTraining.Request(), answer.challenge)
    stranger = ControlTraining.Request(number=request.number, challenge=request.challenge)
    again = deepcopy(request)
    assert refused(seals, request) is None and refused(seals, again) == 'replayed'
    check_answer(KEY, seals.sealed(ControlTraining.Response(), request), request)
    for other in (stranger, again):  # what is said to who repeats it
        with pytest.raises(SealError):
            check_answer(KEY, seals.sealed(ControlTraining.Response(), other), request)


def test_what_is_remembered_is_bounded_and_two_clients_do_not_disturb_each_other() -> None:
    seals = CallSeals(KEY, no)
    first = challenge(seals)
    held = seal_request(KEY, deepcopy(ADAPT), first)
    for _ in range(3 * MOST_USES):
        assert refused(seals, seal_request(KEY, deepcopy(ADAPT), challenge(seals))) is None
    assert len(seals._used) <= 2
    assert sum(len(used) for _, used in seals._used.values()) <= 2 * MOST_USES
    assert refused(seals, held) == 'challenge'
    one, other = (seal_request(KEY, deepcopy(ADAPT), challenge(seals)) for _ in range(2))
    assert refused(seals, other) is None and refused(seals, one) is None


@pytest.mark.parametrize('seals', [CallSeals(None, no), CallSeals(KEY, no, everybody=True)])
def test_without_a_key_and_where_it_is_open_all_are_taken_but_what_is_too_large(
        seals: CallSeals) -> None:
    assert refused(seals, ADAPT) is None and not seals.closed
    assert refused(seals, PlanModel.Request(qoe='x' * MOST_BYTES)) == 'too_large'
    assert refused(seals, PlanModel.Request(without=['x'] * MOST_BYTES)) == 'too_large'


def test_whether_sros2_decides() -> None:
    assert sros2_enforces({'ROS_SECURITY_ENABLE': 'true', 'ROS_SECURITY_STRATEGY': 'Enforce'})
    assert not sros2_enforces({'ROS_SECURITY_ENABLE': 'true'})


TEXT = st.text('as1:', max_size=3)
REQUESTS = st.builds(PlanModel.Request, what=st.integers(0, 2), qoe=TEXT,
                     without=st.lists(TEXT, max_size=3))


@given(REQUESTS, REQUESTS)
@settings(max_examples=100, deadline=None)
def test_different_requests_are_never_sealed_alike(one: Any, other: Any) -> None:
    assert (b''.join(_parts(one, '')) == b''.join(_parts(other, ''))) == (one == other)


def test_a_seal_survives_the_wire() -> None:
    for request in (Train.Goal(task='ä', resume=True, deadline=0.1),
                    LoadWeights.Request(path='p', least_accuracy=1 / 3), ADAPT,
                    ControlTraining.Request(what=2, goal=array('B', range(16)))):
        seals = CallSeals(KEY, no)
        sent = seal_request(KEY, deepcopy(request), challenge(seals))
        assert refused(seals, deserialize_message(serialize_message(sent), type(sent))) is None
    answer = seals.sealed(Train.Result(loss=math.nan, seconds=1 / 3, round=-1), sent)
    check_answer(KEY, deserialize_message(serialize_message(answer), Train.Result), sent)


@cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """Return file, name of the function, and each call in the rooms that know ROS."""
    return [(str(path.relative_to(SOURCE)), getattr(
        node.func, 'attr', getattr(node.func, 'id', '')), node)
        for room in ('nodes', 'dds', 'rqt') for path in (SOURCE / room).rglob('*.py')
        for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def named(of: Callable[[str, str], int | None]) -> set[str]:
    """Return the names of the types in the calls for which `of` gives the place of the type."""
    return {getattr(call.args[place], 'id', ast.unparse(call.args[place]))
            for path, name, call in calls() if (place := of(path, name)) is not None}


def test_every_service_and_action_checks_seals_of_types_that_have_them() -> None:
    found: dict[str, set[str]] = {}
    for path, name, _ in calls():
        if name in ('create_service', 'ActionServer', '_Server'):  # a kind of ActionServer
            found.setdefault(path, set()).add(name)
    servers = {str(path.relative_to(SOURCE)) for room in ('nodes', 'dds', 'rqt')
               for path in (SOURCE / room).rglob('*.py') if 'ActionServer' in path.read_text()}
    assert servers == ACTION_SERVERS
    assert found == CREATORS, 'serve it by call_seals.serve or a GoalServer'
    kinds = named(lambda path, name: 1 if name in ('serve', 'GoalServer') and path.startswith(
        'nodes/') and path not in CREATORS else None)
    assert {'Train', 'LoadWeights', 'PlanModel', 'ControlTraining', *CLOSED} == kinds
    for name in kinds - CLOSED:
        kind: Any = getattr(srv, name, None) or getattr(action, name)
        asked, answer = (kind.Request, kind.Response) if hasattr(kind, 'Request') else (
            kind.Goal, kind.Result)
        fields = asked.get_fields_and_field_types()
        assert {'number', 'challenge', 'mac'} <= fields.keys(), f'{name}: add fields for a seal'
        assert {'challenge', 'mac'} <= answer.get_fields_and_field_types().keys()
    for name in CLOSED - {'SetBool'}:
        assert not hasattr(getattr(action, name).Goal(), 'mac')


def test_every_topic_that_changes_something_is_sealed() -> None:
    kinds = named(lambda path, name: 0 if path.startswith('nodes/') and name in (
        'subscribe', 'create_subscription') and 'receiving' not in path else None)
    kinds = {name.rpartition('.')[2].removesuffix('Message') for name in kinds}
    for name in kinds - {*OPEN} - {'kind'}:  # of sensors, and as announcement_seals.py is told
        assert hasattr(getattr(msg, name, None), 'mac'), \
            f'{name} has no seal: add one, or say in OPEN what a stranger can do by it'
    assert {'OperatorProfile', 'ScheduleBook', 'AnnouncementQuestion'} <= kinds
    assert 'mac' in OperatorProfile.get_fields_and_field_types()
