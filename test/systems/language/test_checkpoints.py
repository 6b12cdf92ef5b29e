# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Folders and files as people have them: the right weights, or a line that says what to do."""
from __future__ import annotations

from collections.abc import Callable
import json
import os
from pathlib import Path
import shutil
from types import SimpleNamespace
from typing import Any

import gguf
from gguf_files import write_gguf
from language_models import tiny_model
import pytest
from safetensors.torch import load_file, save_file
from tiny_language_model import save_tiny_model
import torch

from intradp_lab.language.reference import whole_answer, whole_model
from intradp_ros.blobs.store import BlobStore
from intradp_ros.systems.language.checkpoint import ImportModelError
from intradp_ros.systems.language.families import FamilyError, library
from intradp_ros.systems.language.import_model import import_model, load_tokenizer, model_name
from intradp_ros.systems.language.opened import imported

PROMPT = [5, 17, 3, 80, 41, 41, 9]
POINTER = b'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n'
LLAMA3 = {'rope_type': 'llama3', 'rope_theta': 10000.0, 'factor': 8.0, 'low_freq_factor': 1.0,
          'high_freq_factor': 4.0, 'original_max_position_embeddings': 32}
LINEAR = {'rope_type': 'linear', 'rope_theta': 10000.0, 'factor': 8.0}


@pytest.fixture(scope='module')
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('saved')
    _, _, model = tiny_model(folder / 'blobs', tied=False)
    model.save_pretrained(folder / 'model', max_shard_size='20KB')
    assert (folder / 'model' / 'model.safetensors.index.json').exists()
    return folder / 'model'


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / 'model'))


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / 'blobs', 1 << 40)


def change(file: Path, **keys: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of a folder, and put them into one file."""
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob('*.safetensors')):
        found |= load_file(path)
        path.unlink()
    (folder / 'model.safetensors.index.json').unlink(missing_ok=True)
    save_file(found, folder / 'model.safetensors')
    return found


def rewrite(folder: Path, how: Callable[[dict[str, torch.Tensor]], object]) -> None:
    found = weights(folder)
    how(found)
    save_file(found, folder / 'model.safetensors')


def without(found: dict[str, torch.Tensor], part: str) -> None:
    for name in [name for name in found if part in name]:
        del found[name]


UP = 'model.layers.1.mlp.up_proj.weight'
TROUBLES: dict[str, tuple[Callable[[Path], object], str]] = {
    'a shard': (lambda f: sorted(f.glob('model-*'))[1].unlink(),
                'model-00002-of-.* is missing, one of 1 of .* files'),
    'a pointer': (lambda f: sorted(f.glob('model-*'))[0].write_bytes(POINTER), 'git lfs pull'),
    'a pointer for the configuration': (lambda f: (f / 'config.json').write_bytes(POINTER),
                                        'git lfs pull'),
    'half a download': (lambda f: [path.write_bytes(path.read_bytes()[:-40])
                                   for path in sorted(f.glob('model-*'))[:1]], 'model-00001'),
    'a tensor': (lambda f: rewrite(f, lambda t: without(t, UP)), f'{UP} is missing'),
    'a layer': (lambda f: rewrite(f, lambda t: without(t, 'layers.3.')), 'missing of a llama'),
    'more layers': (lambda f: change(f / 'config.json', num_hidden_layers=3),
                    'layers.3.*not read'),
    'biases': (lambda f: rewrite(f, lambda t: t.update(
        {UP.replace('weight', 'bias'): torch.zeros(48)})), 'up_proj.bias.*does not read'),
    'another shape': (lambda f: change(f / 'config.json', intermediate_size=64),
                      'but the configuration says'),
    'fp8': (lambda f: rewrite(f, lambda t: t.update({UP: t[UP].to(torch.float8_e4m3fn)})),
            'GGUF only'),
    'scales': (lambda f: rewrite(f, lambda t: t.update(
        {UP + '_scale': torch.ones(1)})), 'weight_scale.*quantised'),
    'quantised': (lambda f: change(f / 'config.json', quantization_config={'quant_method': 'fp8'}),
                  r'quantised \(fp8\)'),
    'an adapter': (lambda f: (f / 'adapter_config.json').write_text('{}'), 'merge_and_unload'),
    'code': (lambda f: change(f / 'config.json', model_type='mine', auto_map={
        'AutoConfig': 'configuration_mine.MineConfig'}), 'code of its own'),
    'an unknown family': (lambda f: change(f / 'config.json', model_type='qwen2_moe'),
                          "'qwen2_moe' are not"),
    'a vocabulary per layer': (lambda f: change(
        f / 'config.json', model_type='gemma3n_text', vocab_size_per_layer_input=262144),
        'the family .gemma3n_text. are not understood'),
    'a link to nothing': (lambda f: (f / 'special_tokens_map.json').symlink_to('gone'),
                          'special_tokens_map.json is a link to a file that is not there'),
    'a pipe': (lambda f: (f / 'config.json').unlink() or os.mkfifo(f / 'config.json'),
               'is a pipe .*config.json'),
    "a hub's cache": (lambda f: f.rename(f.parent / '0f') and (f / 'snapshots').mkdir(
        parents=True) or (f.parent / '0f').rename(f / 'snapshots' / '0f'), 'into it: .*/0f$'),
    'no configuration': (lambda f: (f / 'config.json').unlink(), 'has no config.json'),
    'half a configuration': (lambda f: (f / 'config.json').write_text('{"model_type": '),
                             'config.json'),
    'pickles': (lambda f: [path.unlink() for path in f.glob('*.safetensors*')], 'pickle'),
    'an activation': (lambda f: change(f / 'config.json', hidden_act='no'), "not find 'no'"),
    'beams': (lambda f: change(f / 'generation_config.json', num_beams=4), 'asks for num_beams'),
    'half a tokenizer': (lambda f: (f / 'tokenizer_config.json').write_text('{}'),
                         'no tokenizer.json'),
    'no tokenizer': (lambda f: (f / 'tokenizer.json').write_text('{}'), 'tokenizer cannot be'),
}


@pytest.mark.parametrize('trouble', TROUBLES)
@pytest.mark.parametrize('dtype', [None, torch.bfloat16], ids=str)
def test_trouble_is_said_in_one_line(folder: Path, store: BlobStore, trouble: str,
                                     dtype: torch.dtype | None) -> None:
    make, reason = TROUBLES[trouble]
    make(folder)
    with pytest.raises((ImportModelError, FamilyError), match=reason) as error:
        import_model(folder, store.put, dtype)
    assert '\n' not in str(error.value)


def test_code_of_a_tokenizer_is_not_run(tmp_path: Path, store: BlobStore) -> None:
    folder = save_tiny_model(tmp_path / 'model')
    change(folder / 'tokenizer_config.json', tokenizer_class='MineTokenizer',
           auto_map={'AutoTokenizer': ['tokenization_mine.MineTokenizer', None]})
    (folder / 'tokenization_mine.py').write_text(f'open({str(tmp_path / "ran")!r}, "w")\n')
    try:
        manifest = import_model(folder, store.put)
    except ImportModelError as error:
        assert 'code of its own' in str(error)
    else:  # the library has a class of its own for it
        assert manifest.tokenizer
    assert not (tmp_path / 'ran').exists()


@pytest.mark.slow
def test_a_template_that_takes_all_memory_or_time_is_refused(tmp_path: Path, store: BlobStore,
                                                            ) -> None:
    folder = save_tiny_model(tmp_path / 'model')
    import_model(folder, store.put)
    for bomb in ("{{ 'x' * 3000000000 }}", "{% for i in range(99999) %}{% for j in range(99999) %}"
                 "{{ 'x' * 99 }}{% endfor %}{% endfor %}"):
        (folder / 'chat_template.jinja').write_text(bomb)
        with pytest.raises(ImportModelError, match='its chat template takes too much'):
            import_model(folder, store.put)


def test_floats_that_json_lacks_are_read_as_the_library_writes_them(
        folder: Path, store: BlobStore) -> None:
    change(folder / 'config.json', rms_norm_eps={'__float__': 'Infinity'})
    assert library().AutoConfig.from_pretrained(folder).rms_norm_eps == float('inf')
    assert import_model(folder, store.put).config['rms_norm_eps'] == float('inf')


def test_weights_stay_as_they_are_stored(folder: Path, store: BlobStore) -> None:
    """Norms in float32 beside bfloat16, as some trainers write them; whatever is stated."""
    rewrite(folder, lambda found: found.update({
        name: tensor if 'norm' in name else tensor.bfloat16()
        for name, tensor in found.items()}))
    for stated in ('bfloat16', 'float32', None):
        change(folder / 'config.json', dtype=stated)
        whole = library().AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        manifest = import_model(folder, store.put)
        assert {(t.type.name, 'norm' in t.name)
                for block in (*manifest.blocks, manifest.head, manifest.embedding)
                for t in block.tensors} == {('float32', True), ('bfloat16', False)}
        again = whole_model(manifest, store).state_dict()
        assert all(torch.equal(again[name], tensor)
                   for name, tensor in whole.state_dict().items())


@pytest.mark.parametrize('family', ['llama', 'qwen2', 'qwen3', 'gemma3_text'])
def test_a_gguf_file_is_the_model(tmp_path: Path, store: BlobStore, family: str) -> None:
    more = {'sliding_window': 16, 'num_hidden_layers': 7,
            'query_pre_attn_scalar': 8} if family == 'gemma3_text' else {}
    _, _, model = tiny_model(tmp_path / 'first', family, tied=family != 'qwen2', **more)
    path = write_gguf(tmp_path / 'Small-1.5B.Q8_0.GGUF', model)
    manifest = import_model(path, store.put)
    assert manifest.name == 'Small-1.5B.Q8_0' and manifest.types == ('float32',)
    found = whole_model(manifest, store)
    assert whole_answer(found, PROMPT, 20, frozenset())[0] == \
        whole_answer(model, PROMPT, 20, frozenset())[0]


@pytest.mark.parametrize('family, rope, said', [
    ('llama', LLAMA3, ''), ('qwen2', LINEAR, 'type'), ('qwen2', LINEAR, 'scaling.factor'),
    ('qwen2', LINEAR, 'scale_linear'),
    ('gemma3_text', {'sliding_attention': {'rope_type': 'default', 'rope_theta': 10000.0},
                     'full_attention': {**LINEAR, 'rope_theta': 1e6}}, 'type')])
def test_positions_of_a_gguf_file_are_scaled_as_it_says(
        tmp_path: Path, store: BlobStore, family: str, rope: Any, said: str) -> None:
    """
    The library reads such files without: other tokens.

    A factor without a type is a linear one to llama.cpp, by its former key, too.
    """
    shape = {'query_pre_attn_scalar': 8} if family == 'gemma3_text' else {}
    _, _, model = tiny_model(tmp_path / 'first', family, rope_parameters=rope,
                             num_hidden_layers=7, **shape)
    more = {}
    if family == 'llama':  # as llama.cpp's converter does
        plain = 10000.0 ** -(torch.arange(0, 8, 2) / 8)
        more['rope_freqs.weight'] = plain / model.model.rotary_emb.inv_freq

    def say(writer: Any) -> None:
        if said == 'type':
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rope.get('full_attention', rope)['factor'])
        elif said:
            writer.add_float32(f'{family}.rope.{said}', rope['factor'])
    path = write_gguf(tmp_path / 'model.gguf', model, more=more, say=say)
    ids = [number * 37 % 97 for number in range(60)]
    wanted, logits = whole_answer(model, ids, 20, frozenset())
    found, again = whole_answer(whole_model(import_model(path, store.put), store), ids, 20,
                                frozenset())
    assert found == wanted and (logits - again).abs().max() < 1e-4
    without_it = library().AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file='model.gguf')
    assert (whole_answer(without_it, ids, 1, frozenset())[1] - logits[:1]).abs().max() > 1e-2


@pytest.mark.parametrize('trouble, reason', [
    ('layer', 'missing of a llama'), ('norm', 'model.norm.weight is missing'),
    ('split', 'one of 2 files of a model: join'), ('unknown', 'blk.0.attn_sinks.weight.*not read'),
    ('cut', 'truncated'), ('pointer', 'git lfs pull'), ('empty', 'not a GGUF file'),
    ('yarn', "scales positions by 'yarn'"), ('partly', 'turns 4 of the 8 elements of a head'),
    ('family', 'gpt2|not understood|not supported')])
def test_a_gguf_file_that_lacks_something_is_refused(tmp_path: Path, store: BlobStore,
                                                     trouble: str, reason: str) -> None:
    _, _, model = tiny_model(tmp_path / 'first')

    def say(writer: Any) -> None:
        if trouble == 'split':
            writer.add_uint16('split.count', 2)
            writer.add_uint16('split.no', 0)
        elif trouble == 'yarn':
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        elif trouble == 'partly':
            writer.kv_data[0]['llama.rope.dimension_count'].value = 4
    path = write_gguf(tmp_path / 'model-00001-of-00002.gguf', model, left_out=lambda name: (
        trouble in ('layer', 'split') and 'layers.3.' in name
        or trouble == 'norm' and name == 'model.norm.weight'),
        more={'blk.0.attn_sinks.weight': torch.zeros(4)} if trouble == 'unknown' else {}, say=say)
    if trouble == 'cut':
        path.write_bytes(path.read_bytes()[:-3000])
    elif trouble == 'empty':
        path.write_bytes(b'')
    elif trouble == 'pointer':
        path.write_bytes(POINTER)
    elif trouble == 'family':
        path.write_bytes(path.read_bytes().replace(b'llama', b'gpt2x'))
    with pytest.raises((ImportModelError, FamilyError), match=reason) as error:
        import_model(path, store.put)
    assert '\n' not in str(error.value)


def test_a_tokenizer_of_a_folder_is_that_of_the_library(tmp_path: Path, store: BlobStore) -> None:
    folder = save_tiny_model(tmp_path / 'model')
    (folder / 'additional_chat_templates').mkdir()  # as save_pretrained writes those with names
    (folder / 'additional_chat_templates' / 'tool_use.jinja').write_text('{{ tools }}')
    wanted = library().AutoTokenizer.from_pretrained(folder)
    assert wanted.chat_template.keys() == {'default', 'tool_use'}
    manifest = import_model(folder, store.put)
    assert manifest.tokenizer
    found = load_tokenizer(store.load(manifest.tokenizer.digest))
    assert found.get_vocab() == wanted.get_vocab() and type(found) is type(wanted)
    assert found.chat_template == wanted.chat_template and found.eos_token == wanted.eos_token
    text = 'A model, of weights: <end> done'
    assert found(text).input_ids == wanted(text).input_ids


def test_a_model_larger_than_its_disk_is_refused_before_it_is_read(
        saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, free = BlobStore(tmp_path / 'blobs', 1 << 40), 4096
    monkeypatch.setattr(os, 'statvfs', lambda path: SimpleNamespace(f_bavail=1, f_frsize=free))
    with pytest.raises(OSError, match=r'blobs: \d+ bytes are needed, 4096 are free'):
        imported(saved, store)
    assert not any(store.folder.iterdir())
    free = 1 << 30
    manifest = imported(saved, store)
    free, [known] = 4096, store.folder.glob('model-*.json')
    known.unlink()
    assert imported(saved, store).digest == manifest.digest, 'all of it is there'


def test_a_model_larger_than_the_store_is_refused_before_anything_makes_room(
        saved: Path, tmp_path: Path) -> None:
    store = BlobStore(tmp_path / 'blobs', 40_000)
    old = store.put(torch.arange(200, dtype=torch.uint8))
    with pytest.raises(ImportModelError, match=r'take 0 MB.* may have 0 MB.*raise store_mb'):
        imported(saved, store)
    assert store.nbytes(old) == 200
    total = sum(path.stat().st_size for path in saved.glob('*.safetensors'))
    store = BlobStore(tmp_path / 'others', total + 60_000)
    planned = [store.put(torch.full((50_000,), number, dtype=torch.uint8))
               for number in range(2)]
    with store.keeping(planned[:1]):
        manifest = imported(saved, store)
        assert store.nbytes(planned[0]) and store.nbytes(planned[1]) is None
        assert all(store.nbytes(digest) for digest in manifest.digests)
        with store.keeping(manifest.digests), \
                pytest.raises(ImportModelError, match='raise store_mb'):
            imported(save_tiny_model(tmp_path / 'second'), store)
        assert all(store.nbytes(digest) for digest in manifest.digests)


@pytest.mark.parametrize('folder', ['Qwen3-0.6B', 'models--meta--Qwen3-0.6B/snapshots/1f2'])
def test_a_model_has_the_whole_name_of_its_folder(tmp_path: Path, folder: str) -> None:
    """A dot in it ends no name."""
    (tmp_path / folder).mkdir(parents=True)
    assert model_name(tmp_path / folder) == 'Qwen3-0.6B'
