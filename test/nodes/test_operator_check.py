# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""With a key, plans are changed by who has it, and once for each challenge."""
from __future__ import annotations

from copy import deepcopy

import pytest

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.nodes.common.operator_check import (
    GOOD,
    OperatorCheck,
    sealed_request,
    sros2_enforces,
)
from intradp_ros.srv import PlanModel

KEY = SharedKey.generate()
ADAPT = PlanModel.Request(what=PlanModel.Request.ADAPT, qoe='latency=1s', without=['b'])


def refused(check: OperatorCheck, request: PlanModel.Request, now: float) -> bool:
    try:
        check.check(request, now)
    except ValueError:
        return True
    return False


def test_changes_are_sealed_and_taken_once() -> None:
    said: list[str] = []
    check = OperatorCheck(KEY, False, said.append)
    assert refused(check, ADAPT, 0.0) and len(said) == 1
    request = sealed_request(KEY, deepcopy(ADAPT), check.challenge(1.0))
    changed = deepcopy(request)
    changed.without = ['c']
    assert refused(check, changed, 1.0)
    other = sealed_request(SharedKey.generate(), deepcopy(ADAPT), check.challenge(1.0))
    assert refused(check, other, 1.0)
    assert not refused(check, request, 1.0)
    assert refused(check, request, 1.0), 'a recording'
    late = sealed_request(KEY, deepcopy(ADAPT), check.challenge(2.0))
    assert refused(check, late, 3.0 + GOOD)


def test_telling_changes_nothing_and_is_open_now_and_then() -> None:
    check = OperatorCheck(KEY, False, print)
    tell = PlanModel.Request(what=PlanModel.Request.TELL)
    assert not refused(check, tell, 0.0) and refused(check, tell, 0.5)
    assert not refused(check, tell, 1.5)


@pytest.mark.parametrize('check', [OperatorCheck(None, False, print),
                                   OperatorCheck(KEY, True, print)])
def test_without_a_key_and_where_it_is_open_all_are_taken(check: OperatorCheck) -> None:
    assert not refused(check, ADAPT, 0.0)


def test_whether_sros2_decides() -> None:
    assert sros2_enforces({'ROS_SECURITY_ENABLE': 'true', 'ROS_SECURITY_STRATEGY': 'Enforce'})
    assert not sros2_enforces({'ROS_SECURITY_ENABLE': 'true'})
