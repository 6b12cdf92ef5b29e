# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Prompt and answer are what the library makes of all tokens, whatever the tokens are."""
from __future__ import annotations

from pathlib import Path
import random
from typing import Any

import pytest
from tiny_language_model import save_tiny_model
from tokenizers import AddedToken, decoders, models, normalizers, Tokenizer

from intradp_ros.systems.language.answer_text import AnswerText, token_bytes, token_texts
from intradp_ros.systems.language.families import library

WORDS = ('\u2581', 'a', 'b', '.', "'", 's', '\u2581a', '\u2581the', '\u2581\u2581', 'the',
         '\u00e9', '\u2581\u4f60', '\n', ',', '\u2581,')


def of_sentences() -> Any:
    """Return a tokenizer like Llama's: blanks are letters, characters may be bytes."""
    names = ['<unk>', '<s>', '</s>', *(f'<0x{byte:02X}>' for byte in range(256)), *WORDS]
    made = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, [],
                                unk_token='<unk>', byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend('\u2581'),
                                            normalizers.Replace(' ', '\u2581')])
    made.decoder = decoders.Sequence([
        decoders.Replace('\u2581', ' '), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(' ', 1, 0)])
    made.add_special_tokens([AddedToken(name, special=True) for name in ('<s>', '</s>', '<turn>')])
    return library().PreTrainedTokenizerFast(tokenizer_object=made, bos_token='<s>',
                                             eos_token='</s>')


@pytest.fixture(scope='module', params=['bytes', 'sentences', 'sentences that are cleaned'])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param == 'bytes':
        folder: Path = save_tiny_model(tmp_path_factory.mktemp('model'))
        return library().AutoTokenizer.from_pretrained(folder)
    made = of_sentences()
    made.clean_up_tokenization_spaces = 'cleaned' in request.param
    return made


def drawn(tokenizer: Any, rng: random.Random) -> list[int]:
    """Return tokens at random: words, special ones, characters in bytes, and bytes alone."""
    some: list[int] = []
    while len(some) < 14:
        kind = rng.random()
        if kind < 0.15:
            some += rng.choice([[tokenizer.eos_token_id], [len(tokenizer) - 1]])
        elif kind < 0.5:
            some += tokenizer(rng.choice(['\u00e9\u4f60 ', '\U0001f916', ' the', 'a .', "it 's"]),
                              add_special_tokens=False).input_ids
        else:
            some.append(rng.randrange(len(tokenizer)))
    return some


@pytest.mark.parametrize('skip', [True, False])
def test_pieces_are_what_the_library_decodes(tokenizer: Any, skip: bool) -> None:
    texts = token_texts(tokenizer, skip)
    rng, checked = random.Random(0), 0
    for number in range(150):
        prompt = tokenizer(rng.choice(
            ['a', 'the a,', ' \u4f60', 'a\n', 'the the ' * 20])).input_ids
        prompt += rng.choice([[], [tokenizer.eos_token_id]])
        answer = drawn(tokenizer, rng)
        before = texts.decode(prompt)
        wanted = texts.decode([*prompt, *answer])
        if not wanted.startswith(before):
            continue  # bytes of the answer change how the library writes those of the prompt
        checked += 1
        text = AnswerText(texts, prompt=prompt)
        found = ''.join(text.add(token) for token in answer) + text.end()
        assert before + found == wanted, (number, prompt, answer)
        if len(found) > 3 and '\ufffd' not in found:
            at = rng.randrange(len(found) - 2)
            stop = found[at:at + 3]  # of several tokens, most often
            text, pieces = AnswerText(texts, (stop,), prompt), ''
            for token in answer:
                pieces += text.add(token)
                if text.stopped:
                    break
            assert pieces + text.end() == found[:found.index(stop)], (number, stop)
    assert checked > 80


def test_bytes_of_tokens_are_those_of_the_text(tokenizer: Any) -> None:
    raw = token_bytes(tokenizer)
    for text in ('the a', '\u00e9\u4f60\U0001f916 a the', 'a\n, b'):
        tokens = tokenizer('a' + text, add_special_tokens=False).input_ids
        assert b''.join(map(raw, tokens)).decode().lstrip() == 'a' + text
    assert raw(len(tokenizer) + 5) == b''
    assert raw(tokenizer.eos_token_id).decode() == tokenizer.eos_token
