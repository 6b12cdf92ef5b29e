# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Real weights: SmolLM2, from a GGUF file, over three devices; text, schema and stop texts."""
from __future__ import annotations

from dataclasses import replace
import json
import threading

from language_models import costs, plan_of, Scripted, STEADY
import pytest

from intradp_lab.language.reference import whole_answer, whole_model
from intradp_ros.blobs.store import BlobStore
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_requests import (
    ChatTurn,
    Piece,
    Sampling,
    TextEnd,
    TextRequest,
)
from intradp_ros.systems.language.drafts import Pace
from intradp_ros.systems.language.head import HeadPolicy
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.kernels import kernels
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.role import LanguageOptions
from intradp_ros.systems.language.smollm2 import smollm2

TIMEOUT = 120.0
QUESTIONS = ('What is the capital of France?', 'Name a colour.')
SCHEMA = {'type': 'object', 'properties': {'colour': {'enum': ['red', 'green']}},
          'required': ['colour'], 'additionalProperties': False}


@pytest.fixture(scope='module')
def fleet(tmp_path_factory):
    store = BlobStore(tmp_path_factory.mktemp('smollm2'), 1 << 40)
    manifest = import_model(smollm2(), store.put)
    given = replace(costs(manifest, 3, tokens=512), lane=64)
    with LocalLanguage(given, 'a', Scripted(given, 5, True), {'a': store}, times=STEADY) as local:
        local.wait_ready(TIMEOUT)
        assert plan_of(local).streamed('b')
        yield local, manifest, store


def asked(local: LocalLanguage, request: TextRequest) -> tuple[str, TextEnd]:
    heard, over = [], threading.Event()

    def hear(item):
        heard.append(item)
        if isinstance(item, TextEnd):
            over.set()
    local.head.submit(request, hear)
    assert over.wait(TIMEOUT)
    return ''.join(item.text for item in heard if isinstance(item, Piece)), heard[-1]


def test_answers_are_those_of_one_process(fleet):
    local, manifest, store = fleet
    whole = whole_model(manifest, store)
    for question in QUESTIONS:
        tokens = list(local.head.tokenizer.apply_chat_template(
            [{'role': 'user', 'content': question}], add_generation_prompt=True, tokenize=True,
            return_dict=False))
        wanted, logits = whole_answer(whole, tokens, 16, frozenset(
            (local.head.tokenizer.eos_token_id,)))
        found: list = []
        answering = local.ask(tokens, 16, found)
        assert answering.wait(TIMEOUT).fate is Fate.DONE
        assert answering.tokens == wanted
        assert max(float((a - b).abs().max()) for a, b in zip(found, logits)) < 1e-4
        assert answering.text == local.head.tokenizer.decode(wanted, skip_special_tokens=True)


def test_texts_stops_seeds_and_schemas(fleet):
    local, *_ = fleet
    chat = (ChatTurn('user', QUESTIONS[0]),)
    text, end = asked(local, TextRequest(chat, 16))
    assert 'Paris' in text and end.finish_reason == 'stop'
    cut, end = asked(local, TextRequest(chat, 16, stop=('Par', 'xyz')))
    assert cut == text[:text.index('Par')] and end.finish_reason == 'stop'
    short, end = asked(local, TextRequest(chat, 3))
    assert text.startswith(short) and end.finish_reason == 'length'
    drawn = [asked(local, TextRequest('A robot', 8, Sampling(1.0, seed=seed)))[0]
             for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    answer, end = asked(local, TextRequest((ChatTurn('user', QUESTIONS[1]),), 40,
                                           schema=json.dumps(SCHEMA)))
    assert end.finish_reason == 'stop' and json.loads(answer)['colour'] in ('red', 'green')
    with pytest.raises(ValueError, match='schema'):
        local.head.submit(TextRequest('x', schema='{"type": 5}'), lambda item: None)


@pytest.mark.skipif(kernels().library is None, reason='the kernels were not compiled')
def test_texts_stops_seeds_and_schemas_are_the_same_with_drafts(fleet, monkeypatch):
    _, manifest, store = fleet
    monkeypatch.setattr(Pace, 'worthwhile', lambda self, tokens, drawn, chance, most: most)
    listed = 'red, green, red, green, red, green, red,'
    colours = {'type': 'array', 'minItems': 6, 'maxItems': 6, 'items': {'enum': ['red', 'green']}}
    requests = (
        TextRequest(listed, 24), TextRequest(listed, 24, stop=('green, green, green',)),
        TextRequest(listed, 24, Sampling(0.6, seed=5)),
        TextRequest(f'{listed} as a list of JSON: ', 40, schema=json.dumps(colours)))
    found = []
    for drafts in (0, 7):
        given = costs(manifest, 1, tokens=512)
        with LocalLanguage(given, 'a', Scripted(given, 1, False), {'a': store}, LanguageOptions(
                policy=HeadPolicy(drafts=drafts)), times=STEADY) as local:
            local.wait_ready(TIMEOUT)
            found.append([(text, end.finish_reason, end.completion_tokens)
                          for text, end in (asked(local, request) for request in requests)])
            state = local.head.state()
    assert found[0] == found[1]
    assert [reason for _, reason, _ in found[0]] == ['length', 'stop', 'length', 'stop']
    assert state.accepted_tokens > 15
