# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Plans change while answers go on: keys and values stay, move, or get more room."""
from __future__ import annotations

from dataclasses import replace
import time

from language_models import checked, costs, even_plan, plan_of, Scripted, STEADY, tiny_model
import pytest
import torch
from waiting import wait_for

from intradp_lab.language.reference import whole_answer
from intradp_ros.cluster.plan_id import PlanError
from intradp_ros.runtime.member.planner import Proposal
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_requests import Piece, TextEnd
from intradp_ros.systems.language.head import Head, HeadPolicy
from intradp_ros.systems.language.live_planner import LanguagePlanner
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.memory import memory_need
from intradp_ros.systems.language.planner import build, Choice, plan_language, Share
from intradp_ros.systems.language.role import LanguageOptions
from intradp_ros.systems.language.segment_plan import parse_plan, SegmentPlan, Step

TIMEOUT = 60.0
PROMPT = [5, 17, 3, 80, 41, 41, 9]
#: Answers that are still under way when something happens to them.
ONE_BY_ONE = LanguageOptions(policy=HeadPolicy(drafts=0))


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp('blobs'), max_position_embeddings=1024,
                      num_hidden_layers=6)


class Named(Scripted):
    """Even plans whose keys and values have a name."""

    def plan(self, alive: frozenset[str], now: float) -> Proposal | None:
        found = super().plan(alive, now)
        return found and Proposal(replace(checked(found.plan), cache='first'))


def layers(given, counts: dict[str, int]) -> SegmentPlan:
    """Return a plan with so many layers on each device."""
    return build(given, 'a', Choice(0.0, 1, {n: Share(count) for n, count in counts.items()}))


def test_layers_move_with_their_keys_and_values_to_a_partner_and_back(model):
    manifest, store, whole = model
    given = costs(manifest, 3, tokens=1024)
    with LocalLanguage(given, 'a', Named(given, 1, False), {'a': store}, ONE_BY_ONE,
                       times=STEADY) as local:
        local.wait_ready()
        answerings = [local.ask(PROMPT[k:], 250) for k in range(3)]
        for a, b, c in ((1, 4, 1), (2, 2, 2), (1, 1, 4)):
            counts = {'a': a, 'b': b, 'c': c}
            had = len(answerings[0].tokens)
            while len(answerings[0].tokens) < had + 12:
                time.sleep(0.001)
            before = local.coordinator.id
            local.coordinator.propose(replace(layers(given, counts), cache='first', keeps=True))
            while local.coordinator.id == before:
                time.sleep(0.001)
        for k, answering in enumerate(answerings):
            assert answering.wait(TIMEOUT).fate is Fate.DONE  # nothing was computed anew
            assert answering.tokens == whole_answer(whole, PROMPT[k:], 250, frozenset())[0]
        assert local.head.state().restarts == 0
        assert len(plan_of(local).layers('c')) == 4


def test_without_the_keys_and_values_a_plan_that_keeps_them_is_refused(model):
    manifest, store, _ = model
    given = costs(manifest, 3)
    with LocalLanguage(given, 'a', Named(given, 1, False), {'a': store}, times=STEADY) as local:
        local.wait_ready()
        local.ask(PROMPT, 5).wait(TIMEOUT)
        role, plan = local.roles['b'], layers(given, {'a': 2, 'b': 2, 'c': 2})
        for other in (replace(plan, cache='other', keeps=True),
                      replace(plan, cache='first', keeps=True, pages=1)):
            with pytest.raises(PlanError, match='no keys and values'):
                role.load(local.coordinator.id, other)


def test_room_for_keys_and_values_grows_in_steps_and_goes_back(model):
    manifest, store, whole = model
    given = costs(manifest, 2, tokens=1024)

    class Stepped(Scripted):
        def plan(self, alive, now):
            first = replace(even_plan(given, 'ab', 3), pages=2)
            later = even_plan(given, 'ab', 3, streamed=True)
            return Proposal(replace(first, steps=(Step(8, first.slots), Step(60, later.slots))))

    with LocalLanguage(given, 'a', Stepped(given, 3, False), {'a': store}, times=STEADY) as local:
        local.wait_ready()
        local.head.policy = replace(local.head.policy, rest=0.2)
        first = local.ask(PROMPT, 20)
        while len(first.tokens) < 3:
            time.sleep(0.001)
        assert local.roles['b'].engine._program.step == 0
        others = [local.ask(PROMPT[k:], 90) for k in (1, 2)]
        for answering, begin, count in ((first, 0, 20), *zip(others, (1, 2), (90, 90))):
            assert answering.wait(TIMEOUT).fate is Fate.DONE
            assert answering.tokens == whole_answer(whole, PROMPT[begin:], count, frozenset())[0]
        assert local.head.state().restarts == 0
        assert local.roles['b'].engine._program.step == 2
        time.sleep(0.6)
        again = local.ask(PROMPT, 20)
        assert again.wait(TIMEOUT).fate is Fate.DONE and again.tokens == first.tokens
        assert local.roles['b'].engine._program.step == 0


def test_a_request_that_waits_for_room_gets_a_later_step_of_a_plan_that_keeps(model):
    manifest, _, _ = model
    ends: list[Piece | TextEnd] = []
    plan = replace(even_plan(costs(manifest, 2), 'ab'), pages=20)
    after = replace(plan, pages=4, steps=(Step(13, plan.slots), Step(20, plan.slots)))
    head = Head(manifest, lambda ids: torch.zeros(len(ids), 1),
                lambda hidden: torch.zeros(len(hidden), 97), policy=HeadPolicy(reserve=16))
    head.devices(1)
    head.restart(plan)
    cancels = [head.submit_tokens(PROMPT, ends.append, count) for count in (300, 250)]

    def ended() -> list[TextEnd]:
        return [end for end in ends if isinstance(end, TextEnd)]

    def go_on() -> None:
        if head.begin(0):
            lane, hidden = head.choose_tokens(0)
            head.sample(0, hidden[lane.last_rows])
        else:
            head.step()
    while not head._seats.paused:
        go_on()
    serving = head._seats.lanes[0][0]
    cancels[serving.most == 250](Fate.CANCELLED)
    while not ended():  # seen by the head's own thread
        time.sleep(0.001)
    head.resume(after)
    for _ in range(400):
        if len(ended()) < 2:
            go_on()
    head.close()
    assert [end.fate for end in ended()] == [Fate.CANCELLED, Fate.DONE]


def test_a_mission_takes_memory_back_and_answers_go_on(model):
    manifest, store, whole = model
    # Little cache, so that weights are what memory is about; disks that are worth reading from.
    given = costs(manifest, 2, tokens=512, memory=2e6, disk=1e8)
    planner = LanguagePlanner(given, 'a', lambda text: None)
    with LocalLanguage(given, 'a', planner, {'a': store}, ONE_BY_ONE, times=STEADY) as local:
        local.wait_ready()
        before = plan_of(local)
        assert not any(before.streamed(name) for name in before.slots)
        answering = local.ask(PROMPT, 400)
        while len(answering.tokens) < 20:
            time.sleep(0.001)
        name = next(iter(before.slots))
        need = memory_need(before.at(len(before.steps)), name, manifest, given.lane)
        local.memory[name] = float(need.total - 30_000)
        assert answering.wait(TIMEOUT).fate in (Fate.DONE, Fate.RESUMED)
        assert answering.tokens == whole_answer(whole, PROMPT, 400, frozenset())[0]
        wait_for(lambda: local.coordinator.plan != before)
        after = plan_of(local)
        for step in range(len(after.steps) + 1):
            assert name not in after.participants or memory_need(
                after.at(step), name, manifest, given.lane).total <= local.memory[name]


def test_the_planner_says_a_plan_once_and_once_that_nothing_fits_any_more(model):
    manifest, _, _ = model
    said = []
    planner = LanguagePlanner(costs(manifest, 2), 'a', said.append)
    assert planner.plan(frozenset('ab'), 0.0) and planner.plan(frozenset('ab'), 0.1)
    assert [line for line in said if 'a token are predicted' in line] == said[:1]
    planner.costs = costs(manifest, 2, memory=1000.0)
    assert not planner.look(1.0) and not planner.look(2.0)
    assert len(said) == 2 and said[1].endswith('short; the plan in use stays')
    assert not planner.plan(frozenset('ab'), 3.0) and planner.why + '; the plan in use stays' \
        == said[1]
    assert len(said) == 2 and not planner.plan(frozenset('b'), 4.0)
    assert planner.why == 'the head a is not there'


def test_the_planner_makes_steps_that_read_less_while_there_is_little_to_keep(model):
    manifest, _, _ = model
    given = costs(manifest, 2, tokens=1024)
    whole = memory_need(layers(given, {'a': 3, 'b': 3}), 'a', manifest, given.lane)
    given = replace(given, topology=replace(given.topology, devices=tuple(
        replace(d, memory_bytes=whole.total - 0.3 * whole.blocks)
        for d in given.topology.devices)))
    plan = plan_language(given, 'a').plan
    assert plan.steps, plan
    read = [sum(len(plan.at(k).streamed(n)) for n in plan.slots)
            for k in range(len(plan.steps) + 1)]
    assert read == sorted(read) and read[0] < read[-1]
    assert parse_plan(plan.to_json()) == plan
    for device in given.topology.devices:
        for k in range(len(plan.steps) + 1):
            assert device.name not in plan.participants or memory_need(
                plan.at(k), device.name, manifest, given.lane).total <= device.memory_bytes
    wrong = plan.to_json()
    wrong['steps'][0]['slots'] = {'a': [[b] for b in range(plan.blocks)]}
    with pytest.raises(PlanError, match='other devices'):
        parse_plan(wrong)
