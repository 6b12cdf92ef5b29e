# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Half a decoder layer over packed tokens of several requests: the modules of `transformers`.

Projections, norms and rotary tables are the library's own; attention is computed
here, request by request, over keys and values in pages.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
import inspect
import math
from typing import Any

import torch
from torch import nn, Tensor
import torch.nn.functional as F  # noqa: N812

from intradp_ros.systems.language.families import check_family, library
from intradp_ros.systems.language.lanes import Lane, PAGE, page_runs
from intradp_ros.systems.language.manifest import Manifest

_ATTENTION = 'intradp_pages'
#: Computes a block: hidden states (tokens x width) of a lane, to the same.
Run = Callable[[Tensor, 'LaneRun'], Tensor]


class KvPages:
    """Keys and values of some layers on one device, in `pages` pages of `PAGE` tokens."""

    def __init__(self, manifest: Manifest, layers: Iterable[int], pages: int) -> None:
        shape = manifest.kv_heads, pages * PAGE, manifest.head_dim
        self.pages, self.used = pages, 0  # pages that a lane has named so far
        self.layers = {layer: (torch.zeros(shape, dtype=manifest.dtype),
                               torch.zeros(shape, dtype=manifest.dtype)) for layer in layers}

    def put(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Take keys and values (heads x tokens x dim) of a layer from its first page on."""
        for kept, new in zip(self.layers[layer], (keys, values)):
            count = min(new.shape[1], kept.shape[1])
            kept[:, :count] = new[:, :count]


@dataclass
class LaneRun:
    """A lane that is computed on a device: its pages, and what is the same for all layers."""

    lane: Lane
    kv: KvPages
    positions: Tensor = field(init=False)
    rotary: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    masks: dict[tuple[int, int | None], Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the positions; ValueError if a page is not there."""
        parts = self.lane.parts
        if any(page >= self.kv.pages for part in parts for page in part.pages):
            raise ValueError(f'a page beyond the {self.kv.pages} of this device')
        self.kv.used = max(self.kv.used, *(page + 1 for part in parts for page in part.pages), 0)
        self.positions = torch.tensor(
            [p for part in parts for p in range(part.start, part.stop)]).unsqueeze(0)
        self._runs = [page_runs(part.pages) for part in parts]
        self._places = [part.pages[p // PAGE] * PAGE + p % PAGE
                        for part in parts for p in range(part.start, part.stop)]
        first = self._places[0] if self._places else 0
        self._follow = self._places == list(range(first, first + len(self._places)))
        self._index = torch.tensor(self._places)

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Put keys and values (heads x tokens x dim) of all parts into their pages."""
        kept_keys, kept_values = self.kv.layers[layer]
        if self._follow:
            at = slice(self._places[0], self._places[0] + len(self._places))
            kept_keys[:, at], kept_values[:, at] = keys, values
        else:
            kept_keys.index_copy_(1, self._index, keys)
            kept_values.index_copy_(1, self._index, values)

    def gathered(self, layer: int, number: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of all tokens of a part so far; views, where pages follow."""
        keys, values = self.kv.layers[layer]
        part, runs = self.lane.parts[number], self._runs[number]
        if len(runs) == 1:
            begin = runs[0][0] * PAGE
            return keys[:, begin:begin + part.stop], values[:, begin:begin + part.stop]
        pieces = [slice(first * PAGE, (first + length) * PAGE) for first, length in runs]
        return (torch.cat([keys[:, piece] for piece in pieces], 1)[:, :part.stop],
                torch.cat([values[:, piece] for piece in pieces], 1)[:, :part.stop])

    def mask(self, number: int, window: int | None) -> Tensor | None:
        """Return which keys each token of a part sees; None for all."""
        part = self.lane.parts[number]
        if part.count == 1 and (window is None or part.stop <= window):
            return None
        if (number, window) not in self.masks:
            queries = torch.arange(part.start, part.stop).unsqueeze(1)
            keys = torch.arange(part.stop).unsqueeze(0)
            seen = keys <= queries
            if window is not None:
                seen &= keys > queries - window
            self.masks[number, window] = seen
        return self.masks[number, window]


def attend(run: LaneRun, layer: int, queries: Tensor, keys: Tensor, values: Tensor,
           scaling: float, window: int | None = None, softcap: float | None = None) -> Tensor:
    """
    Return attention (tokens x heads x dim) of packed queries (heads x tokens x dim).

    New keys and values are stored first; each part sees those of its own request.
    """
    run.store(layer, keys, values)
    parts = run.lane.parts
    if len(parts) == 1:
        return _attend(run, layer, 0, queries, scaling, window, softcap)
    row, out = 0, []
    for number, part in enumerate(parts):
        out.append(_attend(run, layer, number, queries[:, row:row + part.count], scaling, window,
                           softcap))
        row += part.count
    return torch.cat(out)


def _attend(run: LaneRun, layer: int, number: int, queries: Tensor, scaling: float,
            window: int | None, softcap: float | None) -> Tensor:
    keys, values = run.gathered(layer, number)
    mask = run.mask(number, window)
    heads, count, dim = queries.shape
    groups = keys.shape[0]
    if softcap is None and count > 1:
        found = F.scaled_dot_product_attention(
            queries.unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0), attn_mask=mask,
            scale=scaling, enable_gqa=heads != groups)
        return found[0].transpose(0, 1)
    scores = queries.reshape(groups, heads // groups * count, dim) @ keys.transpose(1, 2)
    scores = scores * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = scores.view(groups, heads // groups, count, -1).masked_fill(
            ~mask, -math.inf).view(scores.shape)
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(values.dtype)
    return (weights @ values).view(heads, count, dim).transpose(0, 1)


class LibraryBlocks:
    """
    Blocks of a model as `transformers` computes them.

    Raises
    ------
    FamilyError
        If its family is not understood.

    """

    def __init__(self, manifest: Manifest) -> None:
        transformers = library()
        transformers.AttentionInterface.register(_ATTENTION, _library_attention)
        self.family = check_family(manifest.config)
        plain = dict(manifest.config)
        self.config = transformers.AutoConfig.for_model(plain.pop('model_type'), **plain)
        self.config._attn_implementation = _ATTENTION
        self._classes, self._manifest = self.family.classes(), manifest
        self._layer = getattr(self._classes, f'{self.family.prefix}DecoderLayer')
        self._norm = getattr(self._classes, f'{self.family.prefix}RMSNorm')
        self._share: float | None = getattr(self.config, 'residual_multiplier', None)
        with torch.device('cpu'):
            self._rotary = getattr(self._classes, f'{self.family.prefix}RotaryEmbedding')(
                self.config)
        by_kind = 'layer_type' in inspect.signature(self._rotary.forward).parameters
        self._types = getattr(self.config, 'layer_types', None) if by_kind else None

    def bind(self, block: int, tensors: Mapping[str, Tensor]) -> Run:
        """Return what computes a block with weights that lie in these tensors."""
        module, (layer, is_mlp) = self.check(block, tensors), divmod(block, 2)
        put_tensors(module, tensors)
        module.eval()
        if is_mlp:
            return self._mlp(module)
        return self._attention(module, self._types[layer] if self._types else '')

    def check(self, block: int, tensors: Mapping[str, Tensor]) -> Any:
        """Return a block's layer without weights; ValueError if these are not its tensors."""
        layer, is_mlp = divmod(block, 2)
        with torch.device('meta'):
            module = self._layer(self.config, layer)
        wanted = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()
                  if self.family.of_attention(name) != bool(is_mlp)}
        if wanted != {name: tuple(tensor.shape) for name, tensor in tensors.items()}:
            raise ValueError(f'block {block} has not the tensors of a model like this')
        return module

    def embedding(self, tensors: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        """Return what makes hidden states of token ids."""
        weight = tensors['embed_tokens.weight']
        scale = torch.tensor(self._manifest.width ** 0.5).to(weight.dtype) \
            if self.family.scaled else getattr(self.config, 'embedding_multiplier', None)

        def embed(ids: Tensor) -> Tensor:
            hidden = F.embedding(ids, weight)
            return hidden if scale is None else hidden * scale
        return embed

    def head(self, tensors: Mapping[str, Tensor], embedding: Mapping[str, Tensor],
             ) -> Callable[[Tensor], Tensor]:
        """Return what makes logits (float32) of hidden states."""
        with torch.device('meta'):
            norm = self._norm(self._manifest.width, eps=self.config.rms_norm_eps)
        put_tensors(norm, {'weight': tensors['norm.weight']})
        matrix = tensors.get('lm_head.weight', embedding['embed_tokens.weight'])
        cap = getattr(self.config, 'final_logit_softcapping', None)
        divisor = getattr(self.config, 'logits_scaling', None)

        def logits(hidden: Tensor) -> Tensor:
            found = F.linear(norm(hidden), matrix)
            if divisor is not None:
                found = found / divisor
            if cap is not None:
                found = torch.tanh(found / cap) * cap
            return found.float()
        return logits

    def rotary(self, hidden: Tensor, run: LaneRun, kind: str = '') -> tuple[Tensor, Tensor]:
        """Return cosines and sines (1 x tokens x dim) of a lane, for a kind of layers."""
        if kind not in run.rotary:
            run.rotary[kind] = self._rotary(hidden, run.positions, *((kind,) if kind else ()))
        return run.rotary[kind]

    def _attention(self, layer: Any, kind: str) -> Run:
        before, after = (self._norm_of(layer, norm) for norm in self.family.norms[:2])
        share = self._share

        def run_block(hidden: Tensor, run: LaneRun) -> Tensor:
            found, _ = layer.self_attn(
                hidden_states=before(hidden).unsqueeze(0), lane_run=run,
                position_embeddings=self.rotary(hidden, run, kind), attention_mask=None,
                position_ids=run.positions)
            out = after(found[0])
            return hidden + (out if share is None else out * share)
        return run_block

    def _mlp(self, layer: Any) -> Run:
        before, after = (self._norm_of(layer, norm) for norm in self.family.norms[2:])
        share = self._share

        def run_block(hidden: Tensor, run: LaneRun) -> Tensor:
            out = after(layer.mlp(before(hidden)))
            return hidden + (out if share is None else out * share)
        return run_block

    @staticmethod
    def _norm_of(layer: Any, name: str) -> Callable[[Tensor], Tensor]:
        found: Callable[[Tensor], Tensor] = getattr(layer, name) if name else nn.Identity()
        return found


def put_tensors(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Let a module's parameters of these names be these tensors."""
    for name, tensor in tensors.items():
        path, _, leaf = name.rpartition('.')
        module.get_submodule(path).register_parameter(leaf, nn.Parameter(tensor, False))


def _library_attention(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: object,
                       lane_run: LaneRun, scaling: float, sliding_window: int | None = None,
                       softcap: float | None = None, **_: object) -> tuple[Tensor, None]:
    """Take the place of the library's attention, for one packed row of tokens."""
    return attend(lane_run, module.layer_idx, query[0], key[0], value[0], scaling, sliding_window,
                  softcap).unsqueeze(0), None
