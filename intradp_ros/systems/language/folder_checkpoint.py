# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A folder that `transformers` saved, read as the library reads it; no code in it is run."""
from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
import json
from pathlib import Path
import re
from typing import Any

import torch

from intradp_ros.core.json_text import read_json, read_text
from intradp_ros.core.limits import MAX_FILE
from intradp_ros.core.plain_file import open_to_read
from intradp_ros.systems.language.checkpoint import (
    Checkpoint,
    EMBEDDING,
    Find,
    generation_of,
    ImportModelError,
    MATRIX,
    plain_config,
    refused,
)
from intradp_ros.systems.language.expert_files import mxfp4_experts, stack_experts
from intradp_ros.systems.language.families import check_family, library
from intradp_ros.systems.language.manifest import check_config, MAX_LAYERS
from intradp_ros.systems.language.safetensors_file import Described, described
from intradp_ros.systems.language.stored import FLOAT32, OF_DTYPE

CONFIG, WEIGHTS, INDEX = 'config.json', 'model.safetensors', 'model.safetensors.index.json'
GENERATION_CONFIG = 'generation_config.json'
#: Files that make a tokenizer: of text, and of bytes; those of which one must be there.
TOKENIZER_TEXTS = ('tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json',
                   'added_tokens.json', 'chat_template.jinja', 'vocab.json', 'merges.txt')
#: Chat templates with names, such as ``tool_use``: the default one is in a file of its own.
NAMED_TEMPLATE = re.compile(r'additional_chat_templates/[\w-]{1,64}\.jinja', re.ASCII)
TOKENIZER_BYTES = ('tokenizer.model', 'spiece.model', 'sentencepiece.bpe.model')
_VOCABULARIES = ('tokenizer.json', 'vocab.json', *TOKENIZER_BYTES)
#: What stands before the text of a file of bytes.
BASE64 = 'base64:'
_POINTER = b'version https://git-lfs'
#: Types of safetensors, and what they are stored as: double precision as float32.
_TYPES = {'F64': FLOAT32, 'F32': FLOAT32, 'F16': OF_DTYPE[torch.float16],
          'BF16': OF_DTYPE[torch.bfloat16]}


def check_pointer(path: Path) -> None:
    """Raise ImportModelError for a file of Git LFS that stands for another one."""
    with open_to_read(path) as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise ImportModelError(f'{path} is a pointer of Git LFS, not the file itself: run '
                                   '"git lfs pull" in its folder')


def folder_checkpoint(folder: Path) -> Checkpoint:
    """
    Return what a folder holds.

    :raises ImportModelError, FamilyError: if it is not a model that can be taken.
    """
    raw = _config(folder)
    transformers = library()
    try:
        whole = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False)
        config = whole.get_text_config()
        text = next((raw[key] for key in ('text_config', 'llm_config', 'language_config')
                     if config is not whole and isinstance(raw.get(key), dict)), raw)
        check_family(config.to_dict())
        plain = plain_config(text, config)
        check_config(plain)
        of = GENERATION_CONFIG if (folder / GENERATION_CONFIG).exists() else CONFIG
    except Exception as error:  # noqa: B902 - whatever the library says of its own files
        raise refused(folder / CONFIG, error) from None
    try:
        generation = generation_of(_generation(folder, raw), of)
    except Exception as error:  # noqa: B902 - likewise
        raise refused(folder / of, error) from None
    plain['tie_word_embeddings'] = bool(getattr(whole, 'tie_word_embeddings', False))
    files = _weight_files(folder)
    where = {name: path for path, file in files.items() for name in file}
    names = _text_names(where, config is not whole)
    find = _finder({name: (where[full], full) for name, full in names.items()})
    tensors, find, others = mxfp4_experts(
        {name: files[where[full]][full] for name, full in names.items()}, find)
    for name, (kind, shape) in others.items():
        full = names[name]
        if kind not in _TYPES:
            raise ImportModelError(f'{where[full]}: {full} is of {kind}; quantised weights are '
                                   'taken as GGUF only: take the original weights')
        if name in tensors:
            raise ImportModelError(f'{where[full]}: {full} is there twice, also of four bits')
        tensors[name] = _TYPES[kind], shape
    stacked, find = stack_experts(tensors, find)
    return Checkpoint(plain, stacked, find, generation, _tokenizer_files(folder, raw))


def _config(folder: Path) -> Mapping[str, Any]:
    """Return what stands in ``config.json``; ImportModelError if it is not to be taken."""
    if (folder / 'adapter_config.json').exists():
        raise ImportModelError(f'{folder} holds an adapter (LoRA), not a model: merge it into its '
                               "model with peft's merge_and_unload() and save that")
    for path in folder.glob('*'):
        if path.is_symlink() and not path.exists():
            raise ImportModelError(f'{path} is a link to a file that is not there: download the '
                                   'model again')
    path = folder / CONFIG
    if not path.exists():
        inside = next((place for place in sorted(folder.glob('snapshots/*'))
                       if (place / CONFIG).exists()), None)
        ggufs = sorted(file.name for file in folder.iterdir()
                       if file.suffix.lower() == '.gguf')
        hint = f'give one of its GGUF files: {folder / ggufs[0]}' if ggufs else \
            f'give what was downloaded into it: {inside}' if inside else \
            'give a folder that transformers saved'
        raise ImportModelError(f'{folder} has no {CONFIG}: {hint}')
    check_pointer(path)
    try:
        raw = read_json(path)
    except (OSError, ValueError) as error:
        raise ImportModelError(f'{path}: {error}') from None
    if not isinstance(raw, dict):
        raise ImportModelError(f'{path} holds no JSON object')
    _check_layers(path, raw)
    inner = raw.get('text_config')
    said = raw.get('quantization_config') or isinstance(inner, dict) \
        and inner.get('quantization_config')
    method = said.get('quant_method', '?') if isinstance(said, dict) else said
    if said and (method, raw.get('model_type')) != ('mxfp4', 'gpt_oss'):
        raise ImportModelError(f'{folder}: its weights are quantised ({str(method)[:40]}), which '
                               'are taken as GGUF only: take the folder of the original weights')
    if 'auto_map' in raw and str(raw.get('model_type')) not in library().CONFIG_MAPPING:
        raise ImportModelError(f'{path} brings code of its own (auto_map), which is not run: take '
                               'a model that transformers itself knows')
    return raw


def _check_layers(path: Path, part: Any) -> None:
    """Raise ImportModelError for more layers than any model has, before they are made."""
    for key, value in part.items() if isinstance(part, dict) else ():
        if 'layer' in key and 'per_layer' not in key and isinstance(value, (int, float)) \
                and value > MAX_LAYERS:
            raise ImportModelError(f'{path}: {key[:60]} is {str(value)[:40]}; at most '
                                   f'{MAX_LAYERS} layers are taken')
        _check_layers(path, value)


def _generation(folder: Path, raw: Mapping[str, Any]) -> Any:
    """Return the generation configuration that `generate` uses."""
    kind = library().GenerationConfig
    if (folder / GENERATION_CONFIG).exists():
        check_pointer(folder / GENERATION_CONFIG)
        read_json(folder / GENERATION_CONFIG)  # within limits
        return kind.from_pretrained(folder, local_files_only=True)
    return kind.from_model_config(json.loads(json.dumps(dict(raw))))


def _weight_files(folder: Path) -> dict[Path, Described]:
    """Return the files that the library would read, with dtype and shape of their tensors."""
    index: dict[str, str] = {}
    if (folder / WEIGHTS).exists():
        paths = [folder / WEIGHTS]
    elif (folder / INDEX).exists():
        index = _index(folder / INDEX)
        paths = [folder / name for name in sorted({*index.values()})]
        lost = [path.name for path in paths if not path.exists()]
        if lost:
            raise ImportModelError(f'{folder}: {lost[0]} is missing, one of {len(lost)} of '
                                   f'{len(paths)} files that {INDEX} names: download it')
    else:
        paths = [path for path in sorted(folder.glob('*.safetensors'))
                 if not path.name.startswith(('consolidated', 'adapter'))]
    if not paths:
        raise ImportModelError(f'{folder}: no *.safetensors; files of pickle are not taken')
    found: dict[Path, Described] = {}
    where: dict[str, Path] = {}
    for path in paths:
        check_pointer(path)
        try:
            found[path] = described(path)
        except Exception as error:  # noqa: B902 - of safetensors, or of the disk
            raise refused(path, error) from None
        for name in found[path]:
            if where.setdefault(name, path) is not path:
                raise ImportModelError(f'{path}: tensor {name} is in {where[name].name}, too: '
                                       'remove the file that is not of this model')
    for name, file in index.items():
        if where.get(name) != folder / file:
            raise ImportModelError(f'{folder / INDEX} names {name[:200]} in {file}, which does '
                                   'not hold it: they are of two downloads')
    return found


def _index(path: Path) -> dict[str, str]:
    """Return which file of a folder holds which tensor."""
    check_pointer(path)
    try:
        named = read_json(path, MAX_FILE)['weight_map']
        items = list(named.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ImportModelError(f'{path}: no index of weights ({error})') from None
    for _, name in items:
        if not isinstance(name, str) or not name.isprintable() or '\\' in name \
                or name != Path(name).name or not name.endswith('.safetensors'):
            raise ImportModelError(f'{path} names {str(name)[:100]!r}, which is not a file of '
                                   'safetensors in its folder')
    return dict(items)


def _text_names(files: Mapping[str, Path], of_more: bool) -> dict[str, str]:
    """
    Return the names of the text model's tensors, as the library's text model has them.

    Of a model `of_more` than text (pictures, say) the other tensors are left out.
    """
    ends = [name for name in files if name.endswith('embed_tokens.weight')]
    heads = [name for name in files if name == MATRIX or name.endswith('.' + MATRIX)]
    prefix = min((name.removesuffix('embed_tokens.weight') for name in ends), key=len,
                 default=None)
    if prefix is None:
        layers = [name.split('layers.0.')[0] for name in files if 'layers.0.' in name]
        prefix = min(layers, key=len, default='model.')
    own = EMBEDDING.removesuffix('embed_tokens.weight')
    names = {own + name.removeprefix(prefix): name for name in files
             if name.startswith(prefix) and name not in heads}
    if heads:
        names[MATRIX] = heads[0]
    if not of_more:
        taken = {*names.values()}
        names |= {name: name for name in files if name not in taken and name not in names}
    return names


def _finder(where: Mapping[str, tuple[Path, str]]) -> Find:
    from safetensors import safe_open

    @cache  # a description of many experts takes long to read
    def opened(path: Path) -> Any:
        return safe_open(path, framework='pt')

    def find(name: str) -> torch.Tensor:
        path, full = where[name]
        tensor: torch.Tensor = opened(path).get_tensor(full)
        return tensor.float() if tensor.dtype == torch.float64 else tensor
    return find


def _tokenizer_files(folder: Path, raw: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the files of a tokenizer; None where there is none: of weights alone."""
    if not any((folder / name).exists() for name in _VOCABULARIES):
        if (folder / 'tokenizer_config.json').exists() or (folder / 'tekken.json').exists():
            raise ImportModelError(f'{folder} has no tokenizer.json, only other files of its '
                                   'tokenizer: download it, too')
        return None
    found = {}
    templates = [f'{path.parent.name}/{path.name}' for path in sorted(
        folder.glob('additional_chat_templates/*.jinja'))]
    for name in (*TOKENIZER_TEXTS, *TOKENIZER_BYTES, *templates):
        path = folder / name
        if name in templates and not NAMED_TEMPLATE.fullmatch(name):
            raise ImportModelError(f'{path}: a template has a name of letters, digits, _ and -')
        if path.exists():
            check_pointer(path)
            if path.stat().st_size > MAX_FILE:
                raise ImportModelError(f'{path} is larger than {MAX_FILE} bytes')
            found[name] = BASE64 + base64.b64encode(path.read_bytes()).decode() \
                if name in TOKENIZER_BYTES else read_text(path, MAX_FILE)
    # by which the library chooses a class
    found[CONFIG] = json.dumps({key: raw[key] for key in ('model_type', 'tokenizer_class')
                                if isinstance(raw.get(key), str)})
    said = read_json(folder / 'tokenizer_config.json', MAX_FILE) \
        if 'tokenizer_config.json' in found else {}
    if isinstance(said, dict) and 'auto_map' in said and 'tokenizer.json' not in found:
        raise ImportModelError(f'{folder}: its tokenizer brings code of its own (auto_map), which '
                               'is not run: save it as tokenizer.json')
    return found
