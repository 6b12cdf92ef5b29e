# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Results computed elsewhere, with the gradients of the model's own computation.

Nothing is kept of the forward pass but the inputs: where somebody asks for
gradients, the model itself runs again (as in Chen et al., 2016, "Training
Deep Nets with Sublinear Memory Cost", section 4).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree


def with_gradients(
        results: Sequence[torch.Tensor], wanted: Sequence[bool], sources: Sequence[torch.Tensor],
        model: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """
    Return `results` of ``model(*inputs)`` so that gradients of `sources` can be asked of them.

    `wanted` says which results have any.  What is done to inputs afterwards
    does not matter; sources that were written to in between raise
    RuntimeError, as they would in PyTorch.
    """
    kept = [x.detach().clone() for x in inputs]
    made: tuple[torch.Tensor, ...] = _Again.apply(
        model, kept, tuple(results), tuple(wanted), *sources)  # type: ignore[no-untyped-call]
    return made


class _Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, model: Any, inputs: Any, results: Any, wanted: Any,
                *sources: torch.Tensor) -> Any:
        ctx.model, ctx.inputs, ctx.wanted = model, inputs, wanted
        ctx.save_for_backward(*sources)
        ctx.mark_non_differentiable(*[r for r, w in zip(results, wanted) if not w])
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            results = [x for x in pytree.tree_leaves(ctx.model(*ctx.inputs))
                       if isinstance(x, torch.Tensor)]
        asked = [(r, g) for r, g in zip(results, gradients) if g is not None and r.requires_grad]
        found = torch.autograd.grad(
            [r for r, _ in asked], ctx.saved_tensors, [g for _, g in asked],
            create_graph=again, allow_unused=True) if asked else [None] * len(ctx.saved_tensors)
        return (None, None, None, None, *found)
