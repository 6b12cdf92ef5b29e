# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What an encoding is to the rest: two functions on bytes, and where they may be used."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from intradp_ros.wire.codecs.patterns import Bytes


def always(raw: Bytes, dtype: torch.dtype) -> bool:
    """Any elements will do."""
    return True


@dataclass(frozen=True)
class Codec:
    """
    An encoding of elements, given and returned as an array of their bytes.

    `encode(raw, dtype)` returns bytes, maybe more than there were;
    `decode(data, nbytes, dtype)` returns as many bytes as are asked for, or
    raises MalformedFrameError before it reserves more than these.

    `takes` says for a dtype, `fits` for a whole transfer's elements, whether
    they can be encoded at all.  `bits` is the most that an element can take
    up if it is encoded, 0 if that is not bounded; `module` names what
    both sides have to import.
    """

    name: str
    module: str
    takes: Callable[[torch.dtype], bool]
    encode: Callable[[Bytes, torch.dtype], bytes]
    decode: Callable[[memoryview, int, torch.dtype], Bytes]
    fits: Callable[[Bytes, torch.dtype], bool] = always
    bits: float = 0.0
