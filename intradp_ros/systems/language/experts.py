# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Mixtures of experts: MLPs of which a router chooses some for each token.

Files hold the experts of a layer one by one, or two matrices of each as one; here they are
three tensors (experts x rows x columns), as GGUF has them, in the layer's MLP block.  A token's
experts and their shares follow from its own numbers alone, and its sum has one order, that of
the experts, so that its bits depend on nothing that is computed with it.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from intradp_ros.systems.language.families import Family, FamilyError
from intradp_ros.systems.language.kernels import Kernels, SILU
from intradp_ros.systems.language.stored import Stored

#: Waits for experts of some numbers.
Need = Callable[[Sequence[int]], None]
Floats = npt.NDArray[np.float64]
Shape = tuple[int, ...]
#: The shape of a tensor here, and what makes it of the library's.
Split = tuple[Shape, Callable[[Tensor], Tensor]]
#: What the library calls matrices of all experts: gate and up as one, and down.
BOTH, DOWN = '.experts.gate_up_proj', '.experts.down_proj'
#: Activations of experts by their names in configurations.
_ACTIVATIONS = {'silu': SILU, 'swish': SILU}
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_TERMS, _LEAST = 14, -700.0
#: What files or the library call tensors, and what they are here, in this order.
_CALLED = (('block_sparse_moe.input_linear.weight', f'mlp{BOTH}'),
           ('block_sparse_moe.output_linear.weight', f'mlp{DOWN}'),
           ('block_sparse_moe.', 'mlp.'), ('mlp.router.layer.', 'mlp.gate.'),
           ('mlp.router.', 'mlp.gate.'))


def check_mixture(family: Family, config: Any) -> None:
    """Raise FamilyError if a model is a mixture of experts of a kind that is not computed."""
    if not family.experts:
        return
    if not config.num_experts_per_tok:
        raise FamilyError('a mixture that chooses no expert (num_experts_per_tok is 0)')
    if config.hidden_act not in _ACTIVATIONS:
        raise FamilyError(f'experts with the activation {str(config.hidden_act)[:40]!r} are not '
                          f'understood; those with {", ".join(_ACTIVATIONS)} are')
    if getattr(config, 'mlp_only_layers', None) or getattr(config, 'decoder_sparse_step', 1) != 1:
        raise FamilyError('only some of its layers are mixtures of experts (mlp_only_layers, '
                          'decoder_sparse_step): plans need layers that are alike')


def split_experts(names: Collection[str]) -> Callable[[str, Shape], Mapping[str, Split]]:
    """
    Return what says what becomes of a tensor of the library, by the names here, and how.

    Gate and up of one matrix, one above the other, are two stacks.  Where they have biases
    (GPT-OSS) they are columns of the library's, in turn.  It raises ValueError for odd rows.
    """
    turned = any(name.endswith(BOTH + '_bias') for name in names)

    def split(name: str, shape: Shape) -> Mapping[str, Split]:
        for theirs, ours in _CALLED:
            name = name.replace(theirs, ours)
        stem, _, leaf = name.rpartition('.')
        both, bias = leaf.startswith('gate_up_proj'), leaf.endswith('_bias')
        if not name.removesuffix('_bias').endswith((BOTH, DOWN)) or len(shape) != 3 - bias:
            return {name: (shape, lambda tensor: tensor)}
        made = shape if bias or not turned else (shape[0], shape[2], shape[1])
        if both and made[1] % 2:
            raise ValueError(f'{name[:200]}: {made[1]} rows of gate and up together')
        rows = made[1] // (1 + both)

        def part(number: int) -> Callable[[Tensor], Tensor]:
            def take(tensor: Tensor) -> Tensor:
                natural = tensor if bias or not turned else tensor.transpose(1, 2)
                return natural if not both else natural[:, number::2] if turned else \
                    natural[:, number * rows:(number + 1) * rows]
            return take
        return {f'{stem}.{proj}.{"bias" if bias else "weight"}': (
            (made[0], rows, *made[2:]), part(number))
            for number, proj in enumerate(('gate_proj', 'up_proj') if both else ('down_proj',))}
    return split


def expert_shapes(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return shapes by the library's names as they are here: two stacks for one of both."""
    split = split_experts(shapes)
    return {made: own for name, shape in shapes.items()
            for made, (own, _) in split(name, shape).items()}


class Experts:
    """
    Computes a mixture (tokens x width, to the same) with the tensors of its block.

    `need` returns when the experts of some numbers are where their tensors say.
    """

    def __init__(self, config: Any, tensors: Mapping[str, Stored], compute: Kernels,
                 need: Need | None = None) -> None:
        self._need = need
        self._router, self._compute = tensors['mlp.gate.weight'], compute
        self._router_bias = tensors.get('mlp.gate.bias')
        self._activation = _ACTIVATIONS[config.hidden_act]
        self._limit = getattr(config, 'swiglu_limit', None)
        self._alpha = float(getattr(config, 'swiglu_alpha', 1.0))
        stacks = [(tensors[f'mlp.experts.{part}.weight'], tensors.get(f'mlp.experts.{part}.bias'))
                  for part in ('gate_proj', 'up_proj', 'down_proj')]
        self._parts = [[(stack.part(number), bias and bias.part(number)) for stack, bias in stacks]
                       for number in range(stacks[0][0].shape[0])]
        self._used = int(config.num_experts_per_tok)
        self._normed = bool(getattr(config, 'norm_topk_prob', True))

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return the sum of each token's experts by their shares."""
        compute = self._compute
        logits = compute.product(hidden, self._router, self._router_bias)
        chosen, shares = route(logits.cpu().numpy(), self._used, self._normed)
        out = torch.zeros_like(hidden)
        numbers = np.unique(chosen)
        if self._need:
            self._need(numbers.tolist())
        for number in numbers:
            tokens, place = np.nonzero(chosen == number)
            rows = torch.from_numpy(tokens).to(hidden.device)
            share = torch.from_numpy(shares[tokens, place]).to(hidden.device).unsqueeze(1)
            gate, up, down = self._parts[number]
            x = hidden[rows]
            inner = self._inner(compute.product(x, *gate), compute.product(x, *up))
            out.index_add_(0, rows, compute.product(inner, *down) * share)
        return out

    def _inner(self, gate: Tensor, up: Tensor) -> Tensor:
        if self._limit is None:
            return self._compute.activated(self._activation, gate) * up
        gate, up = gate.clamp(max=self._limit), up.clamp(-self._limit, self._limit)
        # x sigmoid(a x)
        return self._compute.activated(self._activation, gate * self._alpha) / self._alpha \
            * (up + 1)


def route(logits: npt.NDArray[np.float32], used: int, normed: bool,
          ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """
    Return the experts of each token and their shares (tokens x used), the likeliest first.

    Shares are parts of the sum of those that were chosen where they are `normed`, otherwise of
    all.  Only sums, products and quotients are computed, one after another: they are the same on
    any processor.
    """
    chosen = np.argsort(-logits, axis=1, kind='stable')[:, :used]
    wide = logits.astype(np.float64)
    powers = exp(wide - wide.max(1, keepdims=True))
    shares = np.take_along_axis(powers, chosen, 1)
    total = np.cumsum(shares if normed else powers, axis=1)[:, -1:]
    return chosen, (shares / total).astype(np.float32)


def exp(x: Floats) -> Floats:
    """Return e^x of numbers up to 0, the same on any processor."""
    x = np.maximum(x, _LEAST)
    power = np.rint(x / math.log(2))
    rest = x - power * _LN2_HIGH - power * _LN2_LOW
    found = np.ones_like(rest)
    for term in range(_TERMS, 0, -1):
        found = 1.0 + found * rest / term
    return np.asarray(np.ldexp(found, power.astype(np.int32)), np.float64)


@lru_cache
def softplus(x: float) -> float:
    """Return log(1 + e^x), the same on any processor."""
    return float((1 + Decimal(x).exp()).ln())
