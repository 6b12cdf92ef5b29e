# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tables of actions: all is computed once and in order, and nobody waits for ever."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from language_models import costs as fleet_costs
from language_models import tiny_model
import pytest

from intradp_ros.cluster.plan_id import PlanError
from intradp_ros.systems.language.actions import (
    actions,
    Await,
    Embed,
    first_loads,
    Load,
    Ready,
    Run,
    Sample,
    Send,
)
from intradp_ros.systems.language.estimate import play
from intradp_ros.systems.language.segment_plan import parse_plan, SegmentPlan

NAMES = 'abcd'


@st.composite
def plans(draw) -> SegmentPlan:
    """Return any plan: owners of blocks at random, and which of them share slots."""
    count = draw(st.integers(1, 4))
    owners = draw(st.lists(st.sampled_from(NAMES[:count]), min_size=2, max_size=16))
    owners += ['a'] * (len(owners) % 2)
    slots: dict[str, list[list[int]]] = {}
    for block, name in enumerate(owners):
        own = slots.setdefault(name, [])
        shared = [slot for slot in own if len(slot) < 4]
        if shared and draw(st.booleans()):
            draw(st.sampled_from(shared)).append(block)
        else:
            own.append([block])
    head = draw(st.sampled_from(NAMES[:count]))
    return SegmentPlan('0' * 64, head, len(owners),
                       {n: tuple(map(tuple, s)) for n, s in slots.items()}, 4)


@pytest.fixture(scope='module')
def any_costs(tmp_path_factory):
    manifest, _, _ = tiny_model(tmp_path_factory.mktemp('blobs'), num_hidden_layers=8)
    return fleet_costs(manifest, 4, disk=1e7, mbit=100.0)


@given(plan=plans(), lanes=st.integers(1, 3), rounds=st.integers(1, 3))
@settings(max_examples=300, deadline=None)
def test_every_block_is_computed_once_for_each_lane_and_from_a_slot_that_holds_it(
        plan, lanes, rounds):
    computed: dict[tuple[int, int, int], int] = {}
    for name in plan.participants:
        held = {load.slot: load.block for load in first_loads(plan, name)}
        used: dict[int, set[int]] = {}
        for number in range(rounds):
            sure: set[int] = set()
            for action in actions(plan, lanes, name, lanes if number else 0):
                if isinstance(action, Ready):
                    assert held[action.slot] == action.block
                    sure.add(action.block)
                elif isinstance(action, Run):
                    assert action.block in sure
                    computed[number, action.block, action.lane] = \
                        computed.get((number, action.block, action.lane), 0) + 1
                    used.setdefault(action.block, set()).add(action.lane)
                elif isinstance(action, Load):
                    last = held[action.slot]
                    assert used.pop(last) == set(range(lanes)), 'overwritten before its last use'
                    sure.discard(last)
                    held[action.slot] = action.block
        # What is to be used next is in its slot or on its way there: rounds follow each other.
        assert held == {load.slot: load.block for load in first_loads(plan, name)}
    assert computed == {(number, block, lane): 1 for number in range(rounds)
                        for block in range(plan.blocks) for lane in range(lanes)}


@given(plan=plans(), lanes=st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_each_lane_passes_the_blocks_in_order_and_what_is_sent_is_awaited(plan, lanes):
    sent, awaited = [], []
    for name in plan.participants:
        order: dict[int, list[int]] = {}
        ended = 0
        for number in range(2):
            for action in actions(plan, lanes if number == 0 else 0, name, ended):
                if isinstance(action, Run):
                    order.setdefault(action.lane, []).append(action.block)
                elif isinstance(action, Send):
                    sent.append((name, action.device, action.stage, action.lane))
                elif isinstance(action, Await):
                    awaited.append((action.device, name, action.stage, action.lane))
                elif isinstance(action, Sample | Embed):
                    assert name == plan.head
            ended = lanes
        for blocks in order.values():
            assert blocks == list(plan.blocks_of(name))
    assert sorted(sent) == sorted(awaited)
    assert len(sent) == lanes * plan.hops


@given(plan=plans(), lanes=st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_no_table_makes_devices_wait_for_each_other(any_costs, plan, lanes):
    played = play(plan, any_costs, lanes)
    assert played.seconds > 0
    computing = sum(any_costs.block(plan.owner[b], b) for b in range(plan.blocks))
    assert played.seconds >= computing * 0.999 or lanes > 1
    for name in plan.slots:
        reading = sum(any_costs.load(name, b) for b in plan.streamed(name))
        assert played.seconds >= reading * 0.999


@given(plan=plans())
@settings(max_examples=50, deadline=None)
def test_a_plan_is_what_its_json_says(plan):
    assert parse_plan(plan.to_json()) == plan


@pytest.mark.parametrize('change', [
    {'format': 'stages/1'}, {'blocks': 3}, {'blocks': 10**9}, {'pages': 0}, {'pages': 'x'},
    {'slots': {'a': [[0, 1, 1]]}}, {'slots': {'a': [[1, 0]]}}, {'slots': {'a': [[0, -1]]}},
    {'slots': []}, {'slots': {'a': [[0, True]]}}, {'head': ''}, {'head': 'x' * 99},
    {'model': None}, {'slots': {'a': [[0], ['1']]}}, {'slots': {'a': 5}}])
def test_what_is_no_plan_is_refused(change):
    right = {'format': 'segments/1', 'model': '0' * 64, 'head': 'a', 'blocks': 2, 'pages': 1,
             'slots': {'a': [[0], [1]]}}
    parse_plan(right)
    with pytest.raises(PlanError):
        parse_plan(right | change)
