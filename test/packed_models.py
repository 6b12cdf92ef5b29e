# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""GGUF files of small random models, with matrices of any stored type."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
from gguf_files import begun, ended
import numpy as np
import torch

from intradp_ros.systems.language.families import library
from intradp_ros.systems.language.stored import STORED_TYPES

#: Sizes of which rows are of whole blocks of all types.
WIDE = {'hidden_size': 256, 'intermediate_size': 512, 'num_hidden_layers': 3,
        'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 97,
        'max_position_embeddings': 128, 'head_dim': 64, 'eos_token_id': None, 'bos_token_id': None,
        'pad_token_id': None}


def packed(values: np.ndarray, name: str, seed: int = 0) -> np.ndarray:
    """Return numbers as bytes of a type; of those that gguf does not make, random ones."""
    type_ = STORED_TYPES[name]
    number = gguf.GGMLQuantizationType(type_.number)
    try:
        return gguf.quantize(values, number)
    except NotImplementedError:
        source = np.random.RandomState(seed)
        blocks = source.randint(0, 256, (values.size // type_.block, type_.block_bytes), np.uint8)
        size = float(np.abs(values).mean())
        if name == 'q6_k':
            blocks[:, 208:210] = np.array([size / 1024], np.float16).view(np.uint8)
        else:
            blocks[:, :4] = np.array([size / 256, size / 32], np.float16).view(np.uint8)
        return blocks.reshape(*values.shape[:-1], -1)


def write_packed(path: Path, family: str = 'llama', types: Mapping[str, str] | str = 'q8_0',
                 seed: int = 0, tied: bool = True, **shape: Any) -> Path:
    """
    Write a random model; `types` are those of matrices, by the end of their names in GGUF.

    The type of '' is that of all others.
    """
    chosen = types if isinstance(types, Mapping) else {'': types}
    transformers = library()
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(
        family, **{**WIDE, 'tie_word_embeddings': tied, **shape})
    model = transformers.AutoModelForCausalLM.from_config(config)
    writer, _, table = begun(path, config)
    for number, (full, tensor) in enumerate(model.state_dict().items()):
        stem, _, leaf = full.rpartition('.')
        if tied and stem == 'lm_head':
            continue
        theirs = f'{table.get_name(stem)}.{leaf}'
        if tensor.dim() == 1:
            values = torch.randn(tensor.shape) * 0.3 + 1
        else:
            values = torch.randn(tensor.shape) * 1.2 / tensor.shape[-1] ** 0.5
        array = values.float().numpy()
        if tensor.dim() == 1:
            writer.add_tensor(theirs, array)
            continue
        kind = next(kind for end, kind in chosen.items() if theirs.endswith(end))
        raw = packed(array, kind, seed * 100 + number)
        writer.add_tensor(theirs, raw, raw_dtype=gguf.GGMLQuantizationType(
            STORED_TYPES[kind].number))
    ended(writer)
    return path
