# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The endpoint before a real head: fields do what they say, as one process computes it."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from language_models import costs, Scripted, STEADY
import openai
import pytest
from tiny_language_model import save_tiny_model
import torch

from intradp_ros.blobs.store import BlobStore
from intradp_ros.systems.language.families import library
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.role import LanguageOptions
from intradp_ros.web.openai_api import openai_app
from intradp_ros.web.web_server import WebServer

PROMPT = 'a model of weights'
PADDED = 27


class Endpoint:
    """A served tiny model, and the whole of it."""

    def __init__(self, folder: Path, local: LocalLanguage) -> None:
        transformers = library()
        self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
        self.whole: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32)
        self.server = WebServer(openai_app(local.head), '127.0.0.1', 0)
        self.name = local.head.name
        self.client = openai.OpenAI(base_url=f'{self.server.url}/v1', api_key='none',
                                    max_retries=0, timeout=60.0)

    def complete(self, prompt: Any = PROMPT, **options: Any) -> Any:
        extra = {key: options.pop(key) for key in list(options) if key in (
            'stop_token_ids', 'ignore_eos', 'min_tokens', 'repetition_penalty', 'repeat_penalty',
            'n_predict', 'top_k', 'min_p')}
        return self.client.completions.create(**{
            'model': self.name, 'prompt': prompt, 'max_tokens': 12, 'temperature': 0,
            'extra_body': extra, **options})

    def chat(self, **options: Any) -> Any:
        return self.client.chat.completions.create(**{
            'model': self.name, 'messages': [{'role': 'user', 'content': 'hello'}],
            'max_tokens': 12, 'temperature': 0, **options})

    def generated(self, prompt: str = PROMPT, **options: Any) -> str:
        given = torch.tensor([self.tokenizer(prompt).input_ids])
        with torch.inference_mode():
            made = self.whole.generate(given, **{'max_new_tokens': 12, 'do_sample': False,
                                                 'pad_token_id': 0, **options})
        return str(self.tokenizer.decode(made[0, given.shape[1]:], skip_special_tokens=True))

    def logarithms(self, prompt: str, tokens: list[int]) -> torch.Tensor:
        """Return those of the chances of all tokens at each place of an answer (tokens, all)."""
        given = self.tokenizer(prompt).input_ids
        with torch.inference_mode():
            logits: torch.Tensor = self.whole(torch.tensor([given + tokens])).logits[0]
        return logits[len(given) - 1:-1].double().log_softmax(1)


@pytest.fixture(scope='module')
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    folder = save_tiny_model(tmp_path_factory.mktemp('model'), padding=PADDED)
    store = BlobStore(folder / 'blobs', 1 << 40)
    given = costs(import_model(folder, store.put), 1)
    with LocalLanguage(given, 'a', Scripted(given, 1, False), {'a': store}, LanguageOptions(),
                       times=STEADY) as local:
        local.wait_ready()
        made = Endpoint(folder, local)
        yield made
        made.server.close()


@pytest.mark.parametrize('stream', [False, True])
def test_chances_and_bytes_are_those_of_the_text(endpoint: Endpoint, stream: bool) -> None:
    """Of random weights most tokens are single bytes of no whole character."""
    answer = endpoint.chat(logprobs=True, top_logprobs=4, max_tokens=30, stream=stream)
    choices = [chunk.choices[0] for chunk in answer] if stream else answer.choices
    said = [one for choice in choices if choice.logprobs for one in choice.logprobs.content]
    text = ''.join((choice.delta if stream else choice.message).content or ''
                   for choice in choices)
    assert len(said) == 30
    assert b''.join(bytes(one.bytes) for one in said).decode(errors='replace') == text
    prompt = '<user>hello<assistant>'
    given = torch.tensor([endpoint.tokenizer(prompt).input_ids])
    with torch.inference_mode():
        tokens = endpoint.whole.generate(given, max_new_tokens=30, do_sample=False,
                                         pad_token_id=0)[0, given.shape[1]:].tolist()
    wanted = endpoint.logarithms(prompt, tokens)
    for place, one in enumerate(said):
        best = wanted[place].topk(4)
        assert one.logprob == pytest.approx(float(best.values[0]), abs=1e-4)
        assert [likely.logprob for likely in one.top_logprobs] == pytest.approx(
            best.values.tolist(), abs=1e-4)


def test_offsets_of_a_completion_go_on_over_chunks(endpoint: Endpoint) -> None:
    whole = endpoint.complete(logprobs=0, max_tokens=20).choices[0]
    parts = [chunk.choices[0] for chunk in endpoint.complete(
        logprobs=0, max_tokens=20, stream=True)]
    for key in ('text_offset', 'tokens', 'token_logprobs'):
        assert [item for part in parts if part.logprobs for item in getattr(
            part.logprobs, key)] == getattr(whole.logprobs, key)
    assert ''.join(part.text for part in parts) == whole.text
    assert whole.logprobs.text_offset == sorted(whole.logprobs.text_offset)


def test_answers_to_one_prompt_count_it_once(endpoint: Endpoint) -> None:
    one = endpoint.complete(temperature=1.0, seed=7).usage.prompt_tokens
    several = endpoint.complete(n=3, temperature=1.0, seed=7)
    assert several.usage.prompt_tokens == one
    assert len({choice.text for choice in several.choices}) > 1
    assert several.choices[0].text == endpoint.complete(temperature=1.0, seed=7).choices[0].text
    assert several.choices[2].text == endpoint.complete(temperature=1.0, seed=9).choices[0].text
    twice = endpoint.complete([PROMPT, PROMPT], n=2)
    assert twice.usage.prompt_tokens == 2 * one
    chunks = list(endpoint.complete([PROMPT, PROMPT], n=2, stream=True,
                                    stream_options={'include_usage': True}))
    assert chunks[-1].usage.prompt_tokens == 2 * one and not chunks[-1].choices
    assert all('usage' in chunk.model_fields_set and chunk.usage is None for chunk in chunks[:-1])
    assert 'usage' not in next(iter(endpoint.complete(stream=True))).model_fields_set


def test_fields_are_as_generate_has_them(endpoint: Endpoint) -> None:
    first = endpoint.whole.generate(torch.tensor([endpoint.tokenizer(PROMPT).input_ids]),
                                    max_new_tokens=12, do_sample=False, pad_token_id=0)[0].tolist()
    first = first[-12:]
    for asked, options in (
            ({'repetition_penalty': 1.4}, {'repetition_penalty': 1.4}),
            ({'repeat_penalty': 1.4, 'repetition_penalty': 1.4}, {'repetition_penalty': 1.4}),
            ({'logit_bias': {str(first[0]): -100, '390': 5.5}, 'repetition_penalty': 1.2},
             {'sequence_bias': [[[first[0]], -100.0], [[390], 5.5]], 'repetition_penalty': 1.2}),
            ({'stop_token_ids': [first[5]]}, {'eos_token_id': [0, first[5]]}),
            ({'stop_token_ids': [first[5]], 'min_tokens': 8},
             {'eos_token_id': [0, first[5]], 'min_new_tokens': 8}),
            ({'ignore_eos': True, 'logit_bias': {'0': 100}},
             {'eos_token_id': None, 'sequence_bias': [[[0], 100.0]]}),
            ({'n_predict': 5, 'max_tokens': 5}, {'max_new_tokens': 5})):
        wanted = endpoint.generated(**options)
        if 'stop_token_ids' in asked and not wanted.startswith(endpoint.generated()):
            end = endpoint.tokenizer.decode([first[5]])
            wanted = wanted.removesuffix(end)
        assert endpoint.complete(**asked).choices[0].text == wanted, asked


def test_a_special_token_that_is_a_stop_text_ends_an_answer(endpoint: Endpoint) -> None:
    """Though it is left out of the text."""
    choice = endpoint.complete(stop=['<end>'], ignore_eos=True, logit_bias={'0': 100}).choices[0]
    assert choice.finish_reason == 'stop' and choice.text == ''


def test_a_token_of_the_padding_is_a_token_without_a_text(endpoint: Endpoint) -> None:
    token = len(endpoint.tokenizer) + PADDED - 1
    answer = endpoint.complete(logit_bias={str(token): 1000}, logprobs=1)
    assert answer.choices[0].text == '' and answer.usage.completion_tokens == 12
    assert endpoint.complete([token, 5]).usage.prompt_tokens == 2
    stopped = endpoint.complete(logit_bias={str(token): 1000}, extra_body={
        'stop_token_ids': [token]})
    assert stopped.choices[0].finish_reason == 'stop' and not stopped.choices[0].text


@pytest.mark.parametrize('named, options', [
    ('logit_bias', {'logit_bias': {'400': 1}}), ('logit_bias', {'logit_bias': {'-1': 1}}),
    ('stop_token_ids', {'stop_token_ids': [400]}), ('prompt', {'prompt': [400]}),
    ('prompt', {'prompt': [[1], []]}),
    ('stream_options', {'stream_options': {'include_usage': True}}),
    ('repeat_penalty', {'repetition_penalty': 1.1, 'repeat_penalty': 1.2}),
    ('n_predict', {'n_predict': 4}), ('best_of', {'n': 1, 'best_of': 3}),
    ('echo', {'echo': True, 'logprobs': 1}), ('suffix', {'suffix': 'end'}),
    ('min_tokens', {'min_tokens': 13}), ('logprobs', {'logprobs': 21}),
    ('max_tokens has 401 digits', {'max_tokens': 10 ** 400}),
    ('top_k has 500 digits', {'top_k': 1 - 10 ** 500})])
def test_what_cannot_be_is_refused_by_name(endpoint: Endpoint, named: str, options: Any) -> None:
    with pytest.raises(openai.BadRequestError, match=named):
        endpoint.complete(**options)


@pytest.mark.parametrize('named, extra', [
    ('enable_thinking', {'enable_thinking': True}),
    ('enable_thinking', {'enable_thinking': True, 'chat_template_kwargs': {
        'enable_thinking': False}}),
    ('max_completion_tokens', {'max_completion_tokens': 3}),
    ('continue_final_message', {'add_generation_prompt': True, 'continue_final_message': True}),
    ('top_logprobs', {'top_logprobs': 2}), ('tool_calls', {'messages': [
        {'role': 'assistant', 'content': None, 'tool_calls': [{'id': 'a'}]}]}),
    ('tool_choice', {'tool_choice': 'required'}), ('prediction', {'prediction': {'type': 'x'}}),
    ('response_format', {'response_format': {'type': 'text', 'json_schema': {'schema': {}}}}),
    ('response_format', {'response_format': {'type': 'json_object', 'schema': {}},
                         'guided_json': {'const': 5}}),
    ('field of its own', {'chat_template_kwargs': {'add_generation_prompt': False}}),
    ('guided_regex', {'guided_regex': 'a*'}), ('echo', {'echo': True})])
def test_what_a_chat_cannot_have_is_refused_by_name(endpoint: Endpoint, named: str, extra: Any,
                                                    ) -> None:
    with pytest.raises(openai.BadRequestError, match=named):
        endpoint.chat(extra_body=extra)


def test_what_changes_nothing_is_taken(endpoint: Endpoint) -> None:
    drawn = {'temperature': 1.0, 'seed': 3}
    assert endpoint.complete(**drawn, top_k=1 << 20).choices == endpoint.complete(**drawn).choices
    assert endpoint.complete(**drawn, top_p=0).choices == endpoint.complete().choices
    empty = endpoint.chat(messages=[{'role': 'user', 'content': ''}])
    assert empty.choices[0].message.content == endpoint.generated('<user><assistant>')
    wanted = endpoint.chat().choices[0].message.content
    assert endpoint.chat(extra_body={
        'echo': False, 'tools': [], 'tool_choice': 'none', 'logit_bias': {}, 'stop': [], 'n': 1,
        'top_k': -1, 'presence_penalty': 0, 'frequency_penalty': 0.0, 'logprobs': False,
        'user': 'me', 'max_completion_tokens': 12, 'response_format': {'type': 'text'},
        'modalities': ['text'], 'metadata': {'a': 'b'}, 'stream_options': None},
        ).choices[0].message.content == wanted


def test_a_path_that_is_not_there_is_refused_with_those_that_are(endpoint: Endpoint) -> None:
    with pytest.raises(openai.NotFoundError, match='no /v1/embeddings, but .*/v1/completions'):
        endpoint.client.embeddings.create(model=endpoint.name, input='a')


@pytest.mark.parametrize('field, value, reason', [
    ('temperature', '0.5', 'temperature: Input should be a valid number'),
    ('max_tokens', 1 << 30, r'within 1\.\.1048576, got 1073741824'), ('prompt', [], '1 to 16')])
def test_a_refusal_says_what_would_do(endpoint: Endpoint, field: str, value: Any, reason: str,
                                      ) -> None:
    with pytest.raises(openai.BadRequestError, match=reason):
        endpoint.complete(**{field: value})
