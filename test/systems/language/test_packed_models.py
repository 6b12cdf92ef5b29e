# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Models whose weights stay as their files have them, and files that are none."""
from __future__ import annotations

from pathlib import Path
import random
import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from language_models import costs, Scripted, STEADY
from packed_models import write_packed
import pytest
import torch

from intradp_lab.language.reference import whole_answer, whole_model
from intradp_ros.blobs.store import BlobStore
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.systems.language.checkpoint import ImportModelError
from intradp_ros.systems.language.families import library
from intradp_ros.systems.language.gguf_file import read_gguf
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.stored import STORED_TYPES

PROMPT = [5, 17, 3, 80, 41, 41, 9, 60, 2, 2, 33, 70, 8, 12, 1, 0, 44]
MIXED = {'attn_v.weight': 'q6_k', 'ffn_down.weight': 'q6_k', 'token_embd.weight': 'q6_k',
         '': 'q4_k'}


def bare(path: Path, store: BlobStore, dtype: torch.dtype | None = None):
    """Import a file without a tokenizer."""
    return import_model(path, store.put, dtype)


@pytest.mark.parametrize('types', [*sorted(STORED_TYPES), MIXED],
                         ids=lambda each: each if isinstance(each, str) else 'mixed')
def test_a_packed_model_answers_as_its_floats_do(types, tmp_path):
    path = write_packed(tmp_path / 'model.gguf', 'llama', types)
    store = BlobStore(tmp_path / 'blobs', 1 << 40)
    manifest = bare(path, store)
    assert set(manifest.types) == ({types} if isinstance(types, str) else {'q4_k', 'q6_k'})
    assert manifest.nbytes < path.stat().st_size + 64 * 1024
    whole = whole_model(manifest, store)
    theirs = library().AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32).state_dict()
    ours = whole.state_dict()
    assert theirs.keys() == ours.keys()
    for name, tensor in theirs.items():
        assert torch.equal(tensor, ours[name]), name
    given_costs = costs(manifest, 2)
    with LocalLanguage(given_costs, 'a', Scripted(given_costs, 2, True), {'a': store},
                       times=STEADY) as local:
        local.wait_ready()
        logits: list[torch.Tensor] = []
        answering = local.ask(PROMPT, 10, logits)
        assert answering.wait(60).fate is Fate.DONE
        tokens, wanted = whole_answer(whole, PROMPT, 10, frozenset())
        assert answering.tokens == tokens
        assert torch.stack(logits).sub(wanted).abs().max() < 1e-4


@pytest.mark.parametrize('family', ['mistral', 'qwen2', 'qwen3', 'gemma2', 'gemma3_text'])
def test_families_of_files_are_what_the_library_makes_of_them(family, tmp_path):
    shape = {'head_dim': 256, 'num_attention_heads': 2, 'num_key_value_heads': 1} \
        if family.startswith('gemma') else {}
    path = write_packed(tmp_path / 'model.gguf', family, 'q8_0', tied=family != 'qwen3', **shape)
    store = BlobStore(tmp_path / 'blobs', 1 << 40)
    manifest = bare(path, store)
    ours = whole_model(manifest, store).state_dict()
    theirs = library().AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32,
        config=library().AutoConfig.for_model(**manifest.config)).state_dict()
    for name, tensor in theirs.items():
        assert torch.equal(tensor, ours[name]), name


@pytest.mark.parametrize('layers, head_dim, scalar', [(4, 32, 32), (46, 32, 48)])
def test_queries_of_gemma_are_scaled_as_other_readers_do(tmp_path, layers, head_dim, scalar):
    """By the width of a head, of one size by its part of the model's: the file does not say."""
    path = write_packed(tmp_path / 'model.gguf', 'gemma2', 'q8_0', head_dim=head_dim,
                        hidden_size=96, num_attention_heads=2, num_key_value_heads=1,
                        num_hidden_layers=layers)
    assert bare(path, BlobStore(tmp_path / 'blobs', 1 << 40)).config[
        'query_pre_attn_scalar'] == scalar


def test_a_precision_that_is_asked_for_is_made(tmp_path):
    path = write_packed(tmp_path / 'model.gguf', 'llama', 'q4_1')
    store = BlobStore(tmp_path / 'blobs', 1 << 40)
    packed, floats = bare(path, store), bare(path, store, torch.float32)
    assert packed.types == ('q4_1',) and floats.types == ('float32',)
    assert packed.nbytes < 0.17 * floats.nbytes
    one, other = (whole_model(m, store).state_dict() for m in (packed, floats))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope='module')
def file(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp('file') / 'model.gguf'
    write_packed(path, 'llama', 'q8_0', num_hidden_layers=1)
    assert len(read_gguf(path)) == 11
    return path.read_bytes()


def refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(ImportModelError) as found:
        read_gguf(path)
    assert path.name in str(found.value)
    return str(found.value)


def test_a_file_that_ends_early_is_refused_wherever_it_ends(file, tmp_path):
    source = random.Random(0)
    for cut in [*range(1, 40), *(source.randrange(40, len(file)) for _ in range(150)),
                len(file) - 1]:
        assert 'truncated' in refused(tmp_path / 'x.gguf', file[:cut]) or cut < 4
    with pytest.raises((ImportModelError, ValueError)):
        (tmp_path / 'x.gguf').write_bytes(b'')
        read_gguf(tmp_path / 'x.gguf')


def test_sizes_that_overflow_are_refused_before_anything_is_made(file, tmp_path):
    path = tmp_path / 'x.gguf'
    huge = (1 << 63, (1 << 64) - 1, 1 << 32, 1 << 40)
    for number in huge:
        assert 'tensors' in refused(path, file[:8] + struct.pack('<Q', number) + file[16:])
        assert 'values' in refused(path, file[:16] + struct.pack('<Q', number) + file[24:])
    name = file.index(b'blk.0.ffn_down.weight') + len(b'blk.0.ffn_down.weight')
    for place in (4, 12):  # dimensions, after their number
        for number in (0, *huge):
            said = refused(path, file[:name + place] + struct.pack('<Q', number)
                           + file[name + place + 8:])
            assert 'blk.0.ffn_down.weight' in said
    for number in (*huge, 1, len(file) // 32 * 32, (1 << 64) - 32):
        said = refused(path, file[:name + 24] + struct.pack('<Q', number) + file[name + 32:])
        assert 'blk.0.ffn_down.weight' in said
    assert 'stored as' in refused(path, file[:name + 20] + struct.pack('<I', 16)
                                  + file[name + 24:])
    assert 'type 77' in refused(path, file[:name + 20] + struct.pack('<I', 77) + file[name + 24:])
    assert 'dimensions' in refused(path, file[:name] + struct.pack('<I', 5) + file[name + 4:])
    assert 'version' in refused(path, file[:4] + struct.pack('<I', 1) + file[8:])
    assert 'highest byte' in refused(path, file[:4] + struct.pack('>I', 3) + file[8:])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_file_of_any_bytes_is_read_or_refused(file, tmp_path_factory, data):
    changed = bytearray(file[:6000])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, 2500))
        piece = data.draw(st.binary(min_size=1, max_size=8))
        changed[at:at + len(piece)] = piece
    path = tmp_path_factory.getbasetemp() / 'any.gguf'
    path.write_bytes(bytes(changed) + file[6000:])
    try:
        found = read_gguf(path)
    except ImportModelError:
        return
    assert all(each.data.numel() <= len(file) for each in found.values())
