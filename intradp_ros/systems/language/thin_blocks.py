# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Blocks with fewer calls than the library's modules, and the same numbers.

Projections that share their input are one matrix: their tensors follow each other in the blob.
Taken in float32 for the families where that was measured to be faster (bench/language_blocks.py).
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
import torch.nn.functional as F  # noqa: N812

from intradp_ros.systems.language.block_math import attend, LaneRun, LibraryBlocks, Run
from intradp_ros.systems.language.manifest import Manifest

FAMILIES = frozenset({'llama', 'mistral', 'qwen2', 'qwen3'})


def make_blocks(manifest: Manifest) -> LibraryBlocks:
    """Return what computes a model's blocks; FamilyError if its family is not understood."""
    thin = manifest.config.get('model_type') in FAMILIES and manifest.dtype == torch.float32 \
        and manifest.config.get('hidden_act', 'silu') == 'silu'
    return ThinBlocks(manifest) if thin else LibraryBlocks(manifest)


class ThinBlocks(LibraryBlocks):
    """Blocks of Llama-like families."""

    def bind(self, block: int, tensors: Mapping[str, Tensor]) -> Run:
        """Return what computes a block with weights that lie in these tensors."""
        self.check(block, tensors)
        layer, is_mlp = divmod(block, 2)
        return self._thin_mlp(tensors) if is_mlp else self._thin_attention(layer, tensors)

    def _thin_attention(self, layer: int, tensors: Mapping[str, Tensor]) -> Run:
        config, dim = self.config, self._manifest.head_dim
        heads, groups = config.num_attention_heads, self._manifest.kv_heads
        width, eps, scaling = self._manifest.width, config.rms_norm_eps, dim ** -0.5
        names = [f'self_attn.{kind}_proj' for kind in 'qkv']
        joined = _joined([tensors[f'{name}.weight'] for name in names])
        bias = _joined([tensors[f'{name}.bias'] for name in names]) \
            if f'{names[0]}.bias' in tensors else None
        norm, last = tensors['input_layernorm.weight'], tensors['self_attn.o_proj.weight'].t()
        last_bias = tensors.get('self_attn.o_proj.bias')
        of_queries, of_keys = (tensors.get(f'self_attn.{kind}_norm.weight') for kind in 'qk')
        types = getattr(config, 'layer_types', None)
        window = getattr(config, 'sliding_window', None) if types is None or \
            types[layer] == 'sliding_attention' else None

        def run_block(hidden: Tensor, run: LaneRun) -> Tensor:
            count = hidden.shape[0]
            all_ = F.linear(F.rms_norm(hidden, (width,), norm, eps), joined, bias).view(
                count, heads + 2 * groups, dim)
            turned = all_[:, :heads + groups]
            if of_queries is not None and of_keys is not None:
                turned = torch.cat((F.rms_norm(turned[:, :heads], (dim,), of_queries, eps),
                                    F.rms_norm(turned[:, heads:], (dim,), of_keys, eps)), 1)
            cosines, sines = self.halves(hidden, run)
            one, other = turned.chunk(2, -1)
            turned = torch.cat((one * cosines - other * sines, other * cosines + one * sines), -1)
            turned = turned.transpose(0, 1)
            found = attend(run, layer, turned[:heads], turned[heads:],
                           all_[:, heads + groups:].transpose(0, 1), scaling, window)
            out = torch.addmm(hidden, found.reshape(count, -1), last)
            return out if last_bias is None else out + last_bias
        return run_block

    def _thin_mlp(self, tensors: Mapping[str, Tensor]) -> Run:
        width, eps = self._manifest.width, self.config.rms_norm_eps
        joined = _joined([tensors['mlp.gate_proj.weight'], tensors['mlp.up_proj.weight']])
        bias = _joined([tensors['mlp.gate_proj.bias'], tensors['mlp.up_proj.bias']]) \
            if 'mlp.gate_proj.bias' in tensors else None
        norm = tensors['post_attention_layernorm.weight']
        down = tensors['mlp.down_proj.weight'].t()
        down_bias, inner = tensors.get('mlp.down_proj.bias'), joined.shape[0] // 2

        def run_block(hidden: Tensor, run: LaneRun) -> Tensor:
            both = F.linear(F.rms_norm(hidden, (width,), norm, eps), joined, bias)
            out = torch.addmm(hidden, F.silu(both[:, :inner]) * both[:, inner:], down)
            return out if down_bias is None else out + down_bias
        return run_block

    def halves(self, hidden: Tensor, run: LaneRun) -> tuple[Tensor, Tensor]:
        """Return cosines and sines (tokens x 1 x dim/2) of a lane."""
        if 'halves' not in run.rotary:
            half = self._manifest.head_dim // 2
            cosines, sines = self.rotary(hidden, run)
            run.rotary['halves'] = (cosines[0, :, None, :half].contiguous(),
                                    sines[0, :, None, :half].contiguous())
        return run.rotary['halves']


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """
    Return tensors that follow each other in memory as one, below each other; a view.

    Raises
    ------
    ValueError
        If they do not follow each other.

    """
    first, end = tensors[0], tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != end:
            raise ValueError('projections that share their input do not follow in their blob')
        end += tensor.nbytes
    rows = sum(tensor.shape[0] for tensor in tensors)
    return first.as_strided((rows, *first.shape[1:]), first.stride())
