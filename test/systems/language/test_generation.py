# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a generation configuration says is done as `generate` does it, or refused by name."""
from __future__ import annotations

from collections.abc import Mapping
import json
import math
from pathlib import Path
from typing import Any

from language_models import costs, Scripted, STEADY
import numpy as np
import pytest
from tiny_language_model import save_tiny_model
import torch

from intradp_ros.blobs.store import BlobStore
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_requests import Sampling, TextRequest
from intradp_ros.systems.language.checkpoint import ImportModelError
from intradp_ros.systems.language.families import library
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.local_fleet import Answering, LocalLanguage
from intradp_ros.systems.language.role import LanguageOptions
from intradp_ros.systems.language.sampler import (
    _chances,
    _of_share,
    adjusted,
    draw,
    LEAST_CHANCE,
    log_chances,
)

PROMPT = 'a model of weights'
OPEN = Sampling(None, None, None, 0, None)


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp('model'), padding=27)


@pytest.fixture(scope='module')
def greedy(folder: Path) -> list[int]:
    """Return what follows the prompt where nothing is configured."""
    return generated(folder, {}, max_new_tokens=40)


def generated(folder: Path, config: Mapping[str, Any], **asked: Any) -> list[int]:
    """Return the tokens of `generate` with a configuration."""
    configure(folder, config)
    transformers = library()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = torch.tensor([tokenizer(PROMPT).input_ids])
    with torch.inference_mode():
        made: list[int] = model.generate(given, pad_token_id=0, **asked)[
            0, given.shape[1]:].tolist()
    ends = config.get('eos_token_id', [])
    return made[:-1] if made and made[-1] in (ends if isinstance(ends, list) else [ends]) else made


def configure(folder: Path, config: Mapping[str, Any]) -> None:
    (folder / 'generation_config.json').write_text(json.dumps({'eos_token_id': 0, **config}))


def answered(folder: Path, tmp_path: Path, config: Mapping[str, Any], request: TextRequest,
             ) -> Answering:
    """Return the answer of a head to a request, of a model with a configuration."""
    configure(folder, config)
    store = BlobStore(tmp_path, 1 << 40)
    given = costs(import_model(folder, store.put), 1)
    with LocalLanguage(given, 'a', Scripted(given, 1, False), {'a': store}, LanguageOptions(),
                       times=STEADY) as local:
        local.wait_ready()
        answering = Answering()
        answering.cancel = local.head.submit(request, answering.heard)
        assert answering.wait(60.0).fate is Fate.DONE
    return answering


CONFIGS: dict[str, Any] = {
    'a second end': lambda made: {'eos_token_id': [0, made[6]]},
    'an end that is not a list': lambda made: {'eos_token_id': made[4]},
    'an end of the padding': lambda made: {'eos_token_id': [0, 410]},
    'a token that is padding': lambda made: {'pad_token_id': made[3]},
    'suppressed': lambda made: {'suppress_tokens': sorted({*made[:5], 410})},
    'suppressed at the beginning': lambda made: {'begin_suppress_tokens': [made[0], made[1]]},
    'repetitions': lambda made: {'repetition_penalty': 1.7},
    'repetitions wanted': lambda made: {'repetition_penalty': 0.6},
    'not before': lambda made: {'eos_token_id': [0, made[3]], 'min_new_tokens': 9},
    'not sampled': lambda made: {'do_sample': False, 'temperature': 0.9},
    'so many': lambda made: {'max_new_tokens': 11},
    'so many in all': lambda made: {'max_length': 30}}


@pytest.mark.parametrize('name', CONFIGS)
def test_a_configuration_is_done_as_generate_does(folder: Path, greedy: list[int],
                                                  tmp_path: Path, name: str) -> None:
    config = CONFIGS[name](greedy)
    most = {} if {'max_new_tokens', 'max_length'} & {*config} else {'max_new_tokens': 20}
    wanted = generated(folder, config, do_sample=False, **most)
    sampling = OPEN if 'do_sample' in config else Sampling(repetition_penalty=None)
    found = answered(folder, tmp_path, config, TextRequest(
        PROMPT, most.get('max_new_tokens'), sampling))
    assert found.tokens == wanted
    if name not in ('an end of the padding', 'a token that is padding', 'not sampled'):
        assert wanted != greedy[:20]  # the configuration says something


@pytest.mark.parametrize('named, value', [
    ('forced_bos_token_id', 5), ('forced_eos_token_id', 5), ('no_repeat_ngram_size', 2),
    ('encoder_no_repeat_ngram_size', 2), ('encoder_repetition_penalty', 1.2), ('min_length', 30),
    ('bad_words_ids', [[5]]), ('sequence_bias', [[[5], 2.0]]), ('stop_strings', ['x']),
    ('num_beams', 2), ('typical_p', 0.5), ('epsilon_cutoff', 0.1), ('eta_cutoff', 0.1),
    ('top_h', 0.5), ('guidance_scale', 2.0), ('token_healing', True), ('max_time', 3.0),
    ('exponential_decay_length_penalty', [5, 1.2]), ('penalty_alpha', 0.5),
    ('dola_layers', 'high')])
def test_what_is_not_done_is_refused_by_name(folder: Path, tmp_path: Path, named: str,
                                             value: Any) -> None:
    configure(folder, {named: value})
    with pytest.raises(ImportModelError, match=named):
        import_model(folder, BlobStore(tmp_path, 1 << 40).put)


@pytest.mark.parametrize('named, value', [
    ("eos_token_id: '</s>'", '</s>'), ('eos_token_id', [1, 'a']), ('temperature', -1),
    ('top_p', 1.5), ('top_k', -1), ('repetition_penalty', 0), ('suppress_tokens', [1 << 40]),
    ('max_length', -1), ('min_new_tokens', 1.5)])
def test_what_cannot_be_is_refused_with_the_name_of_its_file(folder: Path, tmp_path: Path,
                                                             named: str, value: Any) -> None:
    configure(folder, {named.partition(':')[0]: value})
    stored: list[torch.Tensor] = []
    with pytest.raises(ImportModelError, match=f'generation_config.json.*{named}'):
        import_model(folder, lambda data: str(stored.append(data)))
    assert not stored


def test_none_of_a_list_of_ends_is_none(folder: Path, tmp_path: Path) -> None:
    configure(folder, {'eos_token_id': [-1, 5], 'suppress_tokens': [-1]})
    found = import_model(folder, BlobStore(tmp_path, 1 << 40).put).generation
    assert (found['eos_token_id'], found['suppress_tokens']) == ([5], [])


def test_what_a_request_says_goes_before_the_configuration(folder: Path, greedy: list[int],
                                                           tmp_path: Path) -> None:
    config = {'repetition_penalty': 1.7, 'min_new_tokens': 9, 'max_new_tokens': 3,
              'temperature': 5.0, 'do_sample': True}
    found = answered(folder, tmp_path, config, TextRequest(
        PROMPT, 5, Sampling(repetition_penalty=1.0)))
    assert found.tokens == greedy[:5]


@pytest.mark.parametrize('sampling', [
    Sampling(1.0, 0, 1.0), Sampling(0.7, 20, 1.0), Sampling(1.3, 0, 0.8), Sampling(0.8, 50, 0.9),
    Sampling(1.0, 0, 1.0, 0, 0.1), Sampling(0.6, 40, 0.95, 0, 0.02), Sampling(1e-3, 5, 0.5),
    Sampling(1.0, 1, 1.0), Sampling(2.0, 3000, 0.999), Sampling(1.0, 0, 0.0),
    Sampling(1.0, 20, 0.9, 0, 0.0, 1.3, logit_bias=((7, 9.0), (9, -100.0), (2990, 3.5)))])
def test_chances_are_those_of_the_library(sampling: Sampling) -> None:
    """Among 3,000 tokens, of which many are equal: the same tokens with the same chances."""
    g: Any = library().generation
    for seed in range(5):
        torch.manual_seed(seed)
        logits = torch.randn(3000) * (1 + seed)
        tokens = torch.randint(0, 3000, (40,)).tolist() + [7, 9]
        made = [g.SequenceBiasLogitsProcessor([[[t], b] for t, b in sampling.logit_bias])
                ] if sampling.logit_bias else []
        if sampling.repetition_penalty:
            made.append(g.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
        made.append(g.TemperatureLogitsWarper(float(sampling.temperature or 1)))
        if sampling.top_k:
            made.append(g.TopKLogitsWarper(sampling.top_k))
        if sampling.top_p != 1.0:
            made.append(g.TopPLogitsWarper(sampling.top_p))
        if sampling.min_p:
            made.append(g.MinPLogitsWarper(sampling.min_p))
        wanted = g.LogitsProcessorList(made)(torch.tensor([tokens]), logits[None])[0]
        scores = adjusted(logits, sampling, tokens, 10)
        order, weights = _chances(scores.numpy(), float(scores.max()), sampling)
        found = torch.zeros(3000, dtype=torch.double)
        found[slice(None) if order is None else order] = torch.from_numpy(weights / weights.sum())
        torch.testing.assert_close(found, wanted.double().softmax(0), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize('temperature', [1e-38, 1e-300, 5e-324])
def test_at_the_least_temperatures_the_likeliest_token_is_certain(temperature: float) -> None:
    logits = torch.randn(3000, generator=torch.Generator().manual_seed(0))
    sampling = Sampling(temperature, 0, 1.0)
    order, weights = _chances(logits.numpy(), float(logits.max()), sampling)
    likeliest = int(np.argmax(weights))
    assert (likeliest if order is None else order[likeliest]) == int(logits.argmax())
    assert weights[likeliest] == weights.sum() > 0


@pytest.mark.parametrize('share', [0.5, 0.95, 0.9999])
@pytest.mark.parametrize('spread', [0.0, 1.0, 3.0, 400.0])
def test_few_tokens_more_than_are_drawn_among_are_sorted(share: float, spread: float) -> None:
    """Of a large vocabulary, many of whose tokens are equal, flat or certain."""
    torch.manual_seed(0)
    logits = (torch.randn(100_000) * spread * 4).round() / 4
    weights = (logits.double() - logits.max()).exp()
    order = torch.argsort(logits, descending=True, stable=True)
    before = weights[order].cumsum(0) - weights[order]
    needed = int((before < share * weights.sum()).sum())
    found = torch.from_numpy(_of_share(weights.log().numpy(), weights.numpy(), share))
    assert torch.equal(found, order[:len(found)]) and len(found) >= needed
    last = logits[order[needed - 1]]
    assert len(found) <= int((logits >= last - 0.1).sum())


def test_chances_are_numbers_whatever_the_logits_are() -> None:
    inf, nan = float('inf'), float('nan')
    for logits, wanted in (
            ([0.0, -inf], [0.0, LEAST_CHANCE]), ([inf, 3.0], [0.0, LEAST_CHANCE]),
            ([inf, inf], [math.log(0.5)] * 2), ([1.0, nan], [0.0, LEAST_CHANCE])):
        for token, chance in enumerate(wanted):
            own, likely = log_chances(torch.tensor(logits), token, 2)
            assert own == pytest.approx(chance) and dict(likely)[token] == own


def test_seeds_next_to_each_other_draw_other_tokens() -> None:
    for position in range(4):
        drawn = {draw(torch.zeros(100_000), Sampling(1.0, seed=seed), position)
                 for seed in range(50)}
        assert len(drawn) > 45
