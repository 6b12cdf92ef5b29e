# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tokens that are looked up and checked in one round: the same answers, in fewer rounds."""
from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st
from language_models import costs, QUICK, Scripted, STEADY, tiny_model
import pytest
import torch

from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_requests import Sampling
from intradp_ros.systems.language.drafts import expected_of, Lookup, Outcomes, Pace
from intradp_ros.systems.language.head import HeadPolicy
from intradp_ros.systems.language.kernels import kernels
from intradp_ros.systems.language.lanes import Lane, lane_bytes, Part, read_lane
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.role import LanguageOptions

TIMEOUT, COUNT = 60.0, 40
compiled = pytest.mark.skipif(kernels().library is None, reason='the kernels were not compiled')


@given(tokens=st.lists(st.integers(0, 3), max_size=60), most=st.integers(1, 9),
       steps=st.lists(st.integers(0, 60), max_size=4))
@settings(max_examples=300, deadline=None)
def test_what_is_looked_up_came_after_the_same_tokens(tokens, most, steps):
    lookup = Lookup()
    for stop in sorted(min(step, len(tokens)) for step in steps):
        lookup.find(tokens[:stop], most)  # as a request grows
    found = lookup.find(tokens, most)
    places = [end for end in range(3, len(tokens)) if tokens[end - 3:end] == tokens[-3:]]
    if not places:
        assert found == []
        return
    whole = tokens[places[-1]:]
    assert found == (whole * most)[:most]


def test_outcomes_and_pace_decide_what_is_drafted():
    sure, unsure = Outcomes(), Outcomes()
    for _ in range(50):
        sure.add(True)
        unsure.add(False)
    assert sure.chance > 0.9 and unsure.chance < 0.1
    pace = Pace()
    assert pace.worthwhile(1, 1, sure.chance, 7) == 0  # nothing was measured yet
    pace.add(1, 0.1)
    assert pace.worthwhile(1, 1, sure.chance, 7) == 7  # a hop costs the same for several
    assert pace.worthwhile(1, 1, unsure.chance, 7) == 0
    for count in range(2, 9):
        pace.add(count, 0.1 * count)  # each token costs as much as the first
    assert pace.worthwhile(1, 1, sure.chance, 7) == 0
    assert pace.seconds(9) == pytest.approx(0.9)


def test_a_hiccup_does_not_decide_and_what_is_old_is_measured_again():
    pace = Pace()
    for _ in range(3):
        pace.add(1, 0.1)
        pace.add(8, 0.11)
    pace.add(8, 5.0)
    assert pace.worthwhile(1, 1, 0.9, 7) == 7
    for _ in range(201):
        pace.add(8, 0.11)
    assert pace.worthwhile(1, 1, 0.9, 7) == 0  # so the next round is one without
    pace.add(1, 0.01)
    assert pace.worthwhile(1, 1, 0.9, 7) == 0  # hops are short now
    for _ in range(201):
        pace.add(1, 0.01)
    assert pace.worthwhile(1, 1, 0.9, 7) > 0  # that of 8 is forgotten: tried again


@given(requests=st.integers(1, 6), chance=st.floats(0.01, 0.98), fixed=st.floats(0, 1),
       each=st.floats(0.001, 1))
@settings(max_examples=200, deadline=None)
def test_drafts_of_one_request_are_made_only_where_all_gain(requests, chance, fixed, each):
    """The tokens a second of all requests of a round decide, not those of one."""
    pace = Pace()
    for count in range(1, 15):
        pace.add(count, fixed + each * count)
    found = pace.worthwhile(requests, requests, chance, 7)

    def rate(count: int) -> float:
        return (requests + expected_of(chance, count)) / (fixed + each * (requests + count))
    if found:
        assert rate(found) > 1.04 * rate(0)
    else:
        assert all(rate(count) < 1.06 * rate(0) for count in range(1, 8))


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp('model'), max_position_embeddings=256)[:2]


def answers(model, prompts, drafts: int, count: int = 2, sampling: Sampling = Sampling(),
            kill: bool = False):
    """Return tokens and logits of answers, with the rounds that they took and what was drafted."""
    manifest, store = model
    fleet = costs(manifest, count, tokens=1024)
    with LocalLanguage(fleet, 'a', Scripted(fleet, 2, True), {'a': store},
                       LanguageOptions(policy=HeadPolicy(drafts=drafts)),
                       times=QUICK if kill else STEADY) as local:
        local.wait_ready(TIMEOUT)
        logits: list[list[torch.Tensor]] = [[] for _ in prompts]
        asked = [local.ask(prompt, COUNT, mine, sampling=sampling)
                 for prompt, mine in zip(prompts, logits)]
        if kill:
            while len(asked[0].tokens) < 9:
                time.sleep(0.001)
            local.kill('b')
        for each in asked:
            assert each.wait(TIMEOUT).fate in (Fate.DONE, Fate.RESUMED)
        rounds = local.roles['a'].engine.meter.rounds
        return ([each.tokens for each in asked], [torch.stack(mine) for mine in logits], rounds,
                local.head.state())


@pytest.fixture
def always(monkeypatch):
    """Let as many tokens be drafted as there are, whatever they cost."""
    monkeypatch.setattr(Pace, 'worthwhile', lambda self, tokens, drawn, chance, most: most)


PROMPTS = [[5, 17, 3, 80, 41] * 6, [9, 2, 44, 60] * 3, [(7 * k) % 97 for k in range(50)]]


@compiled
@pytest.mark.parametrize('sampling', [Sampling(), Sampling(0.05, seed=3)],
                         ids=['likeliest', 'drawn'])
@pytest.mark.parametrize('count', [1, 2, 3])
def test_drafts_change_no_bit(model, always, count, sampling):
    tokens, logits, rounds, _ = answers(model, PROMPTS, 0, count, sampling)
    again, bits, fewer, state = answers(model, PROMPTS, 7, count, sampling)
    assert again == tokens
    assert all(torch.equal(one, other) for one, other in zip(logits, bits))
    assert state.drafted_tokens > 0
    if not sampling.temperature:  # a small model repeats itself
        assert state.accepted_tokens > 20 and fewer < rounds


@compiled
def test_a_loss_among_drafts_changes_no_bit(model, always):
    tokens, logits, *_ = answers(model, PROMPTS, 0, 3)
    again, bits, *_ = answers(model, PROMPTS, 7, 3, kill=True)
    assert again == tokens
    assert all(torch.equal(one, other) for one, other in zip(logits, bits))


@compiled
def test_beginnings_that_are_shared_hold_no_draft(model, always):
    """Pages are named after what was accepted, never after what was only drafted."""
    manifest, store = model
    fleet = costs(manifest, 1, tokens=1024)
    with LocalLanguage(fleet, 'a', Scripted(fleet, 1, False), {'a': store},
                       LanguageOptions(policy=HeadPolicy(drafts=7)), times=STEADY) as local:
        local.wait_ready(TIMEOUT)
        for _ in range(2):
            first = local.ask(PROMPTS[2], COUNT)
            first.wait(TIMEOUT)
            whole = [*PROMPTS[2], *first.tokens]
            logits: list[torch.Tensor] = []
            local.ask(whole, 8, logits).wait(TIMEOUT)
            alone: list[torch.Tensor] = []
            with LocalLanguage(fleet, 'a', Scripted(fleet, 1, False), {'a': store},
                               LanguageOptions(policy=HeadPolicy(drafts=0)),
                               times=STEADY) as other:
                other.wait_ready(TIMEOUT)
                other.ask(whole, 8, alone).wait(TIMEOUT)
            assert torch.equal(torch.stack(logits), torch.stack(alone))
        assert local.head.state().shared_tokens > 64


def test_without_the_compiled_library_nothing_is_drafted(model, always, monkeypatch):
    from intradp_ros.systems.language import head
    from intradp_ros.systems.language.kernels import Kernels
    monkeypatch.setattr(head, 'kernels', lambda: Kernels(None))
    *_, state = answers(model, PROMPTS, 7, 1)
    assert state.drafted_tokens == 0


def test_lanes_say_how_many_tokens_are_wanted():
    lane = Lane((Part(30, 4, (1, 2, 3), 4), Part(0, 5, (7,), 1), Part(3, 2, (8,), 0)))
    assert lane.last_rows == [0, 1, 2, 3, 8]
    assert read_lane(lane_bytes(lane))[0] == lane
    with pytest.raises(ValueError, match='more tokens are wanted'):
        read_lane(lane_bytes(Lane((Part(0, 2, (1,), 3),))))


@compiled
def test_requests_that_end_or_are_cancelled_among_drafts_leave_the_others_their_bits(
        model, always):
    tokens, logits, *_ = answers(model, PROMPTS, 0, 2)
    manifest, store = model
    fleet = costs(manifest, 2, tokens=1024)
    options = LanguageOptions(policy=HeadPolicy(drafts=7))
    with LocalLanguage(fleet, 'a', Scripted(fleet, 2, True), {'a': store}, options,
                       times=STEADY) as local:
        local.wait_ready(TIMEOUT)
        found: list[list[torch.Tensor]] = [[] for _ in PROMPTS]
        asked = [local.ask(prompt, COUNT, mine) for prompt, mine in zip(PROMPTS, found)]
        short = [local.ask(PROMPTS[0], most) for most in range(1, 6)]
        gone = local.ask(PROMPTS[1], 200)
        while len(gone.tokens) < 5:
            time.sleep(0.001)
        gone.cancel(Fate.CANCELLED)
        assert gone.wait(TIMEOUT).fate is Fate.CANCELLED
        for most, each in enumerate(short, 1):
            end = each.wait(TIMEOUT)
            assert each.tokens == tokens[0][:most]
            assert (end.finish_reason, end.completion_tokens) == ('length', most)
        for each, mine, wanted, bits in zip(asked, found, tokens, logits):
            assert each.wait(TIMEOUT).fate is Fate.DONE and each.tokens == wanted
            assert torch.equal(torch.stack(mine), bits)
        assert local.head.state().drafted_tokens > 0
