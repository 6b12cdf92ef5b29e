# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Every token of a model over several devices is that of one process, whatever happens."""
from __future__ import annotations

from language_models import costs, even_plan, plan_of, QUICK, Scripted, STEADY, tiny_model
import pytest
import torch

from intradp_lab.language.reference import whole_answer
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.systems.language.families import FAMILIES
from intradp_ros.systems.language.local_fleet import LocalLanguage

TIMEOUT = 60.0
COUNT = 12
PROMPTS = (1, 2, 15, 16, 17, 33, 70)
WITH_WINDOW = ('mistral', 'mixtral', 'ministral', 'gemma2', 'gemma3_text', 'phi3', 'olmo3',
               'exaone4')


@pytest.fixture(scope='module', params=[True, False], ids=['tied', 'untied'])
def model(request, tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp('blobs'), tied=request.param)


def prompt(length: int, seed: int = 0) -> list[int]:
    return torch.randint(0, 97, (length,),
                         generator=torch.Generator().manual_seed(seed + length)).tolist()


def check(local: LocalLanguage, whole, length: int, *, seed: int = 0, during=None) -> None:
    tokens, wanted = whole_answer(whole, prompt(length, seed), COUNT, frozenset())
    logits: list[torch.Tensor] = []
    answering = local.ask(prompt(length, seed), COUNT, logits)
    if during:
        during(answering)
    end = answering.wait(TIMEOUT)
    assert end.fate in (Fate.DONE, Fate.RESUMED), end
    assert answering.tokens == tokens
    assert torch.stack(logits).sub(wanted).abs().max() < 1e-4


@pytest.mark.parametrize('streamed', [False, True], ids=['resident', 'streaming'])
@pytest.mark.parametrize('count', [1, 2, 3, 4])
def test_tokens_and_logits_are_those_of_one_process(model, count, streamed):
    manifest, store, whole = model
    given = costs(manifest, count)
    segments = 2 if streamed else 1
    with LocalLanguage(given, 'a', Scripted(given, segments, streamed), {'a': store},
                       times=STEADY) as local:
        local.wait_ready()
        plan = plan_of(local)
        assert bool(plan.streamed('a')) == (streamed and count < 3)
        for length in PROMPTS:
            check(local, whole, length)


@pytest.mark.parametrize('count', [2, 3, 4])
def test_a_plan_that_replaces_another_changes_no_token(model, count):
    manifest, store, whole = model
    given = costs(manifest, count)
    with LocalLanguage(given, 'a', Scripted(given, 1, False), {'a': store}, times=STEADY) as local:
        local.wait_ready()
        for length in (5, 40):
            for segments in (2, 1):
                def switch(answering, segments=segments):
                    while len(answering.tokens) < 3:
                        pass
                    local.coordinator.propose(even_plan(
                        given, 'abcd'[:count], segments, streamed=segments > 1))
                check(local, whole, length, during=switch)


@pytest.mark.parametrize('after', [0, 1, 5, COUNT - 1])
@pytest.mark.parametrize('streamed', [False, True], ids=['resident', 'streaming'])
def test_a_killed_device_changes_no_token(model, after, streamed):
    manifest, store, whole = model
    given = costs(manifest, 3)
    with LocalLanguage(given, 'a', Scripted(given, 2 if streamed else 1, streamed), {'a': store},
                       times=QUICK) as local:
        local.wait_ready()

        def kill(answering):
            while len(answering.tokens) < after:
                pass
            local.kill('bc'[after % 2])
        check(local, whole, 21, during=kill)
        check(local, whole, 7)


def test_requests_at_once_are_those_of_one_process_each(model):
    manifest, store, whole = model
    given = costs(manifest, 3)
    with LocalLanguage(given, 'a', Scripted(given, 2, True), {'a': store}, times=STEADY) as local:
        local.wait_ready()
        lengths = (3, 17, 40, 1, 64, 16, 33, 8)
        asked = [local.ask(prompt(length), COUNT) for length in lengths]
        for length, answering in zip(lengths, asked):
            assert answering.wait(TIMEOUT).fate is Fate.DONE
            assert answering.tokens == whole_answer(whole, prompt(length), COUNT, frozenset())[0]


@pytest.mark.parametrize('family', sorted({*FAMILIES} - {'llama'}))
def test_families(tmp_path, family):
    extra = {'sliding_window': 24} if family in WITH_WINDOW else {}
    extra |= {'query_pre_attn_scalar': 8} if family in ('gemma2', 'gemma3_text') else {}
    manifest, store, whole = tiny_model(tmp_path, family, **extra)
    given = costs(manifest, 2)
    with LocalLanguage(given, 'a', Scripted(given, 2, True), {'a': store}, times=STEADY) as local:
        local.wait_ready()
        for length in (2, 40):
            check(local, whole, length)


def test_what_a_family_does_not_read_changes_nothing(tmp_path):
    """Keys of other families in a configuration, which the library passes over."""
    manifest, store, whole = tiny_model(
        tmp_path, residual_multiplier=0.3, embedding_multiplier=4.0, logits_scaling=8.0,
        final_logit_softcapping=0.5, position_embedding_type='nope')
    given = costs(manifest, 1)
    with LocalLanguage(given, 'a', Scripted(given, 1, False), {'a': store}, times=STEADY) as local:
        local.wait_ready()
        check(local, whole, 9)


def test_layers_may_know_no_positions(tmp_path):
    manifest, store, whole = tiny_model(tmp_path, 'granitemoehybrid', position_embedding_type=None)
    with LocalLanguage(costs(manifest, 1), 'a', Scripted(costs(manifest, 1), 1, False),
                       {'a': store}, times=STEADY) as local:
        local.wait_ready()
        check(local, whole, 9)


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_half_precision_goes_through(tmp_path, dtype):
    manifest, store, whole = tiny_model(tmp_path, dtype=dtype)
    given = costs(manifest, 2)
    with LocalLanguage(given, 'a', Scripted(given, 2, True), {'a': store}, times=STEADY) as local:
        local.wait_ready()
        logits: list[torch.Tensor] = []
        answering = local.ask(prompt(9), 1, logits)
        assert answering.wait(TIMEOUT).fate is Fate.DONE
        _, wanted = whole_answer(whole, prompt(9), 1, frozenset())
        assert logits[0].sub(wanted[0]).abs().max() < 0.05 * wanted.abs().max()
