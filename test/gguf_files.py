# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""GGUF files of small models, as the converters of llama.cpp write them."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import torch

from intradp_ros.systems.language.expert_files import stack_experts
from intradp_ros.systems.language.stored import OF_DTYPE

ARCHITECTURES = {'gemma3_text': 'gemma3', 'mistral': 'llama', 'mixtral': 'llama',
                 'qwen3_moe': 'qwen3moe'}


def begun(path: Path, config: Any) -> tuple[gguf.GGUFWriter, str, Any]:
    """Return what writes a model of `transformers`, its architecture, and names of tensors."""
    name = ARCHITECTURES.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(path, name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_key_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get('full_attention', rope)['rope_theta'])
    if name.startswith('gemma'):
        writer.add_sliding_window(config.sliding_window)
    kinds = {text: kind for kind, text in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.get_tensor_name_map(kinds[name], config.num_hidden_layers)
    return writer, name, table


def ended(writer: gguf.GGUFWriter) -> None:
    """Write the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf(path: Path, model: Any, *, left_out: Callable[[str], bool] = lambda name: False,
               more: dict[str, torch.Tensor] | None = None,
               say: Callable[[Any], None] = lambda writer: None) -> Path:
    """Write a model of `transformers`; `left_out` tensors by name, `more` of them, `say` more."""
    config = model.config
    writer, name, table = begun(path, config)
    if 'expert' in str(model):
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(getattr(
            config, 'moe_intermediate_size', config.intermediate_size))
    say(writer)
    tied = config.tie_word_embeddings
    state = model.state_dict()
    tensors, find = stack_experts({name: (OF_DTYPE[tensor.dtype], tuple(tensor.shape)) for
                                   name, tensor in state.items()}, state.__getitem__)
    for full, tensor in ((name, find(name)) for name in tensors):
        assert isinstance(tensor, torch.Tensor)
        stem, _, leaf = full.rpartition('.')
        if left_out(full) or tied and stem == 'lm_head':
            continue
        values = tensor.float()
        if name == 'llama' and stem.endswith(('q_proj', 'k_proj')):
            heads = config.num_attention_heads if stem.endswith('q_proj') \
                else config.num_key_value_heads
            values = values.view(heads, 2, -1, values.shape[-1]).transpose(1, 2).reshape(
                values.shape)
        if name == 'gemma3' and 'norm' in stem:
            values = values + 1
        writer.add_tensor(f'{table.get_name(stem)}.{leaf}', values.contiguous().numpy())
    for theirs, tensor in (more or {}).items():
        writer.add_tensor(theirs, tensor.numpy())
    ended(writer)
    return path
