# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Files that lie about what is in them: refused before anything is made, and nothing is left."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
import json
import math
import multiprocessing
from pathlib import Path
import re
import shutil
import time
from typing import Any

from gguf_files import write_gguf
from hostile_models import (
    CONFIGS,
    Gguf,
    GGUFS,
    INDICES,
    outcome,
    parts,
    RAW,
    safetensors,
    take_memory,
    TENSORS,
    UP,
)
from language_models import tiny_model
import pytest

from intradp_ros.blobs.store import BlobStore
from intradp_ros.systems.language import import_model as importing
from intradp_ros.systems.language.checkpoint import ImportModelError
from intradp_ros.systems.language.opened import imported
from intradp_ros.systems.language.safetensors_file import described

Refused = Callable[[Path, str], None]
#: MB that a refusal may take in addition to what it is warm with.
MOST_MB = 80.0
WEIGHTS = 'model.safetensors'


@pytest.fixture(scope='module')
def alone() -> Iterator[Callable[..., Any]]:
    """Return what calls a function in a process where nothing else takes memory, or frees it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context('spawn')) as process:
        yield lambda function, *given: process.submit(function, *given).result()


@pytest.fixture(scope='module')
def good(alone: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model as folder, in shards, and as a GGUF file."""
    folder = tmp_path_factory.mktemp('good')
    model = tiny_model(folder / 'blobs')[2]
    model.save_pretrained(folder / 'one')
    model.save_pretrained(folder / 'shards', max_shard_size='20KB')
    mixture = tiny_model(folder / 'blobs', 'mixtral', num_hidden_layers=2)[2]
    mixture.save_pretrained(folder / 'mixture')
    write_gguf(folder / 'model.gguf', model)
    for each in ('one', 'shards', 'mixture', 'model.gguf'):  # what is read lazily is there now
        assert alone(outcome, folder / each, folder / 'warm')[0] == ''
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good / 'one', tmp_path / 'model'))


@pytest.fixture
def refused(alone: Callable[..., Any]) -> Refused:
    """Return what sees that a model is refused for a reason, without much memory."""
    def check(source: Path, reason: str) -> None:
        said, grown, _ = alone(outcome, source, source.parent / 'blobs')
        assert said and re.search(reason, said), said
        assert source.name in said or 'family' in said or 'tensor' in said, said
        assert grown < MOST_MB, f'{grown:.0f} MB: {said}'
    return check


@pytest.mark.parametrize('kind', GGUFS)
def test_a_gguf_file_that_lies_is_refused(good: Path, refused: Refused, tmp_path: Path,
                                          kind: str) -> None:
    change, reason = GGUFS[kind]
    file = deepcopy(Gguf.read(good / 'model.gguf'))
    change(file)
    path = tmp_path / 'lies.gguf'
    path.write_bytes(file.written())
    refused(path, reason)


def test_what_is_written_again_is_the_same_model(good: Path, tmp_path: Path) -> None:
    path = tmp_path / 'again.gguf'
    path.write_bytes(Gguf.read(good / 'model.gguf').written())
    store = BlobStore(tmp_path / 'blobs', 1 << 40)
    assert imported(path, store).digest == imported(good / 'model.gguf', store).digest


@pytest.mark.parametrize('kind', [*TENSORS, *RAW])
def test_a_file_of_safetensors_that_lies_is_refused(folder: Path, refused: Refused,
                                                    kind: str) -> None:
    header, data = parts((folder / WEIGHTS).read_bytes())
    if kind in TENSORS:
        change, reason = TENSORS[kind]
        change(header)
        content = safetensors(header, data)
    else:
        make, reason = RAW[kind]
        content = make(header, data)
    (folder / WEIGHTS).write_bytes(content)
    refused(folder, reason)


def cases() -> Iterator[Any]:
    for key, values in CONFIGS.items():
        for value in values:
            yield pytest.param(key, value, id=f'{key} {str(value)[:20]}')


@pytest.mark.parametrize('key, value', [*cases()])
def test_a_configuration_that_lies_is_refused_or_means_nothing(
        alone: Callable[..., Any], folder: Path, key: str, value: Any) -> None:
    file = folder / 'config.json'
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    said, grown, _ = alone(outcome, folder, folder.parent / 'blobs')
    assert grown < MOST_MB, f'{grown:.0f} MB: {said}'
    assert said or key not in ('num_hidden_layers', 'hidden_size', 'vocab_size')


@pytest.mark.parametrize('kind', INDICES)
def test_an_index_that_leaves_its_folder_is_refused(good: Path, refused: Refused,
                                                    tmp_path: Path, kind: str) -> None:
    folder = Path(shutil.copytree(good / 'shards', tmp_path / 'model'))
    (tmp_path / 'x.safetensors').write_bytes((good / 'one' / WEIGHTS).read_bytes())
    name, reason = INDICES[kind]
    file = folder / 'model.safetensors.index.json'
    index = json.loads(file.read_text())
    index['weight_map'][UP] = name
    file.write_text(json.dumps(index))
    refused(folder, reason)


def test_shards_that_disagree_are_refused(good: Path, refused: Refused, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good / 'shards', tmp_path / 'model'))
    file = folder / 'model.safetensors.index.json'
    index = json.loads(file.read_text())
    where = index['weight_map']
    other = next(name for name in where.values() if name != where[UP])
    file.write_text(json.dumps({**index, 'weight_map': {**where, UP: other}}))
    refused(folder, f'names {UP} in {other}, which does not hold it')
    file.write_text(json.dumps(index))
    header, data = parts((folder / other).read_bytes())
    size = 4 * 48 * 32
    header[UP] = {'dtype': 'F32', 'shape': [48, 32], 'data_offsets': [len(data), len(data) + size]}
    (folder / other).write_bytes(safetensors(header, data + bytes(size)))
    refused(folder, f'tensor {UP} is in model-.*, too')


@pytest.mark.parametrize('name, shape, reason', [
    ('block_sparse_moe.experts.999999.w1.weight', [24, 32], 'of expert 8 is missing'),
    ('block_sparse_moe.experts.99999999999999.w1.weight', [24, 32], 'does not read'),
    ('block_sparse_moe.experts.00.w1.weight', [24, 32], 'does not read'),
    ('mlp.experts.3.gate_proj.weight', [24, 32], 'there twice'),
    ('mlp.experts.gate_up_proj', [8, 48, 32], 'there twice'),
    ('mlp.experts.gate_up_proj', [8, 49, 32], '49 rows')])
def test_experts_that_lie_are_refused(good: Path, refused: Refused, tmp_path: Path, name: str,
                                      shape: list[int], reason: str) -> None:
    folder = Path(shutil.copytree(good / 'mixture', tmp_path / 'model'))
    header, data = parts((folder / WEIGHTS).read_bytes())
    size = 4 * math.prod(shape)
    header[f'model.layers.0.{name}'] = {
        'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + size]}
    (folder / WEIGHTS).write_bytes(safetensors(header, data + bytes(size)))
    refused(folder, reason)


def test_many_names_of_which_the_last_stands_twice_are_refused_soon(tmp_path: Path) -> None:
    """To count how often each of them stands there takes more than a minute."""
    names = [*(f'"{k}":0' for k in range(300_000)), '"299999":0']
    header = f'{{{",".join(names)}}}'.encode()
    (tmp_path / WEIGHTS).write_bytes(len(header).to_bytes(8, 'little') + header)
    begun = time.monotonic()
    with pytest.raises(ImportModelError, match='two tensors 299999'):
        described(tmp_path / WEIGHTS)
    assert time.monotonic() - begun < 20.0


def test_memory_is_seen_where_it_is_taken(alone: Callable[..., Any]) -> None:
    assert 90e6 < alone(take_memory) < 200e6


def test_what_fails_half_way_leaves_nothing(folder: Path, tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was there before stays, though the model has it, too."""
    store = BlobStore(tmp_path / 'blobs', 1 << 40)
    manifest = imported(folder, store)
    store.folder.joinpath(f'{manifest.blocks[5].digest}.safetensors').unlink()
    before = {path.name for path in store.folder.glob('*.safetensors')}
    told: list[int] = []

    def read(*_: object) -> None:
        told.append(len({*store.folder.glob('*.safetensors')}))
        raise OSError('the disk is gone')
    monkeypatch.setattr(importing, 'read_manifest', read)
    with pytest.raises(OSError, match='the disk is gone'):
        imported(folder, store)
    assert told == [len(before) + 1]
    assert {path.name for path in store.folder.glob('*.safetensors')} == before
