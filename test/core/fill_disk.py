# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Writes all kinds of files to a disk of 1 MB, which is full the second time: ``fill_disk.py``."""
from __future__ import annotations

from collections.abc import Callable, Mapping
import errno
from pathlib import Path
import sys

import torch

from intradp_lab.soak.small_disk import filled
from intradp_ros.blobs.store import BlobStore
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import load_graph, save_graph
from intradp_ros.systems.training.layers.checkpoint import (
    Checkpoint,
    read_checkpoint,
    write_checkpoint,
)

FOLDER = Path(sys.argv[1])
LARGE = 40_000


def tensor(number: int, size: int) -> torch.Tensor:
    return torch.full((size,), float(number))


def graph(number: int, size: int) -> None:
    layer = torch.nn.Linear(size // 100, 100, bias=False).eval()
    torch.nn.init.constant_(layer.weight, number)
    save_graph(capture(layer, (torch.ones(1, size // 100),)), FOLDER / 'graph')


def checkpoint(number: int, size: int) -> None:
    write_checkpoint(FOLDER / 'checkpoint',
                     Checkpoint({'p:w': tensor(number, size)}, 't', number, 1, 1, 0.0))


STORE = BlobStore(FOLDER / 'blobs', 1 << 30)
#: Each is written in the first and in the second form: profiles and schedule tables are texts.
WRITERS: Mapping[str, Callable[[int, int], object]] = {
    'text': lambda number, size: write_atomically(FOLDER / 'text', str(number) * size),
    'checkpoint': checkpoint, 'graph': graph,
    'blob': lambda number, size: STORE.put(tensor(number, size).view(torch.uint8))}


def contents() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in FOLDER.rglob('*') if path.is_file()}


for write in WRITERS.values():
    write(1, 2_000)
before = contents()
with filled(FOLDER):
    for name, write in WRITERS.items():
        try:
            write(2, LARGE)
        except OSError as error:
            assert error.errno == errno.ENOSPC and str(FOLDER) in str(error), (name, error)
        else:
            raise AssertionError(f'{name} was written on a full disk')
left = {name: data for name, data in contents().items() if not name.endswith('filler')}
assert left == before, sorted(left.keys() ^ before.keys())
assert (FOLDER / 'text').read_text() == '1' * 2_000
assert read_checkpoint(FOLDER / 'checkpoint').round == 1
assert load_graph(FOLDER / 'graph').parameters
for write in WRITERS.values():
    write(3, LARGE)
assert read_checkpoint(FOLDER / 'checkpoint').round == 3
print('intact')
