# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Folders of safetensors become blobs; manifests are never trusted."""
from __future__ import annotations

import json

from language_models import tiny_model
import pytest
from safetensors.torch import save_file
import torch

from intradp_ros.blobs.store import BlobStore
from intradp_ros.core.limits import MAX_BLOB
from intradp_ros.systems.language.block_math import KvPages, LaneRun, LibraryBlocks
from intradp_ros.systems.language.checkpoint import ImportModelError
from intradp_ros.systems.language.families import FamilyError
from intradp_ros.systems.language.fused_blocks import FAMILIES, FusedBlocks
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.kernels import kernels
from intradp_ros.systems.language.lanes import Lane, Part
from intradp_ros.systems.language.manifest import ManifestError, read_manifest

SHA = '0' * 64


def test_a_saved_folder_is_the_model(tmp_path):
    manifest, store, model = tiny_model(tmp_path / 'blobs', 'qwen2', tied=False)
    model.save_pretrained(tmp_path / 'saved')
    again = import_model(tmp_path / 'saved', store.put)
    assert [b.digest for b in again.blocks] == [b.digest for b in manifest.blocks]
    assert (again.embedding, again.head) == (manifest.embedding, manifest.head)
    assert again.tokenizer is None
    half = import_model(tmp_path / 'saved', store.put, torch.bfloat16)
    assert half.types == ('bfloat16',) and half.nbytes < 0.6 * again.nbytes
    assert half.kv_bytes == again.kv_bytes  # all is computed in float32


def test_a_folder_that_is_no_model_is_refused_with_a_reason(tmp_path):
    store = BlobStore(tmp_path / 'blobs', 1 << 30)
    with pytest.raises(ImportModelError, match='does not exist'):
        import_model(tmp_path / 'none', store.put)
    (tmp_path / 'empty').mkdir()
    with pytest.raises(ImportModelError):
        import_model(tmp_path / 'empty', store.put)
    _, _, model = tiny_model(tmp_path / 'blobs')
    model.save_pretrained(tmp_path / 'saved')
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()
               if 'layers.2.mlp.up' not in name and 'lm_head' not in name}
    save_file(weights, tmp_path / 'saved' / 'model.safetensors')
    with pytest.raises(ImportModelError, match='layers.2.mlp.up_proj.weight is missing'):
        import_model(tmp_path / 'saved', store.put)
    config = json.loads((tmp_path / 'saved' / 'config.json').read_text())
    (tmp_path / 'saved' / 'config.json').write_text(json.dumps(
        {**config, 'model_type': 'gpt2'}))
    with pytest.raises((FamilyError, ImportModelError), match='gpt2|understood'):
        import_model(tmp_path / 'saved', store.put)


def test_manifests_that_are_none_are_refused(tmp_path):
    manifest, store, _ = tiny_model(tmp_path)
    data = store.load(manifest.digest)
    right = json.loads(bytes(data.numpy().data))
    assert read_manifest(json.dumps(right), SHA).blocks == manifest.blocks
    block = right['blocks'][0]
    for change in (
            {'format': 'x'}, {'blocks': []}, {'blocks': right['blocks'][:3]},
            {'blocks': 'abc'}, {'config': {}}, {'config': None}, {'embedding': None},
            {'blocks': [{**block, 'bytes': 1}] * 8},
            {'blocks': [{**block, 'bytes': MAX_BLOB + 1}] * 8},
            {'blocks': [{**block, 'tensors': block['tensors'] * 65}] * 8},
            {'blocks': right['blocks'] * 1025}, {'blocks': [{**block, 'digest': '../x'}] * 8},
            {'blocks': [{**block, 'tensors': [['w', 'float32', [1 << 40], 0]]}] * 8},
            {'blocks': [{**block, 'tensors': [['w', 'float32', [-1], 0]]}] * 8},
            {'blocks': [{**block, 'tensors': [['w', 'float32', [1], 3]]}] * 8},
            {'blocks': [{**block, 'tensors': [['w', 'int8', [1], 0]]}] * 8},
            {'blocks': [{**block, 'tensors': [['w', 'q4_1', [2, 33], 0]]}] * 8},
            {'blocks': [{**block, 'tensors': [['w', 'q8_0', [32], 0]]}] * 8},
            {'blocks': [{**block, 'tensors': [['w', 'float32', [], 0]]}] * 8},
            {'config': {**right['config'], 'hidden_size': 1 << 60}},
            {'config': {**right['config'], 'num_hidden_layers': 'x'}}):
        with pytest.raises(ManifestError):
            read_manifest(json.dumps(right | change), SHA)
    for text in ('', '[]', '{', 'null', '[' * 10000):
        with pytest.raises(ManifestError):
            read_manifest(text, SHA)


@pytest.mark.skipif(kernels().library is None, reason='the kernels were not compiled')
@pytest.mark.parametrize('family', sorted(FAMILIES))
@pytest.mark.parametrize('count', [1, 7, 40])
def test_fused_blocks_have_the_bits_of_single_modules(tmp_path, family, count):
    extra = {'attention_bias': True} if family in ('llama', 'qwen3') else {}
    extra |= {'sliding_window': 16} if family in ('mistral', 'gemma2', 'gemma3_text') else {}
    manifest, store, _ = tiny_model(tmp_path, family, **extra)
    hidden = torch.randn(count, 32, generator=torch.Generator().manual_seed(count))
    found = []
    for blocks in (LibraryBlocks(manifest), FusedBlocks(manifest)):
        kv = KvPages(manifest, (0, 1, 2, 3), 8)
        for start in (0, count):  # what was computed before is seen the second time
            run = LaneRun(Lane((Part(start, count, (5, 1, 2, 3, 7)),)), kv)
            runs = [blocks.bind(number, file.views(store.load(file.digest)))
                    for number, file in enumerate(manifest.blocks)]
            out = hidden
            for each in runs:
                out = each(out, run)
            assert torch.equal(out, blocks.run(runs, hidden, run))  # at once
            found.append(out)
    for modules, fused in zip(found[:2], found[2:]):
        assert torch.equal(modules, fused)
