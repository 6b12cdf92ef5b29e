# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What one process answers: the model of `transformers`, whole, with the cache of its own."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from intradp_ros.blobs.store import BlobStore
from intradp_ros.systems.language.families import library
from intradp_ros.systems.language.manifest import Manifest


def whole_model(manifest: Manifest, store: BlobStore) -> Any:
    """Return the model with all its weights, read from blobs and made float32."""
    transformers = library()
    plain = dict(manifest.config)
    config = transformers.AutoConfig.for_model(plain.pop('model_type'), **plain)
    with torch.device('meta'):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    state: dict[str, torch.Tensor] = {}

    def put(prefix: str, file: Any) -> None:
        data = store.load(file.digest)
        assert data is not None
        state.update({prefix + name: stored.floats()
                      for name, stored in file.views(data).items()})
    for number, file in enumerate(manifest.blocks):
        put(f'model.layers.{number // 2}.', file)
    put('model.', manifest.embedding)
    put('model.', manifest.head)
    state['lm_head.weight'] = state.pop('model.lm_head.weight', state['model.embed_tokens.weight'])
    for name in [name for name in state if '.experts.gate_proj.' in name]:
        experts = name.removesuffix('gate_proj.weight')
        state[f'{experts}gate_up_proj'] = torch.cat(
            [state.pop(name), state.pop(f'{experts}up_proj.weight')], 1)
        state[f'{experts}down_proj'] = state.pop(f'{experts}down_proj.weight')
    model.load_state_dict(state, strict=False, assign=True)
    with torch.device('cpu'):
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
        embedding = model.model.embed_tokens
        if hasattr(embedding, 'embed_scale'):
            embedding.embed_scale = torch.tensor(embedding.scalar_embed_scale)
    return model.eval()


def whole_answer(model: Any, prompt: Sequence[int], count: int, ends: frozenset[int],
                 ) -> tuple[list[int], torch.Tensor]:
    """Return the likeliest tokens after a prompt, and the logits each was drawn of."""
    ids, cache = torch.tensor([list(prompt)]), None
    tokens: list[int] = []
    logits: list[torch.Tensor] = []
    with torch.inference_mode():
        while len(tokens) < count:
            out = model(ids, past_key_values=cache, use_cache=True)
            logits.append(out.logits[0, -1].float())
            token = int(logits[-1].argmax())
            if token in ends:
                break
            tokens.append(token)
            ids, cache = torch.tensor([[token]]), out.past_key_values
    return tokens, torch.stack(logits)
