# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Blocks of which each half of a layer is one call of the compiled library, with the same bits.

For the families whose layers are made alike; others are computed module by module.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
)
from intradp_ros.systems.language.experts import Need
from intradp_ros.systems.language.kernels import (
    AttentionView,
    kernels,
    MatrixView,
    MlpView,
    NormKind,
    VectorView,
)
from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.stored import Stored

FAMILIES = frozenset({'llama', 'mistral', 'qwen2', 'qwen3', 'gemma', 'gemma2', 'gemma3_text',
                      'mixtral', 'qwen3_moe'})


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

        compute = kernels()
        if is_mlp:
            mlp = MlpView(
                gate=matrix('mlp.gate_proj'), up=matrix('mlp.up_proj'),
                down=matrix('mlp.down_proj'),
                gate_kind=ACTIVATIONS[type(module.mlp.act_fn).__name__], **parts)

            def run_mlp(hidden: Tensor, run: LaneRun, kept: object = tensors) -> Tensor:
                return compute.mlp(mlp, hidden)
            return run_mlp
        attention = module.self_attn
        window = getattr(attention, 'sliding_window', None)
        if self.family.module in ('mistral', 'mixtral'):
            window = self.config.sliding_window
        view = AttentionView(
            query=matrix('self_attn.q_proj'), key=matrix('self_attn.k_proj'),
            value=matrix('self_attn.v_proj'), out=matrix('self_attn.o_proj'),
            query_norm=VectorView.of(tensors.get('self_attn.q_norm.weight')),
            key_norm=VectorView.of(tensors.get('self_attn.k_norm.weight')),
            heads=self.config.num_attention_heads, groups=self._manifest.kv_heads,
            dim=self._manifest.head_dim, rotated=self._manifest.head_dim,
            scaling=attention.scaling, window=window or 0,
            cap=getattr(attention, 'attn_logit_softcapping', None) or 0.0, **parts)
        kind = self._types[layer] if self._types else ''

        def run_attention(hidden: Tensor, run: LaneRun, kept: object = tensors) -> Tensor:
            return compute.attention(view, run.view(layer, self.halves(run, kind)), hidden)
        return run_attention

    def halves(self, run: LaneRun, kind: str) -> tuple[Tensor, Tensor]:
        """Return cosines and sines (tokens x dim/2) of a lane: the other half is the same."""
        name = f'halves {kind}'
        if name not in run.rotary:
            half = self._manifest.head_dim // 2
            cosines, sines = self.rotary(run, kind)
            run.rotary[name] = (cosines[0, :, :half].contiguous(), sines[0, :, :half].contiguous())
        return run.rotary[name]
