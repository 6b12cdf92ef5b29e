# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A device node that hands out altered weights: ``python -m lying_device``."""
from __future__ import annotations

from collections.abc import Iterator

import torch

from intradp_ros.nodes.fleet.device_node import main
from intradp_ros.runtime.weights import server
from intradp_ros.runtime.weights.frames import piece_chunks, Wish
from intradp_ros.wire.frames import Chunk


def altered_chunks(wish: Wish, data: torch.Tensor, chunk_bytes: int) -> Iterator[Chunk]:
    """Yield the chunks of a piece in which one bit is another."""
    data = data.clone()
    data[-1] ^= 1
    return piece_chunks(wish, data, chunk_bytes)


if __name__ == '__main__':
    vars(server)['piece_chunks'] = altered_chunks
    main()
