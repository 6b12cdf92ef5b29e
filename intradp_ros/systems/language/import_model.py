# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A model of `transformers`, from a folder of safetensors or a GGUF file, becomes blobs."""
from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
import json
from pathlib import Path
import re
import tempfile
from typing import Any

import torch

from intradp_ros.core.atomic_write import replacing
from intradp_ros.core.json_text import parse_json
from intradp_ros.systems.language.checkpoint import (
    check_tensors,
    EMBEDDING,
    Find,
    generation_of,
    ImportModelError,
    MATRIX,
    plain_config,
    refused,
)
from intradp_ros.systems.language.experts import check_mixture
from intradp_ros.systems.language.families import check_family, check_window, library
from intradp_ros.systems.language.folder_checkpoint import (
    BASE64,
    folder_checkpoint,
    NAMED_TEMPLATE,
    TOKENIZER_BYTES,
    TOKENIZER_TEXTS,
)
from intradp_ros.systems.language.gguf_checkpoint import gguf_checkpoint, is_gguf, TOKENIZER
from intradp_ros.systems.language.kernels import kernels
from intradp_ros.systems.language.manifest import (
    BlockFile,
    layout,
    Manifest,
    manifest_text,
    MAX_TENSORS,
    read_manifest,
)
from intradp_ros.systems.language.stored import OF_DTYPE, Stored
from intradp_ros.systems.language.template_trial import costs_too_much

#: Stores bytes (flat, uint8); returns their SHA-256.
Put = Callable[[torch.Tensor], str]
#: In this order in their blobs: those that share an input are next to each other.
_ORDER = ('q_proj.weight', 'k_proj.weight', 'v_proj.weight', 'gate_proj.weight', 'up_proj.weight',
          'q_proj.bias', 'k_proj.bias', 'v_proj.bias')
_TOKENIZER_FILES = (*TOKENIZER_TEXTS, *TOKENIZER_BYTES, TOKENIZER, 'config.json')
#: Of blobs that say what people call a model, and the most bytes of one.
NAME_FORMAT, MAX_NAME = 'language-model-name/1', 2048
_LAYER = re.compile(r'model\.layers\.([0-9]{1,4})\.(.+)')


def import_model(source: Path, put: Put, dtype: torch.dtype | None = None, name: str = '',
                 room: Callable[[int], None] = lambda nbytes: None) -> Manifest:
    """
    Turn a model into blobs, its manifest among them; the manifest's digest is the model's.

    `source` is a folder with ``config.json`` and safetensors, or a GGUF file.  Weights stay as
    they are stored, or become of `dtype`; no more than a blob of them is in memory at a time.
    `room` is called with the bytes of all weights before anything is stored, and may raise.

    :raises ImportModelError, FamilyError: if it is not such a model, or of a family that is not
        supported.
    :raises MissingPackageError: if a package is missing.
    """
    library()
    if not source.exists():
        raise ImportModelError(f'{source} does not exist: give a folder of safetensors or a '
                               'GGUF file')
    try:
        if is_gguf(source):
            found = gguf_checkpoint(source)
        elif source.is_dir():
            found = folder_checkpoint(source)
        else:
            raise ImportModelError(f'{source} is neither a folder of safetensors nor a GGUF file')
    except Exception as error:  # noqa: B902 - whatever libraries say of files
        raise refused(source, error) from None
    check_tensors(source, found.config, {name: shape for name, (_, shape) in
                                         found.tensors.items()})
    if found.tokenizer:
        _check_tokenizer(source, found.tokenizer)
    room(sum((OF_DTYPE[dtype] if dtype else type_).nbytes(shape)
             for type_, shape in found.tensors.values()))
    return store_model(name or model_name(source), found.config, found.find, tuple(found.tensors),
                       put, dtype, found.tokenizer, found.generation)


def model_name(source: Path) -> str:
    """Return what people call a model: the whole name of its folder, or that of its file."""
    source = source.resolve()
    if source.parent.name == 'snapshots' and source.parent.parent.name.startswith('models--'):
        return source.parent.parent.name.rpartition('--')[2]  # the hub's cache
    return source.name[:-len('.gguf')] if source.suffix.lower() == '.gguf' and source.is_file() \
        else source.name


def store_model(name: str, config: Mapping[str, Any], find: Find, names: tuple[str, ...],
                put: Put, dtype: torch.dtype | None, tokenizer: Mapping[str, str] | None,
                generation: Mapping[str, Any] | None = None) -> Manifest:
    """
    Store a model of which tensors are found by the names that `transformers` gives them.

    `generation` is what `generate` would do; without it, what the configuration says of it.
    """
    family = check_family(config)
    if generation is None:
        generation = generation_of(library().GenerationConfig.from_model_config(
            json.loads(json.dumps(dict(config)))), name)
    understood = library().AutoConfig.for_model(**config)
    check_mixture(family, understood)
    check_window(understood)
    plain = plain_config(config, understood)
    block_of: dict[tuple[int, bool], list[str]] = {}
    for full in names:
        if (match := _LAYER.fullmatch(full)) and 'rotary_emb' not in full:
            number, rest = int(match[1]), match[2]
            block_of.setdefault((number, not family.of_attention(rest)), []).append(rest)

    def store(tensors: list[tuple[str, Stored]]) -> BlockFile:
        if len(tensors) > MAX_TENSORS:
            raise ImportModelError(f'{name}: a layer of {len(tensors)} tensors')
        places, nbytes = layout([(n, t.type, t.shape) for n, t in tensors])
        data = torch.zeros(nbytes, dtype=torch.uint8)
        for place, (_, tensor) in zip(places, tensors):
            data[place.offset:place.offset + place.nbytes] = tensor.data
        return BlockFile(put(data), nbytes, places)

    def take(full: str) -> Stored:
        try:
            found = find(full)
        except KeyError:
            raise ImportModelError(f'{name}: tensor {full} is missing') from None
        tensor = found if isinstance(found, Stored) else Stored.of(found)
        return tensor if dtype in (None, tensor.type.dtype) else \
            Stored.of(kernels().floats(tensor).to(dtype))

    blocks = []
    for layer in range(int(config['num_hidden_layers'])):
        for is_mlp in (False, True):
            rests = sorted(block_of.get((layer, is_mlp), ()), key=_order)
            if not rests:
                raise ImportModelError(f'{name}: layer {layer} is missing')
            blocks.append(store([(r, take(f'model.layers.{layer}.{r}')) for r in rests]))
    for place, block in enumerate(blocks):
        if [(t.name, t.shape) for t in block.tensors] != \
                [(t.name, t.shape) for t in blocks[place % 2].tensors]:
            raise ImportModelError(f'{name}: layer {place // 2} is not like the first one: a '
                                   'tensor is missing, or of another shape')
    embedding = take(EMBEDDING if EMBEDDING in names or MATRIX not in names else MATRIX)
    head = [('norm.weight', take('model.norm.weight'))]
    if MATRIX in names or not config.get('tie_word_embeddings'):
        matrix = take(MATRIX)
        if not config.get('tie_word_embeddings') or not matrix.equals(embedding):
            head.append(('lm_head.weight', matrix))  # of tied ones as the library does
    tokenizer_file = None
    if tokenizer:
        data = _bytes(json.dumps(dict(tokenizer), sort_keys=True))
        tokenizer_file = BlockFile(put(data), data.nbytes, ())
    text = manifest_text(plain, blocks, store([('embed_tokens.weight', embedding)]), store(head),
                         tokenizer_file, generation)
    digest = put(_bytes(text))
    put(_bytes(json.dumps({'format': NAME_FORMAT, 'model': digest, 'name': name[:200]})))
    return read_manifest(text, digest, name)


def _bytes(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def load_tokenizer(data: torch.Tensor) -> Any:
    """Return the tokenizer of `transformers` that a blob holds (flat, uint8)."""
    return _tokenizer(parse_json(bytes(data.numpy().data), None))


def _tokenizer(files: Mapping[str, str]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            if isinstance(text, str) and (name in _TOKENIZER_FILES
                                          or NAMED_TEMPLATE.fullmatch(name)):
                with replacing(Path(folder) / name) as part:
                    part.write_bytes(base64.b64decode(text.removeprefix(BASE64))
                                     if text.startswith(BASE64) else text.encode())
        where = {'gguf_file': TOKENIZER} if TOKENIZER in files else {}
        return library().AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, **where)


def _check_tokenizer(source: Path, files: Mapping[str, str]) -> None:
    """Raise ImportModelError if a tokenizer cannot be used."""
    try:
        found = _tokenizer(files).chat_template or ()
    except Exception as error:  # noqa: B902 - whatever the library says of its own files
        text = ' '.join(str(error).split())[:300] or type(error).__name__
        if 'trust_remote_code' in text or 'remote code' in text:
            text = 'it brings code of its own, which is not run: save it as tokenizer.json'
        raise ImportModelError(f'{source}: its tokenizer cannot be used: {text}') from None
    templates = tuple(found.values()) if isinstance(found, dict) else (found,)
    if found and costs_too_much(templates):
        raise ImportModelError(f'{source}: its chat template takes too much time or memory for a '
                               'message of one letter: put another one into its files')


def _order(name: str) -> tuple[int, str]:
    ends = [number for number, end in enumerate(_ORDER) if name.endswith(end)]
    return ends[0] if ends else len(_ORDER), name

