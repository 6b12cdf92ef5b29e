# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Mixtures of experts: files as people have them, and experts that are chosen by token."""
from __future__ import annotations

from collections import deque
from dataclasses import replace
import json
from pathlib import Path
import shutil
import threading
from typing import Any

from gguf_files import write_gguf
from language_models import costs, even_plan, Scripted, STEADY, tiny_model
import numpy as np
import pytest
from safetensors.torch import load_file, save_file
import torch

from intradp_lab.language.reference import whole_answer
from intradp_ros.blobs.store import BlobStore
from intradp_ros.runtime.member.planner import Proposal
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_requests import Sampling
from intradp_ros.systems.language.actions import Sample
from intradp_ros.systems.language.checkpoint import ImportModelError
from intradp_ros.systems.language.estimate import play
from intradp_ros.systems.language.expert_reads import round_bytes
from intradp_ros.systems.language.experts import route
from intradp_ros.systems.language.families import FamilyError, library
from intradp_ros.systems.language.head import HeadPolicy
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.memory import activation_bytes
from intradp_ros.systems.language.planner import plan_language
from intradp_ros.systems.language.role import LanguageOptions
from intradp_ros.systems.language.slots import BlockSlot, Loader

PROMPT = [5, 17, 3, 80, 41, 41, 9, 60, 2, 2, 33, 70, 8, 12, 1, 0, 44]
FAMILIES = ('mixtral', 'qwen3_moe')
COUNT = 10
#: The options of GPT-OSS, smaller.
OPENAI = {'hidden_size': 64, 'intermediate_size': 64, 'num_local_experts': 8,
          'num_experts_per_tok': 4, 'sliding_window': 8, 'max_position_embeddings': 256,
          'rope_parameters': {'rope_type': 'yarn', 'factor': 4.0, 'beta_fast': 32.0,
                              'beta_slow': 1.0, 'truncate': False, 'rope_theta': 150000,
                              'original_max_position_embeddings': 64}}


def answered(manifest: Manifest, store: BlobStore, whole: Any) -> torch.Tensor:
    """Compare an answer of two devices with the whole model's; return the logits."""
    given, logits = costs(manifest, 2), []
    tokens, wanted = whole_answer(whole, PROMPT, COUNT, frozenset())
    with LocalLanguage(given, 'a', Scripted(given, 2, True), {'a': store}, times=STEADY) as local:
        local.wait_ready()
        answering = local.ask(PROMPT, COUNT, logits)
        assert answering.wait(60).fate is Fate.DONE
    assert answering.tokens == tokens
    assert torch.stack(logits).sub(wanted).abs().max() < 1e-4
    return torch.stack(logits)


def saved(folder: Path, family: str, dtype: torch.dtype = torch.float32, **shape: Any,
          ) -> tuple[Path, Any]:
    """Write a random model as the library does; return it in float32, as its files are read."""
    model = tiny_model(folder / 'first', family, dtype=dtype, tied=False, **shape)[2]
    model.save_pretrained(folder / 'model')
    return folder / 'model', type(model).from_pretrained(folder / 'model', dtype=torch.float32)


@pytest.mark.parametrize('family, dtype', [
    ('qwen3_moe', torch.bfloat16), ('mixtral', torch.float16), ('gpt_oss', torch.bfloat16), *(
        pytest.param(family, dtype, marks=pytest.mark.slow) for family, dtype in (
            ('qwen3_moe', torch.float32), ('mixtral', torch.float32)))], ids=str)
def test_a_folder_is_the_model(tmp_path, family, dtype):
    """Also where experts are one tensor, as the library has them in memory."""
    more = {'norm_topk_prob': dtype == torch.bfloat16} if family == 'qwen3_moe' else {}
    folder, whole = saved(tmp_path, family, dtype, **more)
    names = {*load_file(folder / 'model.safetensors')}
    assert family == 'gpt_oss' or any('experts.7.' in name for name in names)
    store = BlobStore(tmp_path / 'blobs', 1 << 40)
    manifest = import_model(folder, store.put)
    assert {t.type.dtype for block in manifest.blocks for t in block.tensors} == {dtype}
    ids = torch.tensor([PROMPT])
    wanted = whole.generate(ids, max_new_tokens=COUNT, do_sample=False)[0, len(PROMPT):].tolist()
    assert whole_answer(whole, PROMPT, COUNT, frozenset())[0] == wanted
    answered(manifest, store, whole)
    state = {name: tensor.to(dtype).contiguous() for name, tensor in whole.state_dict().items()}
    assert any(name.endswith('gate_up_proj') for name in state)
    save_file(state, folder / 'model.safetensors')
    assert import_model(folder, store.put).digest == manifest.digest


@pytest.mark.parametrize('family', FAMILIES)
def test_a_gguf_file_is_the_model(tmp_path, family):
    more = {'norm_topk_prob': True} if family == 'qwen3_moe' else {}
    whole = tiny_model(tmp_path / 'first', family, tied=False, **more)[2]
    store = BlobStore(tmp_path / 'blobs', 1 << 40)
    manifest = import_model(write_gguf(tmp_path / 'model.gguf', whole), store.put)
    assert manifest.config['model_type'] == family
    answered(manifest, store, whole)


@pytest.mark.parametrize('trouble', ['an expert', 'the last expert', 'another type'])
def test_experts_that_are_not_whole_are_refused(tmp_path, trouble):
    folder, _ = saved(tmp_path, 'mixtral')
    tensors = load_file(folder / 'model.safetensors')
    number = 7 if 'last' in trouble else 2
    name, = (name for name in tensors if f'layers.1.block_sparse_moe.experts.{number}.w1' in name)
    if trouble == 'another type':
        tensors[name] = tensors[name].bfloat16()
    else:
        del tensors[name]
    save_file(tensors, folder / 'model.safetensors')
    store = BlobStore(tmp_path / 'blobs', 1 << 40)
    with pytest.raises(ImportModelError, match='layers.1.*experts'):
        import_model(folder, store.put)


@pytest.mark.parametrize('shape, reason', [
    ({'mlp_only_layers': [1]}, 'only some of its layers'),
    ({'decoder_sparse_step': 2}, 'only some of its layers'),
    ({'hidden_act': 'relu'}, "activation 'relu'")])
def test_mixtures_of_other_kinds_are_refused(tmp_path, shape, reason):
    folder = tmp_path / 'model'
    _, _, model = tiny_model(tmp_path / 'first', 'qwen3_moe')
    for key, value in shape.items():
        setattr(model.config, key, value)
    whole = type(model)(model.config)
    whole.save_pretrained(folder)
    shutil.rmtree(tmp_path / 'first')
    with pytest.raises(FamilyError, match=reason):
        import_model(folder, BlobStore(tmp_path / 'blobs', 1 << 40).put)


@pytest.mark.parametrize('normed', [False, True])
def test_routes_are_those_of_softmax_and_depend_on_a_token_alone(normed):
    source = np.random.RandomState(0)
    logits = (source.randn(200, 64) * source.choice([0.1, 5, 60], (200, 1))).astype(np.float32)
    logits[7] = logits[7, 0]  # all alike: the first ones
    chosen, shares = route(logits, 6, normed)
    wanted = torch.softmax(torch.from_numpy(logits).double(), 1).numpy()
    found = np.take_along_axis(wanted, chosen, 1)
    assert (np.sort(wanted, 1)[:, :-7:-1] - found == 0).all()
    assert chosen[7].tolist() == [0, 1, 2, 3, 4, 5]
    found = found / found.sum(1, keepdims=True) if normed else found
    assert np.abs(shares - found).max() < 1e-7
    for row in range(0, 200, 7):
        each, share = route(logits[row:row + 1], 6, normed)
        assert (each[0] == chosen[row]).all() and (share[0] == shares[row]).all()


@pytest.mark.parametrize('family, lanes', [
    pytest.param('qwen3_moe', 1, marks=pytest.mark.slow), ('mixtral', 3)])
def test_experts_that_stream_are_read_when_they_are_chosen(tmp_path, family, lanes):
    """The bits are those of experts that stay in memory; far fewer bytes are read."""
    more = {'num_local_experts': 16, 'num_experts_per_tok': 2, 'moe_intermediate_size': 256,
            'intermediate_size': 256, 'hidden_size': 64}
    manifest, store, whole = tiny_model(tmp_path / 'blobs', family, tied=False, **more)
    given, bits, read = costs(manifest, 1), [], []
    prompts = [[number * 7 + k for k in range(5)] for number in range(lanes)]
    file = manifest.blocks[1]
    each = sum(nbytes for _, nbytes in file.pieces(3))
    assert file.experts == 16 and file.nbytes == 16 * each + sum(n for _, n in file.pieces())
    for segments, streamed in ((1, False), (2, True)):
        with LocalLanguage(given, 'a', Scripted(given, segments, streamed), {'a': store},
                           times=STEADY) as local:
            local.wait_ready()
            first = [local.ask(prompt, 2) for prompt in prompts]
            assert all(answering.wait(60).fate is Fate.DONE for answering in first)
            engine = local.roles['a'].engine
            before, rounds = engine.loader.nbytes, engine.meter.rounds
            found = [(local.ask(prompt, COUNT, logits), logits)
                     for prompt, logits in zip(prompts, ([] for _ in prompts))]
            assert all(answering.wait(60).fate is Fate.DONE for answering, _ in found)
            bits.append([torch.stack(logits) for _, logits in found])
            read.append((engine.loader.nbytes - before, engine.meter.rounds - rounds))
            streams = len(engine.plan.streamed('a'))
    for answering, prompt in zip((each for each, _ in found), prompts):
        assert answering.tokens == whole_answer(whole, prompt, COUNT, frozenset())[0]
    assert all(torch.equal(one, other) for one, other in zip(*bits))
    assert read[0][0] == 0 and streams
    nbytes, rounds = read[1]
    assert 0 < nbytes < (0.3 if lanes == 1 else 0.5) * rounds * streams * file.nbytes


def test_experts_that_are_awaited_come_first_and_others_while_there_is_time(tmp_path):
    manifest, store, _ = tiny_model(tmp_path, 'qwen3_moe')
    blocks, read = {number: manifest.blocks[number] for number in (1, 3)}, []
    going, pieces = threading.Event(), store.read_pieces

    def noted(digest, slot, where):
        going.wait(60)
        number = next(number for number, file in blocks.items() if file.digest == digest)
        read.append((number, next((expert for expert in range(8) if blocks[number].pieces(
            expert) == where), None)))
        return pieces(digest, slot, where)
    slots = {number: BlockSlot(store, file.nbytes, turns=True) for number, file in blocks.items()}
    loader = Loader(store, 'test')
    try:
        for number, file in blocks.items():  # seen as a whole the first time
            loader.load(slots[number], number, file)
            assert loader.wait(slots[number], number, lambda: False)
            assert slots[number].have is None
            assert loader.need(slots[number], number, file, [6, 2], lambda: False)
        wanted = {number: slots[number].views(file)['mlp.experts.up_proj.weight'].data.clone()
                  for number, file in blocks.items()}
        for slot in slots.values():
            slot.memory.memory[:] = bytes(len(slot.memory.memory))
            slot.held.clear()
        store.read_pieces = noted
        for number, file in blocks.items():
            loader.load(slots[number], number, file)
        going.set()
        assert loader.wait(slots[3], 3, lambda: False)
        assert loader.need(slots[1], 1, blocks[1], [6, 5], lambda: False)
        assert {5, 6} <= slots[1].have
        with loader._changed:
            assert loader._changed.wait_for(lambda: slots[3].have == {*range(8)}, 60)
        own = [expert for number, expert in read if number == 3]
        assert own[:3] == [None, 6, 2] and sorted(own[1:]) == list(range(8))
        assert loader.need(slots[1], 1, blocks[1], range(8), lambda: False)
        for number, file in blocks.items():
            found = slots[number].views(file)['mlp.experts.up_proj.weight'].data
            assert torch.equal(found, wanted[number])
        store._path(blocks[1].digest).unlink()
        slots[1].have = {1}
        with pytest.raises(OSError, match='is not in'):
            loader.need(slots[1], 1, blocks[1], [1, 4], lambda: False)
    finally:
        loader.close()


def test_experts_stay_while_no_other_block_needs_their_places(tmp_path):
    """Those of a whole page share it with others; all bytes are those of their own block."""
    manifest, store, _ = tiny_model(tmp_path, 'qwen3_moe')
    names = [f'mlp.experts.{part}_proj.weight' for part in ('gate', 'up', 'down')]
    wanted = {number: manifest.blocks[number].views(store.load(manifest.blocks[number].digest))
              for number in (1, 3, 5)}
    slot = BlockSlot(store, manifest.blocks[1].nbytes, turns=True)
    loader, read, pieces = Loader(store, 'test'), [], store.read_pieces

    def turn(number, chosen):
        file = manifest.blocks[number]
        loader.load(slot, number, file)
        assert loader.wait(slot, number, lambda: False)
        assert loader.need(slot, number, file, chosen, lambda: False)
        found = slot.views(file)
        for name, tensor in found.items():
            right = wanted[number][name]
            for expert in chosen if name in names else ():
                assert torch.equal(tensor.part(expert).data, right.part(expert).data)
            assert name in names or torch.equal(tensor.data, right.data)

    def noted(digest, slot, where):
        number = next(n for n in (1, 3, 5) if manifest.blocks[n].digest == digest)
        expert = next((e for e in range(8) if manifest.blocks[number].pieces(e) == where), None)
        read.append((number, expert))
        return pieces(digest, slot, where)
    try:
        for number in (1, 3, 5):
            turn(number, [])
        store.read_pieces = noted
        chosen = {1: [0, 6], 3: [5, 1, 3], 5: [2, 7]}
        for _ in range(3):
            for number, numbers in chosen.items():
                turn(number, numbers)
        read.clear()
        for number, numbers in chosen.items():
            turn(number, numbers)
        assert not [each for each in read if each[1] in chosen[each[0]]]
        turn(1, [6, 7])  # in the place of one of another block
        assert (1, 7) in read and (1, 6) not in read
        turn(5, [2, 7])
        assert (5, 7) in read and (5, 2) not in read
        source = np.random.RandomState(0)
        for _ in range(60):
            turn(int(source.choice((1, 3, 5))), source.permutation(8)[:3].tolist())
    finally:
        loader.close()


def test_experts_of_four_bits_are_those_that_the_library_makes_of_them(tmp_path):
    """As OpenAI publishes GPT-OSS; also with windows, and positions scaled beyond a length."""
    folder, _ = saved(tmp_path, 'gpt_oss', torch.bfloat16, **OPENAI)
    tensors, source = load_file(folder / 'model.safetensors'), np.random.RandomState(0)
    for name in [name for name in tensors if name.endswith(('gate_up_proj', 'down_proj'))]:
        experts, columns, rows = tensors.pop(name).shape
        shape = experts, rows, columns // 32
        tensors[f'{name}_blocks'] = torch.from_numpy(
            source.randint(0, 256, (*shape, 16), np.uint8))
        tensors[f'{name}_scales'] = torch.from_numpy(source.randint(121, 125, shape, np.uint8))
    save_file(tensors, folder / 'model.safetensors')
    config = json.loads((folder / 'config.json').read_text())
    (folder / 'config.json').write_text(json.dumps({**config, 'quantization_config': {
        'quant_method': 'mxfp4', 'modules_to_not_convert': ['model.layers.*.self_attn']}}))
    whole = library().AutoModelForCausalLM.from_pretrained(folder).float()
    store = BlobStore(tmp_path / 'blobs', 1 << 40)
    manifest = import_model(folder, store.put)
    assert manifest.types[0] == 'mxfp4' and 'quantization_config' not in manifest.config
    answered(manifest, store, whole)
    for name, trouble in (('down_proj_scales', None), ('gate_up_proj_scales', torch.zeros(
            2, 2, 2, dtype=torch.uint8))):
        full = f'model.layers.1.mlp.experts.{name}'
        save_file({**{key: each for key, each in tensors.items() if key != full},
                   **({full: trouble} if trouble is not None else {})},
                  folder / 'model.safetensors')
        with pytest.raises(ImportModelError, match='four bits have not their scales'):
            import_model(folder, store.put)


@pytest.mark.parametrize('lanes', [1, 3])
def test_bytes_of_a_streaming_mixture_are_those_that_were_predicted(tmp_path, lanes):
    """Without time to read ahead: those that tokens choose, less those that stayed."""
    manifest, store, _ = tiny_model(
        tmp_path / 'blobs', 'mixtral', tied=False, num_local_experts=16, num_experts_per_tok=2,
        intermediate_size=512, hidden_size=128, num_hidden_layers=6, loud=30.0)
    given = costs(manifest, 1)
    plan = even_plan(given, 'a', 3, True)
    assert {len(slot) for slot in plan.slots['a'] if slot[0] % 2} == {3}

    class Planned(Scripted):
        def plan(self, alive, now):
            return Proposal(plan)
    with LocalLanguage(given, 'a', Planned(given, 3, True), {'a': store}, LanguageOptions(
            policy=HeadPolicy(lanes=lanes)), times=STEADY) as local:
        local.wait_ready()
        engine = local.roles['a'].engine
        engine.loader._waiting = (deque(), deque(), deque(maxlen=0), deque(maxlen=0))
        seen = []
        engine.trace = lambda action, *_: seen.append(
            (action.lane, engine.loader.nbytes)) if isinstance(action, Sample) else None
        asked = [local.ask([7 * number + 3], 80, sampling=Sampling(8.0, seed=number))
                 for number in range(lanes)]
        assert all(answering.wait(60).fate is Fate.DONE for answering in asked)
    begins = [number for number, (lane, _) in enumerate(seen) if lane == 0]
    rounds = [seen[end][1] - seen[begin][1] for begin, end, after in zip(
        begins[9:], begins[10:], begins[11:]) if after - end == lanes]
    assert len(rounds) > 20
    read = np.mean(rounds)
    assert read == pytest.approx(round_bytes(plan, manifest, 'a', lanes), rel=0.1)
    whole = sum(manifest.blocks[block].nbytes for block in plan.streamed('a'))
    assert read < (0.25 if lanes == 1 else 0.5) * whole


def test_a_mixture_is_planned_by_what_is_read_of_it(tmp_path):
    """Reading whole blocks would be several times slower than what is planned."""
    manifest, _, _ = tiny_model(tmp_path / 'blobs', 'mixtral', tied=False, num_local_experts=16,
                                num_experts_per_tok=2, intermediate_size=512, hidden_size=128)
    body = sum(block.nbytes for block in manifest.blocks)
    given = costs(manifest, 1, memory=manifest.head_bytes + 0.6 * body, disk=2e8, tokens=64)
    planned = plan_language(given, 'a')
    assert planned.plan.streamed('a')
    read = round_bytes(planned.plan, manifest, 'a')
    assert read < 0.2 * sum(manifest.blocks[b].nbytes for b in planned.plan.streamed('a'))
    computing = sum(given.block('a', b) for b in range(8)) + given.head
    assert planned.seconds <= 1.001 * (computing + read / 2e8)
    slow = play(planned.plan, replace(given, head=1.0)).seconds  # some is read ahead by then
    assert slow - 1.0 + given.head < 0.9 * planned.seconds


def test_a_token_reads_the_experts_that_it_uses(tmp_path):
    manifest, store, _ = tiny_model(tmp_path, 'qwen3_moe')
    dense = tiny_model(tmp_path / 'dense')[0]
    experts = sum(t.nbytes for t in manifest.blocks[1].tensors if 'experts' in t.name)
    assert experts == 8 * 3 * 24 * 32 * 4
    assert manifest.read_bytes(1) == manifest.blocks[1].nbytes - experts * 5 // 8
    assert manifest.read_bytes(0) == manifest.blocks[0].nbytes
    assert dense.read_bytes(1) == dense.blocks[1].nbytes
    assert activation_bytes(manifest, 10) == 10 * 4 * (2 * 32 + 6 * 32)
