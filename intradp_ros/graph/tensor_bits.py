# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The bits of tensors, so that two moments of one can be compared."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from intradp_ros.graph.compare import difference

_CLONED_BYTES = 2**20  # larger tensors are compared by sums of their bits
_LANES = 1024
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Numbers:
    """The content of a tensor or array at one moment: a copy, or sums of its bits."""

    kind: tuple[Any, ...]
    content: torch.Tensor | None

    def same(self, other: Numbers) -> bool:
        """Return whether both are the same to the bit, any two NaN alike."""
        if self.kind != other.kind:
            return False
        if self.content is None or other.content is None:
            return self.content is other.content
        return not difference(other.content, self.content)


def numbers_of(tensor: torch.Tensor) -> Numbers:
    """Return the content of a tensor, or what stands for it."""
    kind: tuple[Any, ...] = (tuple(tensor.shape), tensor.dtype, tensor.device, tensor.layout)
    if tensor.layout != torch.strided or tensor.device.type == 'meta' or tensor.is_quantized \
            or type(tensor) not in (torch.Tensor, nn.Parameter):
        return Numbers((*kind, id(tensor), _version(tensor)), None)
    kind = (*kind, tensor.stride())  # those of results depend on it
    with torch.inference_mode(False), torch.no_grad():
        plain = tensor.detach()
        if plain.nbytes <= _CLONED_BYTES:
            return Numbers(kind, plain.clone())
        return Numbers(kind, bit_sums(plain))


def bit_sums(tensor: torch.Tensor) -> torch.Tensor:
    """Return sums of a tensor's bits along two directions: no single write leaves them alike."""
    words = as_words(tensor)
    cut = words.numel() // _LANES * _LANES
    lanes = words[:cut].view(-1, _LANES)
    return torch.cat((lanes.sum(0, dtype=torch.int64), lanes.sum(1, dtype=torch.int64),
                      words[cut:].to(torch.int64)))


def as_words(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bits as one row of integers; a view where it is contiguous."""
    plain = tensor.resolve_conj().resolve_neg().contiguous().view(-1)
    if plain.is_complex():
        plain = torch.view_as_real(plain).view(-1)
    return plain.view(_WORDS[plain.dtype.itemsize])


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def memory_address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage; 0 where there is none, or it cannot be seen."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:  # sparse, or of a device that Python makes
        return 0
