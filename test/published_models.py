# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Configurations of published language models, of small size and with random weights.

Files are as they are published: ``config.json`` of older releases with all its options, ends by
number, special tokens, a padded vocabulary, shards, half precision.  Only sizes are smaller.
Numbers of tokens are written as the tokens' texts.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
import json
import math
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    Regex,
    Tokenizer,
    trainers,
)
import torch

from intradp_ros.systems.language.families import library

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+" \
    r'[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
_TEXT = [' '.join(__doc__.split()), 'A robot computes what it holds, 0 1 2 17 25 42.',
         'Grüße, naïve café! 日本語'] * 4
PROMPTS = ('A device computes its layers', '  two blanks, then "quotes" , ca n\'t .',
           'Grüße 🤖 日本語\n\nok   ', 'A fleet of robots computes a network together, and each '
           'of them has some layers; what does not fit is read from its disk: 17 + 25 = 42')
CHATS: Mapping[str, list[dict[str, str]]] = {
    'one': [{'role': 'user', 'content': 'What is a robot?'}],
    'system': [{'role': 'system', 'content': 'Be brief. '}, {'role': 'user', 'content': ' Hi '}],
    'turns': [{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': ' Hello. '},
              {'role': 'user', 'content': 'Grüße 🤖\n\n'}],
    'twice': [{'role': 'user', 'content': 'a'}, {'role': 'user', 'content': 'b'}]}
_TURNS = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
          "'<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
_HEADERS = ('{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}'
            '<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}'
            '{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n'
            '{% endif %}')
#: One that raises, and has a turn for each.
_STRICT = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
           "{{ raise_exception('no system here') }}{% endif %}{% for m in messages %}"
           "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
           "{{ raise_exception('turns must alternate') }}{% endif %}[INST] {{ m['content'] }}"
           "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %} [/INST]{% endfor %}")


@dataclass(frozen=True)
class Published:
    """
    A configuration: `front` and `back` are special tokens before and behind all others.

    The vocabulary of the weights has `padding` more tokens than the tokenizer.
    """

    tokenizer: str
    config: Mapping[str, Any]
    front: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    padding: int = 0
    generation: Mapping[str, Any] | None = None
    said: Mapping[str, Any] = field(default_factory=dict)
    template: str = _TURNS
    dtype: torch.dtype = torch.bfloat16
    shards: int = 1


def _config(family: str, cls: str, **more: Any) -> dict[str, Any]:
    return {
        'model_type': family, 'architectures': [f'{cls}ForCausalLM'], 'hidden_size': 64,
        'intermediate_size': 128, 'num_hidden_layers': 4, 'num_attention_heads': 4,
        'num_key_value_heads': 2, 'max_position_embeddings': 8192, 'rms_norm_eps': 1e-5,
        'hidden_act': 'silu', 'initializer_range': 0.02, 'rope_theta': 10000.0,
        'attention_dropout': 0.0, 'torch_dtype': 'bfloat16', 'transformers_version': '4.40.0',
        'use_cache': True, **more}


_SPM = ('<unk>', '<s>', '</s>')
_SPM_SAID = {'tokenizer_class': 'LlamaTokenizer', 'bos_token': '<s>', 'eos_token': '</s>',
             'unk_token': '<unk>', 'add_bos_token': True, 'add_eos_token': False, 'legacy': False,
             'clean_up_tokenization_spaces': False, 'sp_model_kwargs': {}}
_LLAMA3 = ('<|begin_of_text|>', '<|end_of_text|>', '<|start_header_id|>', '<|end_header_id|>',
           '<|eom_id|>', '<|eot_id|>')
_LLAMA3_ENDS = ['<|end_of_text|>', '<|eom_id|>', '<|eot_id|>']
_LLAMA3_ROPE = {'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,
                'original_max_position_embeddings': 8192, 'rope_type': 'llama3'}
_LLAMA3_SAID = {'tokenizer_class': 'PreTrainedTokenizerFast', 'bos_token': '<|begin_of_text|>',
                'eos_token': '<|eot_id|>', 'clean_up_tokenization_spaces': True}
_QWEN = ('<|endoftext|>', '<|im_start|>', '<|im_end|>')
_QWEN_SAID = {'tokenizer_class': 'Qwen2Tokenizer', 'bos_token': None, 'eos_token': '<|im_end|>',
              'pad_token': '<|endoftext|>', 'add_bos_token': False, 'errors': 'replace',
              'clean_up_tokenization_spaces': False}
_QWEN_CONFIG = {'bos_token_id': '<|endoftext|>', 'eos_token_id': '<|im_end|>',
                'rope_theta': 1000000.0, 'rms_norm_eps': 1e-6, 'use_sliding_window': False,
                'max_window_layers': 21}
_GEMMA = ('<pad>', '<eos>', '<bos>', '<unk>', '<start_of_turn>', '<end_of_turn>')
_GEMMA_SAID = {'tokenizer_class': 'GemmaTokenizer', 'bos_token': '<bos>', 'eos_token': '<eos>',
               'pad_token': '<pad>', 'unk_token': '<unk>', 'add_bos_token': True,
               'spaces_between_special_tokens': False, 'clean_up_tokenization_spaces': False}
_GEMMA_ENDS = {'eos_token_id': [1, '<end_of_turn>'], 'bos_token_id': 2, 'pad_token_id': 0,
               'cache_implementation': 'hybrid'}
_GEMMA2 = {'attn_logit_softcapping': 50.0, 'final_logit_softcapping': 30.0, 'head_dim': 32,
           'hidden_activation': 'gelu_pytorch_tanh', 'sliding_window': 8, 'rms_norm_eps': 1e-6}
_GEMMA3 = {'attn_logit_softcapping': None, 'final_logit_softcapping': None, 'head_dim': 32,
           'hidden_activation': 'gelu_pytorch_tanh', 'sliding_window': 8, 'num_hidden_layers': 7,
           'sliding_window_pattern': 6, 'rope_local_base_freq': 10000, 'rope_theta': 1000000,
           'query_pre_attn_scalar': 256, 'rms_norm_eps': 1e-6, 'num_key_value_heads': 1}
_PHI = ('<|endoftext|>', '<|assistant|>', '<|user|>', '<|end|>')
_PHI_SAID = {**_SPM_SAID, 'eos_token': '<|endoftext|>', 'add_bos_token': False}
_PHI_CONFIG = {'bos_token_id': 1, 'eos_token_id': '<|endoftext|>', 'pad_token_id': 0,
               'num_key_value_heads': 4, 'original_max_position_embeddings': 4096,
               'auto_map': {'AutoConfig': 'configuration_phi3.Phi3Config'}}
_LONG = {'type': 'longrope', 'short_factor': [1.0, 1.02, 1.03, 1.05, 1.1, 1.3, 1.5, 2.1],
         'long_factor': [1.07, 1.12, 1.15, 1.42, 3.0, 9.0, 38.0, 64.7]}
_PLAIN = {'tokenizer_class': 'PreTrainedTokenizerFast', 'eos_token': '<end>',
          'clean_up_tokenization_spaces': False}
_END: Mapping[str, Any] = {'front': ('<end>', '<|im_start|>', '<|im_end|>'), 'said': _PLAIN}
_ENDS = {'eos_token_id': 0}
_GRANITE = {'attention_multiplier': 0.015625, 'embedding_multiplier': 12.0,
            'residual_multiplier': 0.22, 'logits_scaling': 8.0, 'tie_word_embeddings': True}
_MIXED = {'sliding_window': 8, 'layer_types': ['sliding_attention'] * 3 + ['full_attention']}
_DISTILLED = ('<｜end▁of▁sentence｜>', '<｜begin▁of▁sentence｜>')

PUBLISHED: Mapping[str, Published] = {
    'Llama 3.1': Published('llama3', _config(
        'llama', 'Llama', bos_token_id='<|begin_of_text|>', eos_token_id=_LLAMA3_ENDS,
        rope_scaling=_LLAMA3_ROPE, rope_theta=500000.0, max_position_embeddings=131072,
        pretraining_tp=1, mlp_bias=False, tie_word_embeddings=False), back=_LLAMA3,
        generation={'eos_token_id': _LLAMA3_ENDS, 'do_sample': True, 'temperature': 0.6,
                    'top_p': 0.9}, said=_LLAMA3_SAID, template=_HEADERS, shards=3),
    'Llama 3.2': Published('llama3', _config(
        'llama', 'Llama', eos_token_id=_LLAMA3_ENDS, head_dim=16, tie_word_embeddings=True,
        rope_scaling={**_LLAMA3_ROPE, 'factor': 32.0}, rope_theta=500000.0,
        max_position_embeddings=131072), back=_LLAMA3, said=_LLAMA3_SAID, template=_HEADERS),
    'Llama 2': Published('sentences', _config(
        'llama', 'Llama', bos_token_id=1, eos_token_id=2, num_key_value_heads=4,
        max_position_embeddings=4096, pretraining_tp=1, rope_scaling=None), _SPM,
        generation={'eos_token_id': 2, 'pad_token_id': 0, 'do_sample': True, 'top_p': 0.9,
                    'temperature': 0.6, 'max_length': 4096}, said=_SPM_SAID, template=_STRICT,
        dtype=torch.float16, shards=2),
    'TinyLlama': Published('sentences', _config(
        'llama', 'Llama', bos_token_id=1, eos_token_id=2, num_key_value_heads=1,
        max_position_embeddings=2048), _SPM, said=_SPM_SAID, template=_STRICT),
    'Yi 1.5': Published('sentences', _config(
        'llama', 'Llama', bos_token_id=1, eos_token_id=2, rope_theta=5000000.0),
        _SPM, _QWEN[1:], said={**_SPM_SAID, 'add_bos_token': False, 'legacy': True}),
    'InternLM2 as Llama': Published('sentences', _config(
        'llama', 'Llama', bos_token_id=1, eos_token_id=2, attention_bias=True,
        rope_scaling={'type': 'dynamic', 'factor': 2.0}), _SPM, said=_SPM_SAID),
    'SmolLM2': Published('digits', _config(
        'llama', 'Llama', bos_token_id=1, eos_token_id=2, pad_token_id=2, hidden_size=60,
        num_attention_heads=15, num_key_value_heads=5, tie_word_embeddings=True,
        rope_interleaved=False, is_llama_config=True), _QWEN,
        said={'tokenizer_class': 'GPT2Tokenizer', 'bos_token': '<|im_start|>',
              'eos_token': '<|im_end|>', 'unk_token': '<|endoftext|>', 'add_prefix_space': False}),
    'Qwen 2.5': Published('qwen', _config(
        'qwen2', 'Qwen2', **_QWEN_CONFIG, sliding_window=32768, tie_word_embeddings=True),
        back=_QWEN, padding=7, generation={
            'eos_token_id': ['<|im_end|>', '<|endoftext|>'], 'repetition_penalty': 1.1,
            'do_sample': True, 'temperature': 0.7, 'top_p': 0.8, 'top_k': 20}, said=_QWEN_SAID),
    'Qwen 2.5 with yarn': Published('qwen', _config(
        'qwen2', 'Qwen2', **{**_QWEN_CONFIG, 'use_sliding_window': True, 'sliding_window': 8,
                             'max_window_layers': 1}, tie_word_embeddings=False,
        rope_scaling={'type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 2048}),
        back=_QWEN, padding=7, said=_QWEN_SAID),
    'DeepSeek distilled': Published('qwen', _config(
        'qwen2', 'Qwen2', **{**_QWEN_CONFIG, 'bos_token_id': _DISTILLED[0],
                             'eos_token_id': _DISTILLED[0]}, use_mrope=False),
        back=_DISTILLED, padding=11, generation={
            'bos_token_id': _DISTILLED[1], 'eos_token_id': _DISTILLED[0], 'do_sample': True},
        said={'tokenizer_class': 'LlamaTokenizerFast', 'bos_token': _DISTILLED[1],
              'eos_token': _DISTILLED[0], 'add_bos_token': True, 'legacy': True},
        template='{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}'),
    'Qwen 3': Published('qwen', _config(
        'qwen3', 'Qwen3', **_QWEN_CONFIG, head_dim=32, sliding_window=None,
        attention_bias=False, tie_word_embeddings=True), back=_QWEN, padding=9,
        generation={'eos_token_id': ['<|im_end|>', '<|endoftext|>'], 'do_sample': True,
                    'temperature': 0.6, 'top_k': 20, 'top_p': 0.95}, said=_QWEN_SAID),
    'Gemma': Published('gemma', _config(
        'gemma', 'Gemma', bos_token_id=2, eos_token_id=1, pad_token_id=0, head_dim=32,
        hidden_act='gelu', hidden_activation=None, num_key_value_heads=1, rms_norm_eps=1e-6),
        _GEMMA, said=_GEMMA_SAID, template=_STRICT),
    'Gemma 2': Published('gemma', _config(
        'gemma2', 'Gemma2', **_GEMMA2, **_GEMMA_ENDS, query_pre_attn_scalar=256), _GEMMA,
        generation=_GEMMA_ENDS, said=_GEMMA_SAID, template=_STRICT, shards=2),
    'Gemma 2 27B': Published('gemma', _config(
        'gemma2', 'Gemma2', **{**_GEMMA2, 'head_dim': 16}, **_GEMMA_ENDS, hidden_size=72,
        query_pre_attn_scalar=144), _GEMMA, said=_GEMMA_SAID, template=_STRICT),
    'Gemma 3': Published('gemma', _config('gemma3_text', 'Gemma3', **{**_GEMMA3, **_GEMMA_ENDS}),
                         _GEMMA, generation={**_GEMMA_ENDS, 'do_sample': True, 'top_k': 64},
                         said=_GEMMA_SAID, template=_STRICT),
    'Gemma 3 with pictures': Published('gemma', {
        'model_type': 'gemma3', 'architectures': ['Gemma3ForConditionalGeneration'],
        'eos_token_id': [1, '<end_of_turn>'], 'image_token_index': '<image>',
        'boi_token_index': '<pad>', 'eoi_token_index': '<pad>', 'mm_tokens_per_image': 4,
        'torch_dtype': 'bfloat16',
        'text_config': {'model_type': 'gemma3_text', 'hidden_size': 64, 'intermediate_size': 128,
                        'num_hidden_layers': 7, 'num_attention_heads': 4, 'head_dim': 32,
                        'num_key_value_heads': 2, 'sliding_window': 8,
                        'rope_scaling': {'factor': 8.0, 'rope_type': 'linear'}},
        'vision_config': {'model_type': 'siglip_vision_model', 'hidden_size': 32,
                          'image_size': 16, 'intermediate_size': 48, 'num_attention_heads': 2,
                          'num_hidden_layers': 1, 'patch_size': 4, 'vision_use_head': False}},
        (*_GEMMA, '<image>'), generation=_GEMMA_ENDS, said=_GEMMA_SAID, template=_STRICT),
    'Phi-3': Published('sentences', _config(
        'phi3', 'Phi3', **_PHI_CONFIG, sliding_window=12, max_position_embeddings=4096), _SPM,
        _PHI, 5, {'eos_token_id': ['<|endoftext|>', '<|assistant|>', '<|end|>']}, _PHI_SAID,
        _STRICT),
    'Phi-3 of long texts': Published('sentences', _config(
        'phi3', 'Phi3', **_PHI_CONFIG, sliding_window=262144, rope_scaling=_LONG,
        max_position_embeddings=131072), _SPM, _PHI, 5, None, _PHI_SAID, _STRICT, shards=2),
    'Phi-4 mini': Published('llama3', _config(
        'phi3', 'Phi3', **{**_PHI_CONFIG, 'bos_token_id': '<|endoftext|>'}, hidden_size=96,
        partial_rotary_factor=0.75, tie_word_embeddings=True, max_position_embeddings=131072,
        rope_scaling={**_LONG, 'short_factor': [1.0] * 9, 'long_factor': [2.0] * 9}),
        back=_PHI, padding=6, said={'tokenizer_class': 'GPT2Tokenizer',
                                    'eos_token': '<|endoftext|>', 'bos_token': '<|endoftext|>'},
        generation={'eos_token_id': ['<|end|>', '<|endoftext|>']}),
    'Mistral 0.1': Published('sentences', _config(
        'mistral', 'Mistral', bos_token_id=1, eos_token_id=2, sliding_window=8), _SPM,
        said={**_SPM_SAID, 'legacy': True}, template=_STRICT),
    'Mistral 0.3': Published('metaspace', _config(
        'mistral', 'Mistral', bos_token_id=1, eos_token_id=2, sliding_window=None,
        rope_theta=1000000.0), (*_SPM, '[INST]', '[/INST]'), said=_SPM_SAID, template=_STRICT),
    'Mistral Nemo': Published('llama3', _config(
        'mistral', 'Mistral', bos_token_id=1, eos_token_id=2, head_dim=24, sliding_window=None,
        rope_theta=1000000.0), (*_SPM, '[INST]', '[/INST]'), said={
            'tokenizer_class': 'PreTrainedTokenizerFast', 'bos_token': '<s>', 'eos_token': '</s>'},
        template=_STRICT, shards=2),
    'SmolLM3': Published('llama3', _config(
        'smollm3', 'SmolLM3', **_ENDS, bos_token_id=1, pad_token_id=0,
        no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0], use_sliding_window=False,
        sliding_window=None, pretraining_tp=2), **_END),
    'Granite 3.1': Published('bytes', _config(
        'granite', 'Granite', **_ENDS, **_GRANITE), **_END,
        padding=1),
    'Granite 3.1 with experts': Published('bytes', _config(
        'granitemoe', 'GraniteMoe', **_ENDS, **_GRANITE, num_local_experts=8,
        num_experts_per_tok=3, output_router_logits=False, router_aux_loss_coef=0.0), **_END,
        padding=1),
    'Granite 4 Micro': Published('llama3', _config(
        'granitemoehybrid', 'GraniteMoeHybrid', **_ENDS, **_GRANITE, layer_types=[
            'attention'] * 4, num_local_experts=0, num_experts_per_tok=0,
        shared_intermediate_size=128, position_embedding_type='rope', mamba_n_heads=8,
        mamba_d_head=16, mamba_d_state=16, normalization_function='rmsnorm'), **_END),
    'Granite 4 without positions': Published('llama3', _config(
        'granitemoehybrid', 'GraniteMoeHybrid', **_ENDS, **_GRANITE, layer_types=[
            'attention'] * 4, num_local_experts=0, num_experts_per_tok=0,
        shared_intermediate_size=96, position_embedding_type='nope', mamba_n_heads=8,
        mamba_d_head=16), **_END),
    'Apertus': Published('llama3', _config(
        'apertus', 'Apertus', **_ENDS, qk_norm=True, post_norm=False, mlp_bias=False,
        attention_bias=False, rope_theta=12000000, hidden_act='xielu', rope_scaling={
            **_LLAMA3_ROPE, 'original_max_position_embeddings': 1024}), **_END),
    'CWM': Published('llama3', _config(
        'cwm', 'Cwm', **_ENDS, head_dim=16, sliding_window=8, rope_theta=1000000.0, layer_types=[
            'full_attention', 'sliding_attention', 'sliding_attention', 'full_attention'],
        rope_scaling={**_LLAMA3_ROPE, 'factor': 16.0}), **_END),
    'OLMo 2': Published('llama3', _config(
        'olmo2', 'Olmo2', **_ENDS, num_key_value_heads=4, rope_theta=500000), **_END, padding=8,
        dtype=torch.float32),
    'OLMo 3': Published('llama3', _config(
        'olmo3', 'Olmo3', **_ENDS, **_MIXED, rope_scaling={
            'rope_type': 'yarn', 'factor': 8.0, 'attention_factor': 1.2079441541679836,
            'beta_fast': 32.0, 'beta_slow': 1.0, 'original_max_position_embeddings': 1024}),
        **_END),
    'EXAONE 4': Published('qwen', _config(
        'exaone4', 'Exaone4', **_ENDS, **_MIXED, sliding_window_pattern=4,
        rope_scaling={**_LLAMA3_ROPE, 'original_max_position_embeddings': 1024}), **_END),
    'GLM 4': Published('llama3', _config(
        'glm', 'Glm', **_ENDS, attention_bias=True, head_dim=16, partial_rotary_factor=0.5,
        pad_token_id=0, rms_norm_eps=1.5625e-7), **_END, padding=6),
    'GLM 4 0414': Published('llama3', _config(
        'glm4', 'Glm4', **_ENDS, attention_bias=True, head_dim=16, partial_rotary_factor=0.5,
        pad_token_id=0), **_END),
    'Arcee': Published('llama3', _config(
        'arcee', 'Arcee', **_ENDS, hidden_act='relu2', mlp_bias=False, rope_scaling={
            'rope_type': 'yarn', 'factor': 20.0, 'original_max_position_embeddings': 2048,
            'beta_fast': 32.0, 'beta_slow': 1.0, 'mscale': 1.0}), **_END),
    'ERNIE 4.5': Published('sentences', _config(
        'ernie4_5', 'Ernie4_5', bos_token_id=1, eos_token_id=2, pad_token_id=0, head_dim=32,
        use_bias=False, rope_theta=500000, tie_word_embeddings=True), _SPM, said=_SPM_SAID,
        template=_STRICT),
    'Helium': Published('metaspace', _config(
        'helium', 'Helium', bos_token_id=1, eos_token_id=2, head_dim=16, rms_norm_eps=1e-8,
        rope_theta=20000.0), _SPM, said=_SPM_SAID, template=_STRICT),
    'Hunyuan': Published('qwen', _config(
        'hunyuan_v1_dense', 'HunYuanDenseV1', **_ENDS, head_dim=16, use_qk_norm=True,
        rope_scaling={'type': 'dynamic', 'alpha': 1000.0, 'factor': 1.0, 'beta_fast': 32,
                      'beta_slow': 1, 'mscale': 1.0, 'mscale_all_dim': 0.0}), **_END),
    'Seed-OSS': Published('qwen', _config(
        'seed_oss', 'SeedOss', **_ENDS, attention_bias=True, attention_out_bias=False,
        head_dim=24, residual_dropout=0.1, rope_scaling={'rope_type': 'default'}), **_END),
    'Ministral': Published('llama3', _config(
        'ministral', 'Ministral', **_ENDS, **_MIXED, head_dim=16, rope_theta=1e8), **_END),
    'GPT-OSS': Published('llama3', _config(
        'gpt_oss', 'GptOss', **_ENDS, attention_bias=True, experts_per_token=4, head_dim=16,
        initial_context_length=512, num_experts_per_tok=4, num_local_experts=8, pad_token_id=0,
        layer_types=['sliding_attention', 'full_attention'] * 2, sliding_window=8,
        output_router_logits=False, router_aux_loss_coef=0.9, swiglu_limit=7.0, rope_scaling={
            'rope_type': 'yarn', 'beta_fast': 32.0, 'beta_slow': 1.0, 'factor': 16.0,
            'original_max_position_embeddings': 512, 'truncate': False},
        rope_theta=150000), **_END)}


def _tokenizer(case: Published) -> Tokenizer:
    """Return a small tokenizer of the case's kind, as its ``tokenizer.json`` describes it."""
    kind = case.tokenizer
    of_words = kind in ('sentences', 'metaspace', 'gemma')
    splits: Mapping[str, list[Any]] = {
        'llama3': [pre_tokenizers.Split(Regex(_WORDS), 'isolated')],
        'qwen': [pre_tokenizers.Split(Regex(_WORDS.replace('{1,3}', '')), 'isolated')],
        'digits': [pre_tokenizers.Digits(True)]}
    before = pre_tokenizers.Metaspace() if of_words else pre_tokenizers.Sequence([
        *splits.get(kind, []),
        pre_tokenizers.ByteLevel(False, use_regex=kind in ('digits', 'bytes'))])
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = before
    trained.train_from_iterator(_TEXT, trainers.BpeTrainer(
        vocab_size=380, show_progress=False,
        initial_alphabet=[] if of_words else pre_tokenizers.ByteLevel.alphabet()))
    said = json.loads(trained.to_str())['model']
    words = [*case.front, *(f'<0x{byte:02X}>' for byte in range(256 * of_words))]
    words += [word for word in sorted(said['vocab'], key=said['vocab'].get) if word not in words]
    made = Tokenizer(models.BPE(
        {word: number for number, word in enumerate(words)}, [tuple(m) for m in said['merges']],
        byte_fallback=of_words, fuse_unk=of_words, ignore_merges=kind == 'llama3',
        unk_token='<unk>' if of_words else None))
    blank, ends = decoders.Replace('▁', ' '), [decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([blank, *ends] if kind == 'gemma' else [
        blank, *ends, decoders.Strip(' ', 1, 0)]) if of_words else decoders.ByteLevel()
    if kind == 'sentences':
        made.normalizer = normalizers.Sequence([
            normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')])
    elif kind == 'gemma':
        made.normalizer = normalizers.Replace(' ', '▁')
        made.pre_tokenizer = pre_tokenizers.Split(' ', 'merged_with_previous')
    elif kind == 'metaspace':
        made.pre_tokenizer = pre_tokenizers.Metaspace('▁', 'first', split=False)
    else:
        made.pre_tokenizer = before
        made.normalizer = normalizers.NFC() if kind == 'qwen' else None
    made.add_special_tokens([AddedToken(token, normalized=False)
                             for token in (*case.front, *case.back)])
    begin = case.said.get('bos_token')
    if begin and case.said.get('add_bos_token', kind == 'llama3'):
        made.post_processor = processors.TemplateProcessing(
            f'{begin} $A', special_tokens=[(begin, made.token_to_id(begin))])
    return made


def _numbered(said: Any, tokenizer: Tokenizer) -> Any:
    """Return a configuration with the numbers of tokens in the place of their texts."""
    if isinstance(said, Mapping):
        return {key: _numbered(value, tokenizer) for key, value in said.items()}
    if isinstance(said, list):
        return [_numbered(value, tokenizer) for value in said]
    number = tokenizer.token_to_id(said) if isinstance(said, str) else None
    return said if number is None else number


def save_published(folder: Path, name: str, **more: Any) -> Path:
    """Write a model as it is published; `more` are changes to ``config.json``."""
    case, transformers = PUBLISHED[name], library()
    tokenizer = _tokenizer(case)
    tokenizer.save(str(folder / 'tokenizer.json'))
    (folder / 'tokenizer_config.json').write_text(json.dumps(
        {**case.said, 'chat_template': case.template}))
    config = {**_numbered(case.config, tokenizer), **more}
    config.get('text_config', config)['vocab_size'] = tokenizer.get_vocab_size() + case.padding
    (folder / 'config.json').write_text(json.dumps(config))
    torch.manual_seed(len(name))
    made = getattr(transformers, config['architectures'][0])(
        transformers.AutoConfig.from_pretrained(folder))
    with torch.no_grad():
        for key, weight in made.named_parameters():
            if weight.ndim < 2:
                weight.add_(0.2 * torch.randn(weight.shape))
            else:
                scale = 0.5 if 'embed' in key else 0.4 if 'lm_head' in key else \
                    1.2 / math.sqrt(weight.shape[-1])
                weight.copy_(scale * torch.randn(weight.shape))
            weight.copy_(weight.to(case.dtype))
    generation = _numbered(case.generation, tokenizer) if case.generation else \
        {'eos_token_id': config['eos_token_id']}
    _let_it_end(made.eval(), folder, generation)  # in float32, as its files are computed
    made.to(case.dtype)
    made.generation_config = transformers.GenerationConfig()
    size = sum(weight.nbytes for weight in made.parameters())
    made.save_pretrained(folder, max_shard_size=size if case.shards == 1 else
                         int(size / case.shards * 1.05))
    (folder / 'config.json').write_text(json.dumps(config))  # as it was
    (folder / 'generation_config.json').unlink()
    if case.generation:
        (folder / 'generation_config.json').write_text(json.dumps(generation))
    return folder


def _let_it_end(made: Any, folder: Path, generation: Mapping[str, Any]) -> None:
    """Let the first prompt's answer end after some tokens, by the last of its ends."""
    given = torch.tensor([library().AutoTokenizer.from_pretrained(folder)(PROMPTS[0]).input_ids])
    ends = generation['eos_token_id']
    end = ends[-1] if isinstance(ends, list) else ends
    with torch.inference_mode():
        found = made.generate(given, do_sample=False, max_new_tokens=5, min_new_tokens=5,
                              pad_token_id=0, return_dict_in_generate=True, output_logits=True)
    token = int(found.sequences[0, -1])
    with torch.no_grad():
        matrix = made.get_output_embeddings().weight
        if token != end:
            matrix[end] = matrix[token] * (1.12 if found.logits[-1][0, token] > 0 else 0.88)
