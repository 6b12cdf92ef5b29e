# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Experts as files hold them, one by one or gate and up as one, become a tensor of each kind."""
from __future__ import annotations

from collections.abc import Callable, Mapping
import re

import torch
from torch import Tensor

from intradp_ros.systems.language.checkpoint import Find, ImportModelError
from intradp_ros.systems.language.experts import BOTH, DOWN, split_experts
from intradp_ros.systems.language.stored import mxfp4_of, Stored, STORED_TYPES, StoredType

#: Types and shapes by name.
Described = dict[str, tuple[StoredType, tuple[int, ...]]]
#: What files call a matrix of one expert.
_SINGLE = re.compile(r'(model\.layers\.[0-9]+)\.(?:mlp|block_sparse_moe)\.experts\.'
                     r'(0|[1-9][0-9]{0,5})\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight')
#: Ends of names of OpenAI's numbers of four bits, and of their scales.
_ENDS = ('_blocks', '_scales')
_CALLED = {'w1': 'gate_proj', 'w2': 'down_proj', 'w3': 'up_proj'}


def stack_experts(tensors: Mapping[str, tuple[StoredType, tuple[int, ...]]], find: Find,
                  ) -> tuple[Described, Find]:
    """
    Return tensors of a checkpoint and what finds them, with the experts of a layer as one.

    :raises ImportModelError: if an expert is missing, there twice, or not like the others.
    """
    found: Described = {}
    makes: dict[str, Callable[[], Tensor | Stored]] = {}
    stacks: dict[str, dict[int, str]] = {}
    split = split_experts(tensors)

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
        else:
            for made, (own, take) in split(name, shape).items():
                once(made, found.get(made), name)
                found[made], makes[made] = (type_, own), _taken(find, name, take)
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


def mxfp4_experts(described: Mapping[str, tuple[str, tuple[int, ...]]], find: Find,
                  ) -> tuple[Described, Find, dict[str, tuple[str, tuple[int, ...]]]]:
    """
    Return experts of four bits of OpenAI's checkpoints, what finds all, and the other tensors.

    :raises ImportModelError: if numbers and scales of a matrix are not of shapes that belong
        together.
    """
    found: Described = {}
    makes: dict[str, Callable[[], Stored]] = {}
    others = dict(described)
    for name, (kind, shape) in described.items():
        stem = name.removesuffix(_ENDS[0])
        if stem == name or kind != 'U8' or not stem.endswith((BOTH, DOWN)):
            continue
        both = stem.endswith(BOTH)
        if len(shape) != 4 or shape[3] != 16 or both and shape[1] % 2 \
                or described.get(stem + _ENDS[1]) != ('U8', shape[:3]):
            raise ImportModelError(f'{name[:200]}: {shape} numbers of four bits have not their '
                                   f'scales in {_ENDS[1]}')
        del others[name], others[stem + _ENDS[1]]
        own = shape[0], shape[1] // (1 + both), 32 * shape[2]
        for number, part in enumerate(('gate_proj', 'up_proj') if both else ('down_proj',)):
            made = f'{stem.rpartition(".")[0]}.{part}.weight'
            found[made] = STORED_TYPES['mxfp4'], own
            makes[made] = _packed(find, stem, slice(number, None, 1 + both))
    return found, lambda name: makes[name]() if name in makes else find(name), others


def _packed(find: Find, stem: str, rows: slice) -> Callable[[], Stored]:
    def make() -> Stored:
        codes, scales = (find(stem + end) for end in _ENDS)
        assert isinstance(codes, Tensor) and isinstance(scales, Tensor)
        return mxfp4_of(codes[:, rows], scales[:, rows])
    return make


def _stack(find: Find, names: list[str]) -> Callable[[], Tensor | Stored]:
    def make() -> Stored:
        parts = [part if isinstance(part, Stored) else Stored.of(part)
                 for part in map(find, names)]
        return Stored(torch.cat([part.data for part in parts]), parts[0].type,
                      (len(parts), *parts[0].shape))
    return make


def _taken(find: Find, name: str, take: Callable[[Tensor], Tensor],
           ) -> Callable[[], Tensor | Stored]:
    def make() -> Tensor | Stored:
        whole = find(name)
        return take(whole) if isinstance(whole, Tensor) else whole
    return make
