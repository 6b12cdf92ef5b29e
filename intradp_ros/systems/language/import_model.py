# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A model of `transformers`, from a folder of safetensors or a GGUF file, becomes blobs."""
from __future__ import annotations

from collections.abc import Callable, Mapping
import hashlib
import json
from pathlib import Path
import tempfile
from typing import Any

import torch

from intradp_ros.systems.language.families import check_family, library
from intradp_ros.systems.language.manifest import (
    BlockFile,
    DTYPES,
    layout,
    Manifest,
    manifest_text,
    MAX_TENSORS,
    read_manifest,
)

#: Returns a tensor of a checkpoint by its name; KeyError if there is none.
Find = Callable[[str], torch.Tensor]
#: Stores bytes (flat, uint8); returns their SHA-256.
Put = Callable[[torch.Tensor], str]
#: In this order in their blobs: those that share an input are next to each other.
_ORDER = ('q_proj.weight', 'k_proj.weight', 'v_proj.weight', 'gate_proj.weight', 'up_proj.weight',
          'q_proj.bias', 'k_proj.bias', 'v_proj.bias')
_TOKENIZER_FILES = ('tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json',
                    'chat_template.jinja', 'added_tokens.json')
_SUFFIX = '.gguf'


class ImportModelError(ValueError):
    """A folder or file that is no model which can be taken; the text names cause and fix."""


def import_model(source: Path, put: Put, dtype: torch.dtype | None = None,
                 name: str = '') -> Manifest:
    """
    Turn a model into blobs, its manifest among them; the manifest's digest is the model's.

    `source` is a folder with ``config.json`` and safetensors, or a GGUF file.  Weights keep
    their precision, or become of `dtype`.

    Raises
    ------
    ImportModelError
        If it is no such model, or of a family that is not supported.

    """
    transformers = library()
    is_gguf = source.suffix == _SUFFIX
    if not source.exists():
        raise ImportModelError(f'{source} does not exist: give a folder of safetensors or a '
                               'GGUF file')
    where: dict[str, Any] = {'pretrained_model_name_or_path': str(source)}
    if is_gguf:
        where = {'pretrained_model_name_or_path': str(source.parent), 'gguf_file': source.name}
    try:
        config = transformers.AutoConfig.from_pretrained(**where, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ImportModelError(f'{source}: {" ".join(str(error).split())[:300]}') from None
    tokenizer = None  # of weights alone: they answer tokens, not texts
    if is_gguf or any((source / file).exists() for file in ('tokenizer.json', 'tokenizer.model')):
        tokenizer = transformers.AutoTokenizer.from_pretrained(**where, local_files_only=True)
    config = config.get_text_config()
    plain = config.to_diff_dict() | {
        'model_type': config.model_type, 'num_hidden_layers': config.num_hidden_layers,
        'hidden_size': config.hidden_size, 'num_attention_heads': config.num_attention_heads,
        'num_key_value_heads': config.num_key_value_heads, 'vocab_size': config.vocab_size,
        'max_position_embeddings': config.max_position_embeddings,
        'tie_word_embeddings': config.tie_word_embeddings}
    if getattr(config, 'head_dim', None):
        plain['head_dim'] = config.head_dim
    if is_gguf:
        weights = transformers.AutoModelForCausalLM.from_pretrained(
            **where, dtype=dtype or torch.float32, local_files_only=True).state_dict()
        find: Find = weights.__getitem__
        names = tuple(weights)
    else:
        find, names = _safetensors(source)
    return store_model(name or source.stem, plain, find, names, put, dtype,
                       _tokenizer_files(tokenizer) if tokenizer else None)


def store_model(name: str, config: Mapping[str, Any], find: Find, names: tuple[str, ...],
                put: Put, dtype: torch.dtype | None, tokenizer: Mapping[str, str] | None,
                ) -> Manifest:
    """Store a model of which tensors are found by the names that `transformers` gives them."""
    family = check_family(config)
    prefix = next((n.split('embed_tokens.')[0] for n in names if 'embed_tokens.' in n), 'model.')
    block_of: dict[tuple[int, bool], list[str]] = {}
    for full in names:
        if full.startswith(f'{prefix}layers.'):
            number, rest = full.removeprefix(f'{prefix}layers.').split('.', 1)
            if 'rotary_emb' not in rest:
                block_of.setdefault((int(number), not family.of_attention(rest)), []).append(rest)

    def store(tensors: list[tuple[str, torch.Tensor]]) -> BlockFile:
        if len(tensors) > MAX_TENSORS:
            raise ImportModelError(f'{name}: a layer of {len(tensors)} tensors')
        places, nbytes = layout([(n, t.dtype, tuple(t.shape)) for n, t in tensors])
        data = torch.zeros(nbytes, dtype=torch.uint8)
        for place, (_, tensor) in zip(places, tensors):
            data[place.offset:place.offset + place.nbytes] = \
                tensor.contiguous().view(-1).view(torch.uint8)
        return BlockFile(put(data), nbytes, places)

    def take(full: str) -> torch.Tensor:
        try:
            tensor = find(full)
        except KeyError:
            raise ImportModelError(f'{name}: tensor {full} is missing') from None
        tensor = tensor if dtype is None else tensor.to(dtype)
        if tensor.dtype not in DTYPES.values():
            raise ImportModelError(f'{name}: {full} is of {tensor.dtype}; quantised weights are '
                                   'taken as GGUF only')
        return tensor

    blocks = []
    for layer in range(int(config['num_hidden_layers'])):
        for is_mlp in (False, True):
            rests = sorted(block_of.get((layer, is_mlp), ()), key=_order)
            if not rests:
                raise ImportModelError(f'{name}: layer {layer} is missing')
            blocks.append(store([(r, take(f'{prefix}layers.{layer}.{r}')) for r in rests]))
    for place, block in enumerate(blocks):
        if [(t.name, t.shape) for t in block.tensors] != \
                [(t.name, t.shape) for t in blocks[place % 2].tensors]:
            raise ImportModelError(f'{name}: layer {place // 2} is not like the first one: a '
                                   'tensor is missing, or of another shape')
    embedding = take(f'{prefix}embed_tokens.weight')
    head = [('norm.weight', take(f'{prefix}norm.weight'))]
    if not config.get('tie_word_embeddings'):
        head.append(('lm_head.weight', take('lm_head.weight')))
    tokenizer_file = None
    if tokenizer:
        data = torch.frombuffer(bytearray(json.dumps(dict(tokenizer)).encode()),
                                dtype=torch.uint8)
        tokenizer_file = BlockFile(put(data), data.nbytes, ())
    text = manifest_text(name, config, embedding.dtype, blocks,
                         store([('embed_tokens.weight', embedding)]), store(head), tokenizer_file)
    put(torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8))
    return read_manifest(text, hashlib.sha256(text.encode()).hexdigest())


def load_tokenizer(data: torch.Tensor) -> Any:
    """Return the tokenizer of `transformers` that a blob holds (flat, uint8)."""
    files = json.loads(bytes(data.numpy().data))
    with tempfile.TemporaryDirectory() as folder:
        for name in _TOKENIZER_FILES:
            if isinstance(text := files.get(name), str):
                (Path(folder) / name).write_text(text)
        return library().AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False)


def _tokenizer_files(tokenizer: Any) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return {name: path.read_text() for name in _TOKENIZER_FILES
                if (path := Path(folder) / name).exists()}


def _order(name: str) -> tuple[int, str]:
    ends = [number for number, end in enumerate(_ORDER) if name.endswith(end)]
    return ends[0] if ends else len(_ORDER), name


def _safetensors(folder: Path) -> tuple[Find, tuple[str, ...]]:
    from safetensors import safe_open, SafetensorError
    where: dict[str, Path] = {}
    for path in sorted(folder.glob('*.safetensors')):
        try:
            with safe_open(path, framework='pt') as file:
                where |= dict.fromkeys(file.keys(), path)
        except SafetensorError as error:
            raise ImportModelError(f'{path}: {error}') from None
    if not where:
        raise ImportModelError(f'{folder}: no *.safetensors; files of pickle are not taken')

    def find(name: str) -> torch.Tensor:
        with safe_open(where[name], framework='pt') as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor
    return find, tuple(where)
