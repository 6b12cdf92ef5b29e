# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""An error has an owner: a request may end by it, and the next one is answered."""
from __future__ import annotations

from collections.abc import Iterator
import importlib
import json
from pathlib import Path
import time
from typing import Any

from injected import Injector, Panic
from language_models import costs, even_plan, plan_of, Scripted, STEADY, tiny_model
import pytest
from tiny_language_model import reference, save_tiny_model
from tokenizers import decoders, models, Tokenizer
import torch
from waiting import wait_for

from intradp_lab.language.reference import whole_answer
from intradp_ros.blobs.store import BlobStore
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_requests import ChatTurn, Sampling, TextRequest
from intradp_ros.systems.language.families import library
from intradp_ros.systems.language.grammar import check_schema, Grammars, UnmetSchemaError
from intradp_ros.systems.language.head import Head, HeadPolicy
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.local_fleet import Answering, LocalLanguage
from intradp_ros.systems.language.role import LanguageOptions
from intradp_ros.systems.language.schema_check import endless_reference

TIMEOUT = 60.0
ENDED = (Fate.DONE, Fate.RESUMED)
SCHEMA = json.dumps({'type': 'object', 'properties': {'a': {'enum': ['x', 'y']}},
                     'required': ['a'], 'additionalProperties': False,
                     'x-guidance': {'whitespace_flexible': False}})
LANGUAGE = [importlib.import_module(f'intradp_ros.systems.language.{name}') for name in (
    'engine', 'head', 'page_table', 'sampler', 'grammar', 'answer_text', 'actions', 'block_math',
    'fused_blocks', 'slots', 'lanes', 'segment_plan', 'prompts')]
REQUESTS = [importlib.import_module(f'intradp_ros.runtime.requests.{name}')
            for name in ('admission',)]
#: What ends a loop for good, or is only called to end one.
LEFT_OUT = ('engine.StageEngine._run', 'engine.StageEngine._fell', 'engine.StageEngine.close',
            'head.Head._look', 'head.Head.close', 'slots.Loader._run', 'slots.Loader.close')


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp('model'))


def fleet(folder: Path, count: int = 1, **policy: Any) -> LocalLanguage:
    store = BlobStore(folder / 'blobs', 1 << 40)
    manifest = import_model(folder, store.put)
    given = costs(manifest, count)
    local = LocalLanguage(given, 'a', Scripted(given, 2, True), {'a': store}, LanguageOptions(
        policy=HeadPolicy(patience=0.4, **policy)), times=STEADY)
    local.wait_ready()
    return local


def asked(head: Head, request: TextRequest) -> Answering:
    answering = Answering()
    answering.cancel = head.submit(request, answering.heard)
    return answering


def requests() -> list[TextRequest]:
    """Return requests that reach all of a loop: a chat, a schema, stop texts, a long prompt."""
    return [
        TextRequest((ChatTurn('user', 'hello'),), 6, Sampling(1.0, 20, 0.9, 3, 0.01, 1.1, 0.1, 0.1,
                                                              ((5, 1.0),)), ('zq',), logprobs=2),
        TextRequest('a model', 12, schema=SCHEMA),
        TextRequest('weights of a model ' * 12, 5, min_tokens=2)]


def sites(injector: Injector, local: LocalLanguage) -> list[tuple[str, int, bool]]:
    """
    Return the calls that requests make: each function's first, second and one in the middle.

    In addition the first ones of a change of plans, which are marked.
    """
    found = []
    for changes in (False, True):
        injector.arm('', 0, Panic)
        if changes:
            change_plan(local)
        else:
            for request in requests():
                asked(local.head, request).wait(TIMEOUT)
        found += [(name, number, changes) for name, count in sorted(injector.calls.items())
                  for number in sorted(({1} if changes else {1, 2, count // 2})
                                       & set(range(1, count + 1)))]
    return found


def change_plan(local: LocalLanguage) -> None:
    """Let another plan be used."""
    before, plan = local.coordinator.id, plan_of(local)
    names = sorted(local.devices)
    plans = [even_plan(local.costs, names, segments, True) for segments in (1, 2)]
    local.coordinator.propose(plans[plan.slots == plans[0].slots])
    wait_for(lambda: local.coordinator.id != before)
    time.sleep(0.1)


@pytest.mark.parametrize('threads, count', [
    (('engine-a', 'head-deadlines', 'loader-a'), 1), (('engine-b', 'loader-b'), 2)],
    ids=['head', 'worker'])
@pytest.mark.parametrize('part', [12, pytest.param(1, marks=pytest.mark.slow)],
                         ids=['some', 'each'])
def test_whatever_raises_the_next_request_is_answered(folder: Path, threads: tuple[str, ...],
                                                      count: int, part: int) -> None:
    """Each function that a head's and a worker's loops call raises, or every twelfth one."""
    _, text = reference(folder, 'a model of weights', 8)
    injector = Injector(threads)
    trouble, raised = [], 0
    with injector.inside(LANGUAGE + REQUESTS, LANGUAGE + REQUESTS, LEFT_OUT), \
            fleet(folder, count) as local:
        found = sites(injector, local)
        assert sum(not changes for _, _, changes in found) > (100 if count == 1 else 30)
        assert {'head.Head.restart', 'engine.StageEngine._build'} <= {
            name for name, _, changes in found if changes} or count == 2
        step = -(-part // count)  # a worker has fewer
        found = found[int(time.time()) % step::step]
        for place, (name, number, changes) in enumerate(found):
            injector.arm(name, number, Panic if place % 3 == 0 else RuntimeError)
            if changes:
                change_plan(local)
            hit = [asked(local.head, request) for request in requests()]
            try:
                ends = [answering.wait(TIMEOUT) for answering in hit]
                refused = [end for end in ends if end.fate not in ENDED]
                if len(refused) > 1 or any('injected' not in end.reason for end in refused):
                    trouble.append((name, number, refused))
                injector.disarm()
                raised += injector.raised
                last = asked(local.head, TextRequest('a model of weights', 8))
                end = last.wait(TIMEOUT)
                if end.fate not in ENDED or last.text != text:
                    trouble.append((name, number, end, last.text))
            except TimeoutError as error:
                trouble.append((name, number, error))
                break
        state = local.head.state()
        assert (state.serving, state.waiting) == (0, 0)
        assert local.head._seats.table.free == local.head._seats.table.pages
    assert not trouble
    # Others are called only while nothing is asked, or not so often once pages are shared.
    assert raised > (0.6 if part == 1 else 0.25) * len(found)


@pytest.fixture(scope='module')
def served(folder: Path) -> Iterator[LocalLanguage]:
    with fleet(folder, chunk=16) as local:
        yield local


def answers_on(local: LocalLanguage, folder: Path) -> None:
    """Check that a request is answered right, as if nothing had been."""
    tokens, text = reference(folder, 'a model of weights', 8)
    answering = asked(local.head, TextRequest('a model of weights', 8))
    assert answering.wait(TIMEOUT).fate in ENDED
    assert (answering.tokens, answering.text) == (tokens, text)


RAISES = "{{ raise_exception('Conversation roles must alternate') }}"


@pytest.mark.parametrize('template, reason', [
    (RAISES, 'roles must alternate'), ('{{ messages[0].content.nothing.more }}', 'template'),
    ('{% for %}', 'template'), ('{{ 1 / 0 }}', 'division'), (None, 'no chat template'),
    ({'rag': RAISES, 'short': RAISES}, 'named rag, short and none named default: name one so'),
    ('{% for m in messages %}{{ m.content }}{% endfor %}' + '{{ "x" * 100000 }}', 'a prompt of')])
def test_a_template_that_raises_refuses_its_request(served: LocalLanguage, folder: Path,
                                                    template: Any, reason: str) -> None:
    tokenizer, before = served.head.tokenizer, served.head.tokenizer.chat_template
    tokenizer.chat_template = template
    try:
        with pytest.raises(ValueError, match=reason) as error:
            asked(served.head, TextRequest((ChatTurn('system', 'x'), ChatTurn('user', 'y'))))
        assert '\n' not in str(error.value)
    finally:
        tokenizer.chat_template = before
    answers_on(served, folder)


@pytest.mark.parametrize('kind', [RuntimeError, MemoryError, Panic, KeyError, UnicodeError])
@pytest.mark.parametrize('place', ['__call__', 'apply_chat_template', 'decode'])
def test_an_error_of_the_tokenizer_refuses_its_request(
        served: LocalLanguage, folder: Path, monkeypatch: pytest.MonkeyPatch, place: str,
        kind: type[BaseException]) -> None:
    other = asked(served.head, TextRequest('a model', 60))
    while len(other.tokens) < 2:
        time.sleep(0.001)
    calls = []

    def broken(*_: Any, **__: Any) -> Any:
        calls.append(place)
        raise kind('this is odd')
    prompt: Any = (ChatTurn('user', 'hello'),) if place == 'apply_chat_template' else 'hello'
    with monkeypatch.context() as patch:
        if place != 'decode':
            patch.setattr(type(served.head.tokenizer), place, broken)
            with pytest.raises(ValueError, match='this is odd|KeyError'):
                asked(served.head, TextRequest(prompt))
        else:
            texts = served.head._prompts._texts[False]
            patch.setitem(served.head._prompts._texts, False, type(texts)(broken))
            with pytest.raises(ValueError, match='this is odd|KeyError'):
                asked(served.head, TextRequest(prompt, 5, skip_special_tokens=False))
    assert calls
    assert other.wait(TIMEOUT).fate in ENDED and len(other.tokens) == 60
    answers_on(served, folder)


class Trouble:
    """Functions of a fleet that fail for a token, for prompts of nine tokens, or now and then."""

    def __init__(self, local: LocalLanguage) -> None:
        self._head, self._engine = local.head, local.roles['a'].engine
        self._embed, self._logits = self._head._embed, self._head._logits
        self._bind, self._calls = self._engine.blocks.bind, 0

    def embedding(self, ids: torch.Tensor) -> torch.Tensor:
        if 77 in ids.tolist():
            raise IndexError('index out of range in self')
        return self._embed(ids)

    def bind(self, number: int, tensors: Any, need: Any = None) -> Any:
        run_block = self._bind(number, tensors, need)

        def run(hidden: torch.Tensor, run: Any) -> torch.Tensor:
            if any(part.count == 9 for part in run.lane.parts):
                raise MemoryError('no memory for a mask')
            return run_block(hidden, run)
        return run

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        self._calls += 1
        if len(hidden) > 1:
            raise RuntimeError('a head that computes no batches')
        return self._logits(hidden)


@pytest.mark.parametrize('place', ['embedding', 'block', 'head'])
def test_a_request_that_cannot_be_computed_is_refused_and_all_others_are_answered(
        tmp_path: Path, place: str) -> None:
    """Embedding, blocks and head fail for one request, wherever it is in a batch."""
    manifest, store, whole = tiny_model(tmp_path, max_position_embeddings=512)
    given = costs(manifest, 2)
    with LocalLanguage(given, 'a', Scripted(given, 1, False), {'a': store}, LanguageOptions(
            policy=HeadPolicy(patience=0.4)), times=STEADY) as local:
        local.wait_ready()
        trouble, bad = Trouble(local), [5, 77, 3]
        if place == 'embedding':
            local.head._embed = trouble.embedding
        elif place == 'head':
            local.head._logits = trouble.logits
        else:
            local.roles['a'].engine.blocks.bind = trouble.bind
            local.coordinator.propose(Scripted(given, 2, True).plan(frozenset('ab'), 0.0).plan)
            time.sleep(1.0)
            bad = list(range(9))
        prompts = [[5, 17, 3, k] for k in range(6)]
        answerings = [local.ask(prompt, 10) for prompt in prompts[:3]]
        failing = local.ask(bad, 10)
        answerings += [local.ask(prompt, 10) for prompt in prompts[3:]]
        end = failing.wait(TIMEOUT)
        if place == 'head':
            assert end.fate in ENDED
        else:
            assert end.fate is Fate.REFUSED
            assert ('index out of range' if place == 'embedding' else 'mask') in end.reason
        for answering, prompt in zip(answerings, prompts):
            assert answering.wait(TIMEOUT).fate in ENDED
            assert answering.tokens == whole_answer(whole, prompt, 10, frozenset())[0]


def test_a_worker_that_cannot_compute_a_request_does_not_end_the_others(tmp_path: Path) -> None:
    """The head only sees that hidden states do not come, for whose sake it has to find out."""
    manifest, store, whole = tiny_model(tmp_path, max_position_embeddings=512)
    given = costs(manifest, 2)
    with LocalLanguage(given, 'a', Scripted(given, 1, False), {'a': store}, LanguageOptions(
            policy=HeadPolicy(patience=0.3)), times=STEADY) as local:
        local.wait_ready()
        trouble = Trouble(local)
        local.roles['b'].engine.blocks.bind = trouble.bind
        local.coordinator.propose(Scripted(given, 2, True).plan(frozenset('ab'), 0.0).plan)
        time.sleep(1.0)
        others = [local.ask([5, 17, 3, k], 25) for k in range(3)]
        failing = local.ask(list(range(9)), 10)
        for k, answering in enumerate(others):
            assert answering.wait(TIMEOUT).fate in ENDED
            assert answering.tokens == whole_answer(whole, [5, 17, 3, k], 25, frozenset())[0]
        more = local.ask([4, 5, 6], 10)  # that others get on says whose fault it is
        assert more.wait(TIMEOUT).fate in ENDED
        end = failing.wait(TIMEOUT)
        assert end.fate is Fate.REFUSED and 'did not come' in end.reason


def test_who_hears_and_raises_is_not_heard_of_by_others(served: LocalLanguage, folder: Path,
                                                        ) -> None:
    for kind in (RuntimeError, Panic):
        for when in (1, 2, 100):
            heard = []

            def hear(event: Any, heard: list[Any] = heard, when: int = when,
                     kind: type[BaseException] = kind) -> None:
                heard.append(event)
                if len(heard) >= when:
                    raise kind('gone')
            served.head.submit(TextRequest('a model', 5), hear)
            answers_on(served, folder)


def test_a_schema_for_a_vocabulary_larger_than_the_tokenizers(tmp_path: Path, folder: Path,
                                                              ) -> None:
    """As of Qwen and Gemma 3, whose matrices are padded; and the other way round."""
    for more in (27, -40):
        path = save_tiny_model(tmp_path / str(more), padding=more)
        with fleet(path) as local:
            answering = asked(local.head, TextRequest('a', 40, schema=SCHEMA))
            assert answering.wait(TIMEOUT).finish_reason == 'stop'
            assert json.loads(answering.text)['a'] in ('x', 'y')
            other = asked(local.head, TextRequest('a', 5, Sampling(1.0, seed=1)))
            assert other.wait(TIMEOUT).fate is Fate.DONE


@pytest.mark.parametrize('schema, reason', [
    ('5', 'a schema is a JSON object'), ('{"type": 5}', 'type must be'), ('{', 'cannot be used'),
    (json.dumps({'type': 'string', 'allOf': [
        {'pattern': f'.*a.{{{k}}}b.*'} for k in range(20)]}), 'more than 2 s'),
    ('{"type": "integer", "multipleOf": 170001}', 'too much memory'),
    ('{"oneOf": [{"type": "object"}, {"type": "array"}]}', None)])
def test_a_schema_that_cannot_be_used_or_costs_too_much_is_refused(
        served: LocalLanguage, folder: Path, schema: str, reason: str | None) -> None:
    begin = time.monotonic()
    if reason:
        with pytest.raises(ValueError, match=reason):
            asked(served.head, TextRequest('x', schema=schema))
    assert time.monotonic() - begin < 40
    answers_on(served, folder)


def test_a_schema_that_only_endless_answers_meet_is_refused() -> None:
    """By its `$ref`; what ends somewhere is taken."""
    def with_a(a: Any, **more: Any) -> str:
        return json.dumps({'$defs': {'a': a}, '$ref': '#/$defs/a', **more})
    a = {'$ref': '#/$defs/a'}
    of_a = {'type': 'object', 'properties': {'a': a}, 'additionalProperties': False}
    many = {'type': 'array', 'items': a}
    endless = [a, {'allOf': [a]}, {'anyOf': [a, a]}, {**of_a, 'required': ['a']},
               {**many, 'minItems': 1}, {'type': 'array', 'prefixItems': [a], 'minItems': 1}]
    for schema in (*map(with_a, endless),
                   '{"$defs": {"a": {"$ref": "#"}}, "$ref": "#/%24defs/a"}'):
        assert endless_reference(json.loads(schema))
    with pytest.raises(ValueError, match=r"cannot be used: \$ref '#/\$defs/a' leads to itself"):
        check_schema(with_a(a))
    for fine in (of_a, many, {'anyOf': [a, {'type': 'null'}]}, {**many, 'minItems': 'a'},
                 {'type': 'object', 'required': 5}):
        assert not endless_reference(json.loads(with_a(fine)))
    check_schema(with_a(of_a))


def test_a_schema_that_needs_what_no_token_writes_is_refused() -> None:
    """Before the answer begins; where there is another way to meet it, it is taken."""
    def of(value: Any, key: str = 'a') -> dict[str, Any]:
        return {'type': 'object', 'properties': {key: value}, 'required': [key]}
    letters = [chr(code) for code in range(33, 127) if chr(code) != '-']
    made = Tokenizer(models.BPE({letter: code for code, letter in enumerate(letters)}, []))
    made.decoder = decoders.ByteLevel()
    grammars = Grammars(library().PreTrainedTokenizerFast(tokenizer_object=made), 93)
    for unmet in ({'const': 'é'}, {'enum': ['é', ['ü']]}, of({'type': 'null'}, 'é'),
                  of(of({'const': {'b': 'é'}})), {'allOf': [{'const': 'é'}]},
                  {'$defs': {'e': {'const': 'é'}}, 'anyOf': [{'$ref': '#/$defs/e'}]}):
        with pytest.raises(ValueError, match='the tokenizer of this model cannot write .*é'):
            grammars.make(json.dumps(unmet))
    for met in ({'enum': ['é', 'b']}, {'const': 'a\n'}, {'anyOf': [{'const': 'é'}, of(True)]},
                {**of(True, 'é'), 'required': []}):
        grammars.make(json.dumps(met)).allowed()

    def text(pattern: str, **more: Any) -> dict[str, Any]:
        return of({'type': 'string', 'pattern': pattern, **more})
    names = {'type': 'object', 'patternProperties': {'^é': {}}, 'additionalProperties': False}
    for unmet in (text('^é$'), text('^[a-c]{3}é'), {**names, 'minProperties': 1},
                  of({'type': 'string', 'format': 'date'})):
        with pytest.raises(ValueError, match='the tokenizer of this model cannot write what fol'):
            grammars.make(json.dumps(unmet))
    for met in (text('^(é|b)$'), text('^[^a]*$', minLength=400), names,
                of({'type': 'string', 'format': 'email'}), {}):
        grammars.make(json.dumps(met)).allowed()
    begun = grammars.make(json.dumps(text('^(aé|b)$')))  # which of them shows on the way
    with pytest.raises(UnmetSchemaError):
        for token in made.encode('{"a":"a"').ids:
            assert begun.allowed()[token]
            begun.take(token)
    grammars.close()
    made = Tokenizer(models.BPE({letter: code for code, letter in enumerate(letters[:50])}, []))
    made.decoder = decoders.ByteLevel()
    grammars = Grammars(library().PreTrainedTokenizerFast(tokenizer_object=made), 50)
    with pytest.raises(ValueError, match="cannot write what follows ''"):  # without a {
        grammars.make('{"type": "object"}')
    grammars.close()


def test_a_grammar_that_fails_on_the_way_refuses_its_request(
        served: LocalLanguage, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, kind in (('allowed', Panic), ('take', UnmetSchemaError)):
        with monkeypatch.context() as patch:
            made = Grammars.make

            def broken(self: Any, schema: str, place: str = place, made: Any = made,
                       kind: Any = kind) -> Any:
                grammar = made(self, schema)
                count = []

                def fails(*_: Any) -> Any:
                    count.append(1)
                    if len(count) == 3:
                        raise kind('row item limit')
                    return getattr(type(grammar), place)(grammar, *_)
                setattr(grammar, place, fails)
                return grammar
            patch.setattr(Grammars, 'make', broken)
            answering = asked(served.head, TextRequest('x', 40, schema=SCHEMA))
            end = answering.wait(TIMEOUT)
            assert end.fate is Fate.REFUSED and 'row item limit' in end.reason
            assert end.wrong is (kind is UnmetSchemaError)  # the request's, not the server's
        answers_on(served, folder)
