# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from intradp_ros.schedule.stage_cuts import parse_stages, plan_of_cuts, plan_without, without
from intradp_ros.schedule.stage_plan import PlanError, StagePlan

SPEEDS = {'a': 1.0, 'b': 2.0, 'c': 1.0, 'd': 4.0}


def made(text: str, operators: int = 12, costs: list[float] | None = None) -> StagePlan:
    return plan_of_cuts('digest', 'a', parse_stages(text), costs or [1.0] * operators, SPEEDS)


def sizes(plan: StagePlan) -> list[int]:
    return [len(stage.operators) for stage in plan.stages]


def test_stages_are_cut_in_proportion_to_speed() -> None:
    assert sizes(made('a,b,c', 12)) == [3, 6, 3]
    assert sizes(made('a,d', 10, [8, 1, 1, 1, 1, 1, 1, 1, 1, 4])) == [1, 9]


def test_cuts_that_are_given_hold_and_the_rest_is_divided_between_them() -> None:
    assert sizes(made('a@5,b,c@11,d', 12)) == [5, 4, 2, 1]


def test_shares_of_samples_are_made_equal_and_a_stage_is_as_fast_as_its_slowest() -> None:
    plan = made('b*2+c,a,d', 12)
    assert plan.samples == 3
    assert [(m.device, m.samples) for m in plan.stages[0].members] == [('b', 2), ('c', 1)]
    assert [(m.device, m.samples) for m in plan.stages[1].members] == [('a', 3)]
    assert sizes(plan) == [4, 2, 6]  # b and c together: 3 samples in the time of one on c


@pytest.mark.parametrize('text, message', [
    ('a,,b', 'is not a stage'), ('a@x', 'is not a stage'), ('a*0+b', 'takes no samples'),
    ('a@4,b@4,c', 'empty'),
    ('a@5', 'before @12, not @5: leave'), ('a,b@999', 'not @999'), ('a@40,b', 'empty'),
    ('a,z', "'z' is not in the fleet")])
def test_stages_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        made(text)


def test_without_a_device_its_replicas_or_the_other_stages_take_its_part() -> None:
    left = frozenset('acd')
    assert [c.members[0].device for c in without(parse_stages('a,b,c'), left, 'a')] == ['a', 'c']
    [one, two] = without(parse_stages('b+c,d@9'), left, 'a')
    assert [m.device for m in one.members] == ['c'] and two.stop == 9
    [lost, _] = without(parse_stages('b@3,c@9'), left, 'a')
    assert lost.members[0].device == 'a' and lost.stop == 3


def test_a_plan_without_devices_keeps_its_stages() -> None:
    plan = made('b*2+c,b,d', 12)
    left = plan_without(plan, frozenset('acd'))
    assert left.samples == 3 and sizes(left) == sizes(plan)
    assert [[m.device for m in s.members] for s in left.stages] == [['c'], ['a'], ['d']]
    assert plan_without(plan, frozenset('abcd')) == plan
