# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Half a decoder layer over packed tokens of several requests: the modules of `transformers`.

What the library's modules consist of (matrices, norms, activations) is put in their place from
`kernels`, with weights as they are stored; attention is computed request by request, over keys
and values in pages.  Each token's numbers are the same whatever is computed with it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import ctypes
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
import inspect
from typing import Any

import numpy as np
import torch
from torch import nn, Tensor

from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.systems.language.experts import (
    check_mixture,
    exp,
    expert_shapes,
    Experts,
    Need,
    softplus,
)
from intradp_ros.systems.language.families import check_family, FamilyError, library
from intradp_ros.systems.language.kernels import (
    AnglesView,
    CacheView,
    GELU_TANH,
    Kernels,
    kernels_on,
    LaneView,
    SILU,
)
from intradp_ros.systems.language.lanes import Lane, PAGE, page_runs
from intradp_ros.systems.language.manifest import COMPUTED, Manifest
from intradp_ros.systems.language.stored import Stored

_ATTENTION = 'intradp_pages'
#: What takes part in the sum of a head's weights (GPT-OSS).
SINKS = 'self_attn.sinks'
#: Positions whose angles are computed at once, always the same ones; blocks of them that are kept.
_ANGLES, _KEPT = 512, 32
ACTIVATIONS = {'SiLU': SILU, 'SiLUActivation': SILU, 'GELUTanh': GELU_TANH,
                'NewGELUActivation': GELU_TANH}
#: Computes a block: hidden states (tokens x width) of a lane, to the same.
Run = Callable[[Tensor, 'LaneRun'], Tensor]


class KvPages:
    """Keys and values of some layers on one device, in `pages` pages of `PAGE` tokens."""

    def __init__(self, manifest: Manifest, layers: Iterable[int], pages: int,
                 device: KernelDevice = HOST) -> None:
        shape = manifest.kv_heads, pages * PAGE, manifest.head_dim
        self.pages, self.used = pages, 0  # pages that a lane has named so far
        self.device, self.compute = device, kernels_on(device)
        self.layers = {layer: (torch.zeros(shape, dtype=COMPUTED, device=device.name),
                               torch.zeros(shape, dtype=COMPUTED, device=device.name))
                       for layer in layers}
        self.views = (CacheView * (max(self.layers, default=-1) + 1))()
        for layer, (keys, values) in self.layers.items():
            self.views[layer] = CacheView(keys.data_ptr(), values.data_ptr(), keys.stride(0))

    def put(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Take keys and values (heads x tokens x dim) of a layer from its first page on."""
        for kept, new in zip(self.layers[layer], (keys, values)):
            count = min(new.shape[1], kept.shape[1])
            kept[:, :count] = self.device.take(new)[:, :count]


@dataclass
class LaneRun:
    """A lane that is computed on a device: its pages, and what is the same for all layers."""

    lane: Lane
    kv: KvPages
    view: LaneView = field(init=False)
    rotary: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    masks: dict[tuple[int, int | None], Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Let the library see it; ValueError if a page is not there."""
        parts = self.lane.parts
        if any(page >= self.kv.pages for part in parts for page in part.pages):
            raise ValueError(f'a page beyond the {self.kv.pages} of this device')
        if any(part.stop > PAGE * len(part.pages) for part in parts):
            raise ValueError('tokens without pages')
        self.kv.used = max(self.kv.used, *(page + 1 for part in parts for page in part.pages), 0)
        counts = [part.count for part in parts]
        begins = np.cumsum([0, *(len(part.pages) for part in parts)])[:len(parts)]
        self._arrays = (
            np.array([p for part in parts for p in range(part.start, part.stop)], np.int32),
            np.repeat(begins, counts).astype(np.int64, copy=False),
            np.array([page for part in parts for page in part.pages], np.int32))
        #: The lane as the compiled library sees it; what torch needs is made when asked for.
        self.view = LaneView(sum(counts), *(each.ctypes.data for each in self._arrays),
                             ctypes.addressof(self.kv.views))

    @cached_property
    def positions(self) -> Tensor:
        """Return the positions (1 x tokens) of all tokens."""
        return self.kv.device.take(torch.from_numpy(self._arrays[0]).long().unsqueeze(0))

    @cached_property
    def _runs(self) -> list[list[tuple[int, int]]]:
        return [page_runs(part.pages) for part in self.lane.parts]

    @cached_property
    def _places(self) -> Tensor | slice:
        """Return where keys go: consecutive places as a slice."""
        places = [part.pages[p // PAGE] * PAGE + p % PAGE
                  for part in self.lane.parts for p in range(part.start, part.stop)]
        first = places[0] if places else 0
        if places == list(range(first, first + len(places))):
            return slice(first, first + len(places))
        return self.kv.device.take(torch.tensor(places))

    def show_angles(self, tables: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Let the library see cosines and sines (tokens x dim/2) of each kind of layers."""
        views = (AnglesView * len(tables))(*(
            AnglesView(cosines.data_ptr(), sines.data_ptr()) for cosines, sines in tables))
        self.view.angles = ctypes.addressof(views)
        self._angles = tables, views

    def store(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Put keys and values (heads x tokens x dim) of all parts into their pages."""
        kept_keys, kept_values = self.kv.layers[layer]
        if isinstance(self._places, slice):
            kept_keys[:, self._places], kept_values[:, self._places] = keys, values
        else:
            kept_keys.index_copy_(1, self._places, keys)
            kept_values.index_copy_(1, self._places, values)

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
            self.masks[number, window] = self.kv.device.take(seen)
        return self.masks[number, window]


class LibraryBlocks:
    """
    Blocks of a model as `transformers` computes them, on a device.

    :raises FamilyError: if its family is not understood.
    """

    def __init__(self, manifest: Manifest, device: KernelDevice = HOST) -> None:
        self.device, self.compute = device, kernels_on(device)
        transformers = library()
        transformers.AttentionInterface.register(_ATTENTION, _library_attention)
        self.family = check_family(manifest.config)
        plain = dict(manifest.config)
        self.config = transformers.AutoConfig.for_model(plain.pop('model_type'), **plain)
        self.config._attn_implementation = _ATTENTION
        check_mixture(self.family, self.config)
        self._classes, self._manifest = self.family.classes(), manifest
        self._layer = getattr(self._classes, f'{self.family.prefix}DecoderLayer')
        self._norm = getattr(self._classes, f'{self.family.prefix}RMSNorm')
        self._share: float | None = self._said('residual_multiplier')
        with torch.device('cpu'):
            self._rotary = getattr(self._classes, f'{self.family.prefix}RotaryEmbedding')(
                self.config)
        self._angles = lru_cache(_KEPT)(self._make_angles)
        by_kind = 'layer_type' in inspect.signature(self._rotary.forward).parameters
        self._types = getattr(self.config, 'layer_types', None) if by_kind else None

    def bind(self, block: int, tensors: Mapping[str, Stored], need: Need | None = None) -> Run:
        """Return what computes a block with these tensors; `need` waits for some experts."""
        module, (layer, is_mlp) = self.check(block, tensors), divmod(block, 2)
        experts = bool(is_mlp) and self.family.experts
        put_stored(module, {name: tensor for name, tensor in tensors.items()
                            if not (experts and name.startswith('mlp.'))}, self.compute)
        module.eval()
        if is_mlp:
            return self._mlp(module, Experts(self.config, tensors, self.compute, need) if experts
                             else getattr(module, self.family.mlp))
        return self._attention(module, self._types[layer] if self._types else '')

    def run(self, runs: Sequence[Run], hidden: Tensor, lane: LaneRun) -> Tensor:
        """Return the hidden states after blocks, one after another."""
        for each in runs:
            hidden = each(hidden, lane)
        return hidden

    def check(self, block: int, tensors: Mapping[str, Stored]) -> Any:
        """Return a block's layer without weights; ValueError if these are not its tensors."""
        layer, is_mlp = divmod(block, 2)
        with torch.device('meta'):
            module = self._layer(self.config, layer)
        wanted = expert_shapes({
            name: tuple(tensor.shape) or (1,) for name, tensor in module.state_dict().items()
            if self.family.of_attention(name) != bool(is_mlp)})
        if wanted != {name: tensor.shape for name, tensor in tensors.items()}:
            raise ValueError(f'block {block} has not the tensors of a model like this')
        return module

    def embedding(self, tensors: Mapping[str, Stored]) -> Callable[[Tensor], Tensor]:
        """Return what makes hidden states of token ids, on the device."""
        weight, compute = tensors['embed_tokens.weight'], self.compute
        if weight.shape != (self.config.vocab_size, self._manifest.width):
            raise ValueError('the embedding has not the shape that a model like this has')
        scale = self._manifest.width ** 0.5 if self.family.scaled \
            else self._said('embedding_multiplier')

        def embed(ids: Tensor) -> Tensor:
            hidden = compute.rows(weight, self.device.take(ids))
            return hidden if scale is None else hidden * scale
        return embed

    def head(self, tensors: Mapping[str, Stored], embedding: Mapping[str, Stored],
             ) -> Callable[[Tensor], Tensor]:
        """Return what makes logits (float32, on the host) of hidden states."""
        compute, weight = self.compute, tensors['norm.weight']
        matrix = tensors.get('lm_head.weight', embedding['embed_tokens.weight'])
        if weight.shape != (self._manifest.width,) or \
                matrix.shape != (self.config.vocab_size, self._manifest.width):
            raise ValueError('the head has not the tensors of a model like this')
        eps, offset = float(self.config.rms_norm_eps), norm_offset(self._norm)
        cap, divisor = self._said('final_logit_softcapping'), self._said('logits_scaling')

        def logits(hidden: Tensor) -> Tensor:
            normed = compute.norm(self.device.take(hidden), weight, eps, offset)
            found = compute.product(normed, matrix)
            if divisor is not None:
                found = found / divisor
            return self.device.give(found if cap is None else compute.capped(found, cap))
        return logits

    def rotary(self, run: LaneRun, kind: str = '') -> tuple[Tensor, Tensor]:
        """Return cosines and sines (1 x tokens x dim) of a lane, for a kind of layers."""
        if kind not in run.rotary:
            pieces = [tuple(table[:, max(part.start - begin, 0):part.stop - begin]
                            for table in self._angles(kind, begin))
                      for part in run.lane.parts
                      for begin in range(part.start // _ANGLES * _ANGLES, part.stop, _ANGLES)]
            cosines, sines = zip(*pieces)
            run.rotary[kind] = (self.device.take(torch.cat(cosines, 1)),
                                self.device.take(torch.cat(sines, 1)))
        return run.rotary[kind]

    def _said(self, key: str) -> Any:
        """Return what the configuration says, where its family reads that; None elsewhere."""
        return getattr(self.config, key) if hasattr(type(self.config), key) else None

    def _make_angles(self, kind: str, begin: int) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of some positions: at once, so that none depends on a lane."""
        # none beyond the context: the library takes other frequencies for all of a longer text
        positions = torch.arange(begin, begin + _ANGLES).clamp(max=self._manifest.context - 1)
        cosines, sines = self._rotary(torch.empty(0), positions[None],
                                       *((kind,) if kind else ()))
        return cosines.float(), sines.float()

    def _attention(self, layer: Any, kind: str) -> Run:
        before, after = (self._norm_of(layer, norm) for norm in self.family.norms[:2])
        share = self._share
        key = 'position_embedding_type'  # where a family reads that, None is none, too
        rotated = not hasattr(type(self.config), key) or self._said(key) == 'rope'

        def run_block(hidden: Tensor, run: LaneRun) -> Tensor:
            found, _ = layer.self_attn(
                hidden_states=before(hidden).unsqueeze(0), lane_run=run,
                position_embeddings=self.rotary(run, kind) if rotated else None,
                attention_mask=None, position_ids=run.positions)
            out = after(found[0])
            return hidden + (out if share is None else out * share)
        return run_block

    def _mlp(self, layer: Any, mlp: Callable[[Tensor], Tensor]) -> Run:
        before, after = (self._norm_of(layer, norm) for norm in self.family.norms[2:])
        share = self._share

        def run_block(hidden: Tensor, run: LaneRun) -> Tensor:
            out = after(mlp(before(hidden)))
            return hidden + (out if share is None else out * share)
        return run_block

    @staticmethod
    def _norm_of(layer: Any, name: str) -> Callable[[Tensor], Tensor]:
        found: Callable[[Tensor], Tensor] = getattr(layer, name) if name else nn.Identity()
        return found


class _Linear(nn.Module):
    """In the place of `nn.Linear`."""

    def __init__(self, weight: Stored, bias: Stored | None, compute: Kernels) -> None:
        super().__init__()
        self._weight, self._bias, self._kernels = weight, bias, compute

    def forward(self, x: Tensor) -> Tensor:
        """Return the product of the last dimension."""
        found = self._kernels.product(x.reshape(-1, x.shape[-1]), self._weight, self._bias)
        return found.view(*x.shape[:-1], -1)


class _Norm(nn.Module):
    """In the place of a root mean square norm of the library."""

    def __init__(self, weight: Stored, eps: float, offset: float, compute: Kernels) -> None:
        super().__init__()
        self._weight, self._eps, self._offset, self._kernels = weight, eps, offset, compute

    def forward(self, x: Tensor) -> Tensor:
        """Return it, normed over the last dimension."""
        return self._kernels.norm(x, self._weight, self._eps, self._offset)


class _Activation(nn.Module):
    """In the place of an activation."""

    def __init__(self, kind: int, compute: Kernels) -> None:
        super().__init__()
        self._kind, self._kernels = kind, compute

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation of each number."""
        return self._kernels.activated(self._kind, x)


class _Xielu(nn.Module):
    """In the place of Apertus' activation."""

    def __init__(self, *numbers: Stored) -> None:
        super().__init__()
        self._numbers = numbers

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation of each number."""
        # read each time: a slot holds one layer's numbers after another's
        positive, negative, beta, least = (float(each.floats()) for each in self._numbers)
        low = x.clamp(max=least)
        grown = torch.expm1(low) if x.is_cuda else torch.from_numpy(
            exp(low.numpy().astype(np.float64)) - 1).float()
        return beta * x + torch.where(x > 0, softplus(positive) * x * x,
                                      (grown - x) * (beta + softplus(negative)))


def put_stored(module: nn.Module, tensors: Mapping[str, Stored], compute: Kernels) -> None:
    """
    Put kernels in the place of a module's matrices, norms and activations.

    :raises FamilyError: if a tensor belongs to something else.
    """
    left = set(tensors)
    for path, part in list(module.named_modules()):
        weight, bias = tensors.get(f'{path}.weight'), tensors.get(f'{path}.bias')
        made: nn.Module
        if weight is not None and isinstance(part, nn.Linear):
            made = _Linear(weight, bias, compute)
        elif weight is not None and type(part).__name__.endswith('RMSNorm'):
            made = _Norm(weight, norm_eps(part), norm_offset(part.__class__), compute)
        elif type(part).__name__ in ACTIVATIONS:
            made = _Activation(ACTIVATIONS[type(part).__name__], compute)
        elif f'{path}.alpha_p' in tensors:  # of Apertus
            numbers = [f'{path}.{leaf}' for leaf in ('alpha_p', 'alpha_n', 'beta', 'eps')]
            made = _Xielu(*map(tensors.__getitem__, numbers))
            left -= {*numbers}
        else:
            continue
        left -= {f'{path}.weight', f'{path}.bias'}
        above, _, name = path.rpartition('.')
        setattr(module.get_submodule(above), name, made)
    for name in [name for name in left if name.endswith(SINKS)]:
        attention: Any = module.get_submodule(name.rpartition('.')[0])
        del attention.sinks
        attention.sinks = tensors[name]  # goes to our own attention
        left.discard(name)
    if left:
        raise FamilyError(f'weights that are of no matrix and no norm: {sorted(left)[0]}')


def norm_eps(norm: nn.Module) -> float:
    """Return what a norm of the library adds to the mean of squares."""
    return float(getattr(norm, 'variance_epsilon', getattr(norm, 'eps', 0.0)))


@cache
def norm_offset(kind: Any) -> float:
    """
    Return what a kind of norms of the library adds to its weights: 0 or 1.

    :raises FamilyError: if it computes something else.
    """
    x, weight = torch.linspace(-2.0, 3.0, 24).view(3, 8), torch.linspace(-1.0, 2.0, 8)
    with torch.device('cpu'), torch.no_grad():
        norm = kind(8, eps=1e-3)
        norm.weight.copy_(weight)
        found = norm(x)
    plain = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)
    for offset in (0.0, 1.0):
        if torch.allclose(found, plain * (weight + offset), atol=1e-5):
            return offset
    raise FamilyError(f'norms of the kind {kind.__name__} are not understood')


def _library_attention(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: object,
                       lane_run: LaneRun, scaling: float, sliding_window: int | None = None,
                       softcap: float | None = None, s_aux: Stored | None = None, **_: object,
                       ) -> tuple[Tensor, None]:
    """Take the place of the library's attention, for one packed row of tokens."""
    lane_run.store(module.layer_idx, key[0], value[0])
    return lane_run.kv.compute.attend(lane_run, module.layer_idx, query[0], scaling,
                                      sliding_window, softcap, s_aux).unsqueeze(0), None
