# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Logits have the same bits whatever else is computed, wherever, and whatever was lost."""
from __future__ import annotations

from language_models import costs, QUICK, Scripted, STEADY, tiny_model
from packed_models import write_packed
import pytest
import torch

from intradp_ros.blobs.store import BlobStore
from intradp_ros.cluster.coordinator import CoordinatorTimes
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.systems.language.families import FAMILIES
from intradp_ros.systems.language.head import HeadPolicy
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.kernels import kernels
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.role import LanguageOptions

pytestmark = pytest.mark.skipif(kernels().library is None,
                                reason='the kernels were not compiled')
TIMEOUT, COUNT = 60.0, 8
PROMPTS = [[(7 * k + 3 * n) % 97 for k in range(length)]
           for n, length in enumerate((1, 9, 16, 40, 70, 33, 2, 64))]


@pytest.fixture(scope='module', params=['bfloat16', 'q4_1', 'q6_k, q4_k'])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp('model')
    if request.param == 'bfloat16':
        return tiny_model(folder, dtype=torch.bfloat16)[:2]
    types = {'attn_v.weight': 'q6_k', 'token_embd.weight': 'q6_k', '': 'q4_k'} \
        if ',' in request.param else request.param
    store = BlobStore(folder / 'blobs', 1 << 40)
    return import_model(write_packed(folder / 'model.gguf', 'llama', types), store.put), store


def fleet(model, count: int, *, chunk: int = 128, segments: int = 1, streamed: bool = False,
          times: CoordinatorTimes = STEADY) -> LocalLanguage:
    manifest, store = model
    given = costs(manifest, count, tokens=1024)
    local = LocalLanguage(given, 'a', Scripted(given, segments, streamed), {'a': store},
                          LanguageOptions(policy=HeadPolicy(chunk=chunk)), times=times)
    local.wait_ready(TIMEOUT)
    return local


def logits(local: LocalLanguage, prompts: list[list[int]], during=None) -> list[torch.Tensor]:
    """Return the logits of answers to prompts that are asked at once."""
    found: list[list[torch.Tensor]] = [[] for _ in prompts]
    asked = [local.ask(prompt, COUNT, mine) for prompt, mine in zip(prompts, found)]
    if during:
        during(asked[0])
    for answering in asked:
        assert answering.wait(TIMEOUT).fate in (Fate.DONE, Fate.RESUMED)
    return [torch.stack(mine) for mine in found]


@pytest.fixture(scope='module')
def alone(model) -> list[torch.Tensor]:
    """Return those of each prompt alone on one device."""
    with fleet(model, 1) as local:
        return [logits(local, [prompt])[0] for prompt in PROMPTS]


def check(found: list[torch.Tensor], alone: list[torch.Tensor]) -> None:
    for mine, wanted in zip(found, alone):
        assert torch.equal(mine, wanted)


@pytest.mark.parametrize('together', [2, 5, 8])
def test_of_requests_at_once(model, alone, together):
    with fleet(model, 1) as local:
        check(logits(local, PROMPTS[:together]), alone)


@pytest.mark.parametrize('chunk', [1, 7, 64])
def test_of_prompts_in_chunks(model, alone, chunk):
    with fleet(model, 1, chunk=chunk) as local:
        check([logits(local, [prompt])[0] for prompt in PROMPTS], alone)


@pytest.mark.parametrize('count', [1, 2, 3])
@pytest.mark.parametrize('streamed', [False, True], ids=['resident', 'streaming'])
def test_of_plans_and_devices(model, alone, count, streamed):
    with fleet(model, count, segments=2 if streamed else 1, streamed=streamed) as local:
        check(logits(local, PROMPTS), alone)


@pytest.mark.parametrize('after', [0, 1, 5])
def test_after_a_loss(model, alone, after):
    with fleet(model, 3, chunk=16, times=QUICK) as local:
        def kill(answering) -> None:
            while len(answering.tokens) < after:
                pass
            local.kill('bc'[after % 2])
        check(logits(local, PROMPTS, kill), alone)


def test_of_a_beginning_that_was_computed_before(model, alone):
    with fleet(model, 2, chunk=24) as local:
        long = PROMPTS[4]
        logits(local, [long])
        check(logits(local, [long]), [alone[4]])
        logits(local, [[*long[:48], 5, 6], long])
        assert local.head.state().shared_tokens >= 64 + 48 + 64


@pytest.mark.parametrize('family', sorted(FAMILIES))
def test_of_each_family(tmp_path, family):
    model = tiny_model(tmp_path, family, max_position_embeddings=128)[:2]
    prompts = PROMPTS[:6]
    with fleet(model, 1) as local:
        wanted = [logits(local, [prompt])[0] for prompt in prompts]
    with fleet(model, 2, chunk=7) as local:
        check(logits(local, prompts), wanted)
