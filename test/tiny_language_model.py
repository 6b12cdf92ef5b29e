# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A small language model of random weights with a tokenizer, and what one process makes of it."""
from __future__ import annotations

from pathlib import Path

from tokenizers import decoders, models, pre_tokenizers, Tokenizer, trainers
import torch

from intradp_ros.systems.language.families import library

TEMPLATE = ("{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}"
            "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")


def save_tiny_model(folder: Path, seed: int = 0, context: int = 256, padding: int = 0) -> Path:
    """
    Write a Llama of 3 layers with grouped queries in the manner of `save_pretrained`.

    Its matrices have `padding` rows more than the tokenizer has tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TEMPLATE, __doc__ or ''], trainers.BpeTrainer(
        vocab_size=400, special_tokens=['<end>'],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    transformers = library()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token='<end>')
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=len(fast) + padding, max_position_embeddings=context,
        eos_token_id=fast.eos_token_id, initializer_range=0.3))
    model.save_pretrained(folder)
    return folder


def reference(folder: Path, prompt: str, count: int) -> tuple[list[int], str]:
    """Return the greedy tokens and text of one process; without the end's token."""
    transformers = library()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    given = torch.tensor([tokenizer(prompt).input_ids])
    with torch.inference_mode():
        made = model.generate(given, max_new_tokens=count, do_sample=False,
                              pad_token_id=tokenizer.eos_token_id)[0, given.shape[1]:].tolist()
    if made[-1] == tokenizer.eos_token_id:
        made = made[:-1]
    return made, tokenizer.decode(made, skip_special_tokens=True)


def chat_prompt(content: str) -> str:
    """Return what the template makes of one message of a user."""
    return f'<user>{content}<assistant>'
