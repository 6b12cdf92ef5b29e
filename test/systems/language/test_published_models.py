# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Models as they are published: what the endpoint answers is what `generate` of the library makes.

Texts are those behind the prompt: of prompt and answer together, without what is the prompt's.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from language_models import costs, Scripted, STEADY, tiny_model
import openai
from published_models import CHATS, PROMPTS, PUBLISHED, save_published
import pytest
import torch

from intradp_ros.blobs.store import BlobStore
from intradp_ros.systems.language.families import FamilyError, library
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.role import LanguageOptions
from intradp_ros.web.openai_api import openai_app
from intradp_ros.web.web_server import WebServer

COUNT, CLOSE = 16, 1e-4
QUICKLY = ('Gemma 2',)


@dataclass(frozen=True)
class Generated:
    """What the library makes of a prompt: text, logarithms of chances, and whether it ended."""

    prompt: int
    text: str
    chances: list[float]
    ended: bool


class Whole:
    """A folder's model and tokenizer, as the library loads them."""

    def __init__(self, folder: Path) -> None:
        transformers = library()
        self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
        kind = getattr(transformers, transformers.AutoConfig.from_pretrained(
            folder).architectures[0])
        self._model: Any = kind.from_pretrained(folder, dtype=torch.float32).eval()

    def generated(self, tokens: list[int]) -> Generated:
        given = torch.tensor([tokens])
        with torch.inference_mode():
            made = self._model.generate(
                given, attention_mask=torch.ones_like(given), max_new_tokens=COUNT,
                do_sample=False, return_dict_in_generate=True, output_logits=True)
        every = made.sequences[0].tolist()
        new, ends = every[len(tokens):], self._model.generation_config.eos_token_id
        ended = new[-1] in (ends if isinstance(ends, list) else [ends])
        before = self.tokenizer.decode(tokens, skip_special_tokens=True)
        text = self.tokenizer.decode(every, skip_special_tokens=True)
        return Generated(len(tokens), text[len(before):], [
            float(logits[0].double().log_softmax(0)[token])
            for logits, token in zip(made.logits, new)][:len(new) - ended], ended)

    def chat(self, messages: list[dict[str, str]]) -> list[int]:
        return list(self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False))


@contextmanager
def served(folder: Path, devices: int) -> Iterator[openai.OpenAI]:
    """Serve a folder on devices of this process."""
    store = BlobStore(folder / 'blobs', 1 << 40)
    given = costs(import_model(folder, store.put, name='model'), devices)
    with LocalLanguage(given, 'a', Scripted(given, 1, False), {'a': store}, LanguageOptions(),
                       times=STEADY) as local:
        local.wait_ready()
        server = WebServer(openai_app(local.head), '127.0.0.1', 0)
        try:
            yield openai.OpenAI(base_url=f'{server.url}/v1', api_key='none', max_retries=0,
                                timeout=120.0)
        finally:
            server.close()


def check(wanted: Generated, answer: Any, text: str, chances: list[float]) -> None:
    assert answer.usage.prompt_tokens == wanted.prompt
    assert text == wanted.text
    assert (answer.choices[0].finish_reason == 'stop') == wanted.ended
    assert len(chances) == len(wanted.chances)
    assert all(abs(one - other) < CLOSE for one, other in zip(chances, wanted.chances))


@pytest.mark.parametrize('name', [name if name in QUICKLY else pytest.param(
    name, marks=pytest.mark.slow) for name in PUBLISHED])
def test_answers_of_a_published_model_are_those_of_the_library(tmp_path: Path, name: str) -> None:
    folder = save_published(tmp_path, name)
    whole = Whole(folder)
    asked: Mapping[str, Any] = {'model': 'model', 'max_tokens': COUNT, 'temperature': 0}
    with served(folder, 1 + len(name) % 3) as client:

        def streamed(prompt: str) -> str:
            return ''.join(chunk.choices[0].text for chunk in client.completions.create(
                prompt=prompt, stream=True, **asked) if chunk.choices)
        texts = []
        for prompt in PROMPTS:
            wanted = whole.generated(whole.tokenizer(prompt).input_ids)
            answer = client.completions.create(prompt=prompt, logprobs=1, **asked)
            said = answer.choices[0]
            check(wanted, answer, said.text, said.logprobs.token_logprobs)
            texts.append(wanted.text)
            assert wanted.ended or prompt != PROMPTS[0]
        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            assert list(pool.map(streamed, PROMPTS)) == texts
        for messages in CHATS.values():
            try:
                tokens = whole.chat(messages)
            except Exception as error:  # noqa: B902 - whatever a template raises
                with pytest.raises(openai.BadRequestError, match=str(error)):
                    client.chat.completions.create(messages=messages, **asked)
                continue
            chat = client.chat.completions.create(messages=messages, logprobs=True, **asked)
            check(whole.generated(tokens), chat, chat.choices[0].message.content or '',
                  [one.logprob for one in chat.choices[0].logprobs.content])


@pytest.mark.parametrize('family, rope', [
    ('phi3', {'rope_type': 'longrope', 'original_max_position_embeddings': 40,
              'short_factor': [1.0] * 4, 'long_factor': [9.0] * 4}),
    ('llama', {'rope_type': 'dynamic', 'factor': 8.0})])
def test_positions_are_scaled_by_no_more_than_the_context(tmp_path: Path, family: str,
                                                          rope: dict[str, Any]) -> None:
    """Of a longer text all positions have other frequencies."""
    manifest, store, model = tiny_model(tmp_path, family, rope_parameters={
        **rope, 'rope_theta': 1e4})
    tokens = list(range(5, 5 + manifest.context - 8))
    given = costs(manifest, 1)
    with torch.inference_mode():
        wanted = model(torch.tensor([tokens])).logits[0, -1]
    with LocalLanguage(given, 'a', Scripted(given, 1, False), {'a': store}, LanguageOptions(),
                       times=STEADY) as local:
        local.wait_ready()
        logits: list[torch.Tensor] = []
        local.ask(tokens, 1, logits).wait(60.0)
    assert (logits[0] - wanted).abs().max() < CLOSE


@pytest.mark.parametrize('name, more, reason', [
    ('Gemma 3', {'use_bidirectional_attention': True}, 'use_bidirectional_attention'),
    ('Qwen 3', {'is_causal': False}, 'is_causal'),
    ('SmolLM3', {'sliding_window': 8, 'layer_types': ['sliding_attention'] * 4},
     'use_sliding_window'),
    ('Mistral 0.1', {'sliding_window': 1}, 'a window of 1'),
    ('Gemma 3', {'sliding_window': 1}, 'a window of 1')])
def test_a_model_whose_tokens_see_others_than_we_compute_is_refused(
        tmp_path: Path, name: str, more: Mapping[str, Any], reason: str) -> None:
    folder, stored = save_published(tmp_path, name, **more), list[torch.Tensor]()
    with pytest.raises(FamilyError, match=reason):
        import_model(folder, lambda data: str(stored.append(data)))
    assert not stored
