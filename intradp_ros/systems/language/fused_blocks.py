# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Blocks of which any that follow each other are one call of the compiled library, same bits.

For the families whose layers are made alike; others are computed module by module.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import ctypes
from functools import cached_property
from itertools import groupby
from typing import Any, cast

import torch
from torch import Tensor

from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.systems.language.block_math import (
    ACTIVATIONS,
    LaneRun,
    LibraryBlocks,
    norm_eps,
    norm_offset,
    Run,
    SINKS,
)
from intradp_ros.systems.language.experts import Need
from intradp_ros.systems.language.kernels import (
    AttentionView,
    HalfView,
    kernels,
    LaneView,
    MatrixView,
    MlpView,
    NormKind,
    VectorView,
)
from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.stored import Stored

FAMILIES = frozenset({'llama', 'mistral', 'qwen2', 'qwen3', 'gemma', 'gemma2', 'gemma3_text',
                      'mixtral', 'qwen3_moe', 'gpt_oss'})


def make_blocks(manifest: Manifest, device: KernelDevice = HOST) -> LibraryBlocks:
    """Return what computes a model's blocks; FamilyError if its family is not understood."""
    if device is HOST and kernels().library and manifest.config.get('model_type') in FAMILIES:
        fused = FusedBlocks(manifest)
        if fused.alike:
            return fused
    return LibraryBlocks(manifest, device)


class FusedBlocks(LibraryBlocks):
    """Blocks of Llama-like families."""

    @property
    def alike(self) -> bool:
        """Return whether layers are those that the compiled library knows."""
        with torch.device('meta'):
            mlp = self._layer(self.config, 0).mlp
        return self._share is None and (
            self.family.experts or type(mlp.act_fn).__name__ in ACTIVATIONS)

    def bind(self, block: int, tensors: Mapping[str, Stored], need: Need | None = None) -> Run:
        """Return what computes a block with these tensors; `need` waits for some experts."""
        module, (layer, is_mlp) = self.check(block, tensors), divmod(block, 2)
        if is_mlp and self.family.experts:
            return super().bind(block, tensors, need)
        norm = NormKind(norm_eps(getattr(module, self.family.norms[0])), norm_offset(self._norm))
        before, after = (VectorView.of(tensors.get(f'{name}.weight')) if name else VectorView()
                         for name in self.family.norms[2 * is_mlp:2 * is_mlp + 2])
        parts: dict[str, Any] = {'before': before, 'after': after, 'norm': norm}

        def matrix(name: str) -> MatrixView:
            return MatrixView.of(tensors[f'{name}.weight'], tensors.get(f'{name}.bias'))

        if is_mlp:
            return _Fused(self, tensors, MlpView(
                gate=matrix('mlp.gate_proj'), up=matrix('mlp.up_proj'),
                down=matrix('mlp.down_proj'),
                gate_kind=ACTIVATIONS[type(module.mlp.act_fn).__name__], **parts))
        attention = module.self_attn
        window = getattr(attention, 'sliding_window', None)
        if self.family.module in ('mistral', 'mixtral'):
            window = self.config.sliding_window
        return _Fused(self, tensors, AttentionView(
            query=matrix('self_attn.q_proj'), key=matrix('self_attn.k_proj'),
            value=matrix('self_attn.v_proj'), out=matrix('self_attn.o_proj'),
            query_norm=VectorView.of(tensors.get('self_attn.q_norm.weight')),
            key_norm=VectorView.of(tensors.get('self_attn.k_norm.weight')),
            heads=self.config.num_attention_heads, groups=self._manifest.kv_heads,
            dim=self._manifest.head_dim, rotated=self._manifest.head_dim,
            scaling=attention.scaling, window=window or 0,
            sinks=VectorView.of(tensors.get(SINKS)),
            cap=getattr(attention, 'attn_logit_softcapping', None) or 0.0, layer=layer,
            angles=self._kinds.index(self._types[layer]) if self._types else 0, **parts))

    def run(self, runs: Sequence[Run], hidden: Tensor, lane: LaneRun) -> Tensor:
        """Return the hidden states after blocks, one after another."""
        for fused, some in groupby(runs, lambda each: isinstance(each, _Fused)):
            if fused:
                hidden = kernels().layers([each.view for each in cast(Iterable[_Fused], some)],
                                          self._lane(lane), hidden)
            else:
                hidden = super().run(list(some), hidden, lane)
        return hidden

    @cached_property
    def _kinds(self) -> list[str]:
        """Return the kinds of layers whose angles differ."""
        return sorted({*self._types}) if self._types else ['']

    def _lane(self, run: LaneRun) -> LaneView:
        """Return a lane with its angles: one half of what the library's modules take."""
        if not run.view.angles:
            half = self._manifest.head_dim // 2
            run.show_angles([(cosines[0, :, :half].contiguous(), sines[0, :, :half].contiguous())
                             for cosines, sines in (self.rotary(run, kind)
                                                    for kind in self._kinds)])
        return run.view


class _Fused:
    """A block that the compiled library computes; what it sees is kept here."""

    def __init__(self, blocks: FusedBlocks, tensors: Mapping[str, Stored],
                 view: AttentionView | MlpView) -> None:
        self._blocks, self._kept = blocks, (tensors, view)
        address = ctypes.addressof(view)
        self.view = HalfView(mlp=address) if isinstance(view, MlpView) else \
            HalfView(attention=address)

    def __call__(self, hidden: Tensor, run: LaneRun) -> Tensor:
        """Return the hidden states after it."""
        return self._blocks.run((self,), hidden, run)
