# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a GGUF file says of its model, and its tensors by the names of `transformers`.

The library reads the configuration; what it passes over is read here, or refused: how positions
are scaled, sizes of heads and windows.
"""
from __future__ import annotations

import base64
from collections.abc import Mapping
import importlib
import math
from pathlib import Path
from typing import Any

import torch

from intradp_ros.core.extras import pip_install
from intradp_ros.systems.language.checkpoint import (
    check_layers,
    Checkpoint,
    EMBEDDING,
    generation_of,
    ImportModelError,
    MATRIX,
    needed_tensors,
    plain_config,
)
from intradp_ros.systems.language.families import check_family, library, MissingPackageError
from intradp_ros.systems.language.folder_checkpoint import BASE64, check_pointer
from intradp_ros.systems.language.gguf_file import ListOf, MAGIC, read_gguf
from intradp_ros.systems.language.manifest import check_config, MAX_LAYERS
from intradp_ros.systems.language.stored import Stored

TOKENIZER = 'tokenizer.gguf'
#: Tensors that scale positions: for each half of a head's elements a divisor of its frequency.
_FREQUENCIES = 'rope_freqs.weight'
#: Keys of files behind the architecture's name, and what the library calls them.
_KEYS = {'attention.key_length': 'head_dim', 'attention.sliding_window': 'sliding_window',
         'attn_logit_softcapping': 'attn_logit_softcapping',
         'final_logit_softcapping': 'final_logit_softcapping',
         'expert_feed_forward_length': 'moe_intermediate_size'}
#: Keys of how much positions are scaled by, the one that counts first.
_FACTORS = ('rope.scaling.factor', 'rope.scale_linear')
#: Keys of numbers that are one for all layers.
_NUMBERS = ('block_count', 'context_length', 'embedding_length', 'feed_forward_length',
            'attention.head_count', 'attention.head_count_kv', 'rope.freq_base', 'expert_count',
            'expert_used_count', 'attention.layer_norm_rms_epsilon', 'vocab_size',
            'rope.dimension_count', *_FACTORS, *_KEYS)
_WITH_WINDOW = ('gemma2', 'gemma3', 'phi3')
#: Layers of the sizes of Gemma whose queries are scaled by the width of a head's share, not by
#: that of a head.
_SCALED_BY_WIDTH = {'gemma2': 46, 'gemma3': 62}
#: Ids of tokens that end an answer, as other readers of such files take them.
_ENDS = ('eos_token_id', 'eot_token_id', 'eom_token_id')


def is_gguf(path: Path) -> bool:
    """Return whether a file is one of GGUF, by its name or by how it begins."""
    if not path.is_file():
        return False
    with path.open('rb') as file:
        return path.suffix.lower() == '.gguf' or file.read(len(MAGIC)) == MAGIC


def gguf_checkpoint(path: Path) -> Checkpoint:
    """
    Return what a file holds, its weights as they are stored there.

    :raises ImportModelError, FamilyError: if it is not a model that can be taken.
    :raises MissingPackageError: if gguf is not installed.
    """
    check_pointer(path)
    where: dict[str, Any] = {'pretrained_model_name_or_path': str(path.parent),
                             'gguf_file': path.name, 'local_files_only': True}
    transformers = library()
    file = _GgufFile(path)
    try:
        config = file.mixture(transformers, transformers.AutoConfig.from_pretrained(**where))
    except ValueError as error:  # an architecture that the library does not read from them
        raise ImportModelError(f'{path}: {str(error)[:200]} Take the folder of the original '
                               'weights, where such models are taken') from None
    check_family({'model_type': config.model_type})
    plain = plain_config(config.to_diff_dict(), config) | file.overrides(config)
    check_config(plain)
    needed = needed_tensors(plain)
    known = file.names(plain, needed)
    ends = [int(file.said[key]) for end in _ENDS
            if (key := f'tokenizer.ggml.{end}') in file.said]
    named = {known.get(theirs, theirs): theirs for theirs in file.tensors
             if theirs != _FREQUENCIES}

    def find(name: str) -> Stored:
        return file.as_the_library_has_it(named[name], plain)
    generation = generation_of(transformers.GenerationConfig(
        eos_token_id=list(dict.fromkeys(ends)) or None), path)
    tokenizer = {TOKENIZER: BASE64 + base64.b64encode(file.tokenizer()).decode()} \
        if 'tokenizer.ggml.tokens' in file.said else None
    return Checkpoint(plain, {name: (file.tensors[theirs].type, file.tensors[theirs].shape)
                              for name, theirs in named.items()}, find, generation, tokenizer)


class _GgufFile:
    """What a file says of its model (`said`), and its `tensors` by its own names."""

    def __init__(self, path: Path) -> None:
        try:
            self._library = importlib.import_module('gguf')
        except ModuleNotFoundError as error:
            raise MissingPackageError(f'GGUF files need the package {error.name}: '
                                      f'{pip_install("language")}') from None
        self.path = path
        self.tensors = read_gguf(path)
        self.said = self.tensors.said
        self.architecture = str(self.said.get('general.architecture'))[:40]
        for key in (f'{self.architecture}.{key}' for key in _NUMBERS):
            value = self.said.get(key)
            if isinstance(value, (str, ListOf)):
                raise ImportModelError(f'{path}: {key} is not a number: layers that differ are '
                                       'not taken')
            if isinstance(value, float) and not 0 <= value < math.inf:
                raise ImportModelError(f'{path}: {key} is {value}: convert the original weights '
                                       'once more')
        if int(self.said.get('split.count', 1)) > 1:
            raise ImportModelError(
                f'{path} is one of {self.said["split.count"]} files of a model: join them by '
                '"llama-gguf-split --merge FIRST JOINED" and give the joined one')
        layers = self.said.get(f'{self.architecture}.block_count')
        if type(layers) is not int or not 1 <= layers <= MAX_LAYERS:
            raise ImportModelError(f'{path}: {self.architecture}.block_count is {layers}; '
                                   f'1 to {MAX_LAYERS} layers are taken')
        check_layers(path, self.architecture, layers, self.tensors, 'blk.')
        self._frequencies = self.tensors[_FREQUENCIES].floats() \
            if _FREQUENCIES in self.tensors else None

    def mixture(self, transformers: Any, config: Any) -> Any:
        """Return the configuration of a Mixtral where files call it a Llama with experts."""
        if self.architecture != 'llama' or not self.said.get('llama.expert_count'):
            return config
        return transformers.MixtralConfig.from_dict({
            **config.to_diff_dict(), 'model_type': 'mixtral',
            'num_local_experts': int(self.said['llama.expert_count']),
            'num_experts_per_tok': int(self.said['llama.expert_used_count'])})

    def overrides(self, config: Any) -> dict[str, Any]:
        """Return what the file says of a model and the library does not read."""
        name, found = self.architecture, {}
        for key, ours in _KEYS.items():
            value = self.said.get(f'{name}.{key}')
            if value is not None and (ours != 'sliding_window' or name in _WITH_WINDOW) \
                    and (ours != 'moe_intermediate_size' or hasattr(config, ours)):
                found[ours] = value
        if name in _SCALED_BY_WIDTH:  # as other readers of such files do, which do not say it
            found['query_pre_attn_scalar'] = config.hidden_size // config.num_attention_heads \
                if _SCALED_BY_WIDTH[name] == config.num_hidden_layers else \
                found.get('head_dim', config.head_dim)
        if config.model_type == 'mistral':  # the library's default is a window
            found['sliding_window'] = None
        size = found.get('head_dim') or config.hidden_size // config.num_attention_heads
        if (turned := self.said.get(f'{name}.rope.dimension_count', size)) != size:
            raise ImportModelError(f'{self.path} turns {turned} of the {size} elements of a head '
                                   'by positions, which is not read from GGUF files: take the '
                                   'folder of the original weights')
        factor = float(next(filter(None, (self.said.get(f'{name}.{key}') for key in _FACTORS)), 0))
        kind = self.said.get(f'{name}.rope.scaling.type', 'linear' if factor not in (
            0, 1) else 'none')
        if kind == 'linear' and not factor:
            raise ImportModelError(f'{self.path} scales positions, and has no factor: convert the '
                                   'original weights once more')
        if kind == 'linear' and self._frequencies is None:
            found['rope_parameters'] = self._linear(config, factor)
        elif kind != 'none' or any(tensor.startswith('rope_factors') for tensor in self.tensors):
            raise ImportModelError(f'{self.path} scales positions by {kind!r}, which is not read '
                                   'from GGUF files: take the folder of the original weights')
        if self._frequencies is not None:
            found['rope_parameters'] = self._divided(config)
        return found

    def _linear(self, config: Any, factor: float) -> dict[str, Any]:
        scaled = {'rope_type': 'linear', 'factor': factor}
        given = dict(config.rope_parameters)
        if 'full_attention' in given:
            return given | {'full_attention': given['full_attention'] | scaled}
        return given | scaled

    def _divided(self, config: Any) -> dict[str, Any]:
        """Return parameters of positions whose frequencies are divided, as of Llama 3."""
        assert self._frequencies is not None
        factors = self._frequencies.flatten().tolist()
        dim = self.said.get(f'{self.architecture}.attention.key_length') \
            or config.hidden_size // config.num_attention_heads
        if self._frequencies.shape != (dim // 2,) \
                or not all(0 < factor < math.inf for factor in factors):
            raise ImportModelError(f'{self.path}: tensor {_FREQUENCIES} is not of {dim // 2} '
                                   'positive numbers, half the size of a head')
        return {'rope_type': 'longrope', 'rope_theta': config.rope_parameters['rope_theta'],
                'short_factor': factors, 'long_factor': factors, 'attention_factor': 1.0,
                'factor': 1.0, 'original_max_position_embeddings': config.max_position_embeddings}

    def names(self, plain: Mapping[str, Any], needed: Mapping[str, object]) -> dict[str, str]:
        """Return the library's names of all tensors that a model may have, by the file's."""
        kinds = {text: kind for kind, text in self._library.MODEL_ARCH_NAMES.items()}
        table = self._library.get_tensor_name_map(kinds[self.architecture],
                                                  int(plain['num_hidden_layers']))
        found = {}
        for full in {*needed, EMBEDDING, MATRIX}:
            stem, _, leaf = full.rpartition('.')
            if theirs := table.get_name(stem):
                found[f'{theirs}.{leaf}'] = full
        return found

    def as_the_library_has_it(self, name: str, plain: Mapping[str, Any]) -> Stored:
        """Return a tensor: of Llama queries and keys are turned, of Gemma norms have 1 more."""
        tensor = self.tensors[name]
        part = name.split('.')[-2]
        if self.architecture == 'llama' and part in ('attn_q', 'attn_k'):
            heads = plain['num_attention_heads'] if part == 'attn_q' else \
                plain.get('num_key_value_heads') or plain['num_attention_heads']
            return tensor.order(_unturned(tensor.shape[0], int(heads)))
        if self.architecture.startswith('gemma') and part.endswith('norm'):
            return Stored.of(tensor.floats() - 1)
        return tensor

    def tokenizer(self) -> bytes:
        """Return a GGUF file of nothing but the tokenizer."""
        fields = [data for key, data in self.tensors.raw.items()
                  if key == 'general.architecture' or key.startswith('tokenizer.')]
        head = MAGIC + (3).to_bytes(4, 'little') + bytes(8) + len(fields).to_bytes(8, 'little')
        return head + b''.join(fields)


def _unturned(rows: int, heads: int) -> torch.Tensor:
    """Return where in a file the rows are that the library has one after another."""
    return torch.arange(rows).view(heads, rows // heads // 2, 2).transpose(1, 2).reshape(-1)
