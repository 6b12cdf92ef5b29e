# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Results that share memory with inputs, with the model or with each other do so again."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from intradp_ros.runtime.models.results import Results

HELD = torch.arange(12.0).reshape(3, 4)
CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    'the input': lambda x: (x, x * 2), 'a view of the input': lambda x: (x[:, 1:], x.view(-1)),
    'of the model': lambda x: (x + 1, HELD, HELD[1]), 'twice': lambda x: [x * 2] * 2,
    'views of one': lambda x: (lambda y: (y[:, :1], y, y.permute(0, 2, 3, 1)))(x * 2),
    'expanded': lambda x: (x.mean((2, 3), keepdim=True).expand(-1, -1, 4, 4), {'none': None}),
    'another kind of number': lambda x: (x, x.view(torch.int32)),
    'nothing': lambda x: (x[:, :0], x * 2),
}


@pytest.mark.parametrize('name', CASES)
def test_writing_to_one_shows_in_those_that_share_its_memory(name: str) -> None:
    model = CASES[name]
    x, later = torch.rand(1, 3, 2, 2), torch.rand(1, 3, 2, 2)
    form = Results.of(model(x), [x], [HELD])
    own, ours = [], []
    for kept, rebuilt in ((own, False), (ours, True)):
        given, before = later.clone(), HELD.clone()
        result = model(given)
        if rebuilt:  # from numbers that came from elsewhere
            apart = pytree.tree_map(
                lambda t: t.clone() if isinstance(t, torch.Tensor) else t, result)
            result = form.rebuilt(form.copies(apart), [given])
        leaves = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        if name not in ('expanded', 'another kind of number'):
            leaves[0].mul_(-3)
        kept += [*(t.clone() for t in leaves), given, HELD.clone()]
        HELD.copy_(before)
    assert all(torch.equal(a, b) for a, b in zip(own, ours, strict=True))


def test_a_view_of_an_input_that_lies_otherwise_is_a_copy() -> None:
    x = torch.rand(1, 3, 2, 2)
    form = Results.of((x[:, 1:],), [x])
    y = torch.rand(1, 2, 2, 3).permute(0, 3, 1, 2)
    made, = form.rebuilt(form.copies((y[:, 1:],)), [y])
    assert torch.equal(made, y[:, 1:]) and made.data_ptr() != y[:, 1:].data_ptr()
