# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Experts as files hold them, one by one or gate and up as one, become a tensor of each kind."""
from __future__ import annotations

from collections.abc import Callable, Mapping
import re

import torch
from torch import Tensor

from intradp_ros.systems.language.checkpoint import Find, ImportModelError
from intradp_ros.systems.language.experts import BOTH, DOWN, expert_shapes
from intradp_ros.systems.language.stored import Stored, StoredType

#: Types and shapes by name.
Described = dict[str, tuple[StoredType, tuple[int, ...]]]
#: What files call a matrix of one expert.
_SINGLE = re.compile(r'(model\.layers\.[0-9]+)\.(?:mlp|block_sparse_moe)\.experts\.'
                     r'(0|[1-9][0-9]{0,5})\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight')
_CALLED = {'w1': 'gate_proj', 'w2': 'down_proj', 'w3': 'up_proj'}
_ROUTER, _ROUTER_HERE = '.block_sparse_moe.gate.weight', '.mlp.gate.weight'


def stack_experts(tensors: Mapping[str, tuple[StoredType, tuple[int, ...]]], find: Find,
                  ) -> tuple[Described, Find]:
    """
    Return tensors of a checkpoint and what finds them, with the experts of a layer as one.

    Raises
    ------
    ImportModelError
        If an expert is missing, there twice, or not like the others.

    """
    found: Described = {}
    makes: dict[str, Callable[[], Tensor | Stored]] = {}
    stacks: dict[str, dict[int, str]] = {}

    def once(made: str, known: object, name: str) -> None:
        if known is not None:
            raise ImportModelError(f'{made} is there twice, also as {name[:200]}')
    for name, (type_, shape) in tensors.items():
        if match := _SINGLE.fullmatch(name):
            part = _CALLED.get(match[3], match[3])
            made = f'{match[1]}.mlp.experts.{part}.weight'
            parts = stacks.setdefault(made, {})
            once(f'{made} of expert {match[2]}', parts.get(int(match[2])), name)
            parts[int(match[2])] = name
        elif name.endswith(BOTH) and len(shape) == 3:
            if shape[1] % 2:
                raise ImportModelError(f'{name[:200]}: {shape[1]} rows of gate and up together')
            for half, (made, own) in enumerate(expert_shapes({name: shape}).items()):
                once(made, found.get(made), name)
                found[made], makes[made] = (type_, own), _half(find, name, half * own[1], own[1])
        else:
            made = name.replace(_ROUTER, _ROUTER_HERE)
            made += '.weight' if name.endswith(DOWN) else ''
            once(made, found.get(made), name)
            found[made] = type_, shape
            if made != name:
                makes[made] = _same(find, name)
    for made, parts in stacks.items():
        once(made, found.get(made), 'single ones')
        lost = next((number for number in range(len(parts)) if number not in parts), None)
        if lost is not None:
            raise ImportModelError(f'{made} of expert {lost} is missing: a file is missing, or it '
                                   'was not downloaded to its end')
        if len(kinds := {tensors[name] for name in parts.values()}) > 1:
            raise ImportModelError(f'{made}: its experts are of different types or shapes')
        type_, shape = kinds.pop()
        found[made] = type_, (len(parts), *shape)
        makes[made] = _stack(find, [parts[number] for number in range(len(parts))])
    return found, lambda name: makes[name]() if name in makes else find(name)


def _stack(find: Find, names: list[str]) -> Callable[[], Tensor | Stored]:
    def make() -> Stored:
        parts = [part if isinstance(part, Stored) else Stored.of(part)
                 for part in map(find, names)]
        return Stored(torch.cat([part.data for part in parts]), parts[0].type,
                      (len(parts), *parts[0].shape))
    return make


def _half(find: Find, name: str, first: int, rows: int) -> Callable[[], Tensor | Stored]:
    def make() -> Tensor:
        whole = find(name)
        assert isinstance(whole, Tensor)
        return whole[:, first:first + rows]
    return make


def _same(find: Find, name: str) -> Callable[[], Tensor | Stored]:
    return lambda: find(name)
