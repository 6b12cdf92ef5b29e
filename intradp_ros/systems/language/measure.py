# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How fast this machine is: seconds of a model's blocks and head, bytes a second of its memory."""
from __future__ import annotations

from dataclasses import dataclass
import math
import os
import statistics
import time

import torch

from intradp_ros.blobs.store import BlobStore
from intradp_ros.core.measured_once import figures_once, measured_path
from intradp_ros.profiling.machine import device_name
from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.systems.language.block_math import KvPages, LaneRun
from intradp_ros.systems.language.fused_blocks import make_blocks
from intradp_ros.systems.language.kernels import kernels_on
from intradp_ros.systems.language.lanes import Lane, PAGE, Part
from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.role import read_head
from intradp_ros.systems.language.slots import BlockSlot

#: Layers that take turns, so that none of them waits in the processor's cache.
_LAYERS, _TIMES, _TOKENS = 8, 5, 64
#: Bytes that are read to measure the memory's rate: of a device's part, and at most of a model,
#: whose weights a cache may hold as little as these.
_READ, _MOST_READ = 64 << 20, 256 << 20
#: Packages that decide what is measured.
_MEASURING = ('systems/language',)


@dataclass(frozen=True, slots=True)
class BlockSeconds:
    """
    Seconds of a token in attention and MLP (means), and in embedding with head.

    `blocks` are those of each block, measured by the types of its matrices; `memory_rate` is in
    bytes/s.
    """

    attention: float
    mlp: float
    head: float
    memory_rate: float
    blocks: tuple[float, ...] = ()


def measured_blocks(manifest: Manifest, store: BlobStore, device: KernelDevice = HOST,
                    ) -> BlockSeconds:
    """Return what one token takes, measured the first time: kept by model, machine and code."""
    path = measured_path('blocks', manifest.digest, device_name(), kernels_on(device).name,
                         packages=_MEASURING)
    return figures_once(
        path, BlockSeconds, lambda: measure_blocks(manifest, store, device),
        lambda found: len(found.blocks) == len(manifest.blocks) and min(
            found.attention, found.mlp, found.head, found.memory_rate, *found.blocks) > 0)


def measure_blocks(manifest: Manifest, store: BlobStore, device: KernelDevice = HOST,
                   ) -> BlockSeconds:
    """Return what one token takes, with `_TOKENS` before it: the least of some times."""
    blocks = make_blocks(manifest, device)
    alike = _alike(manifest)
    measured = sorted(block for group in alike for block in _some(group))
    kv = KvPages(manifest, sorted({block // 2 for block in measured}),
                 -(-(_TOKENS + 1) // PAGE), device)
    lane = Lane((Part(_TOKENS, 1, tuple(range(kv.pages))),))
    slots, runs = [], {}
    for number in measured:
        file = manifest.blocks[number]
        slots.append(BlockSlot(store, file.nbytes, device))
        if not slots[-1].read(store, file, store.slot):
            raise OSError(f'blob {file.digest[:12]} is not in {store.folder}')
        runs[number] = blocks.bind(number, slots[-1].views(file))
    embed, logits, kept = read_head(manifest, blocks, store)
    least, head, rate = dict.fromkeys(measured, math.inf), math.inf, 0.0
    free = os.sysconf('SC_AVPHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
    memory = torch.ones(max(1, min(_MOST_READ, manifest.nbytes, free // 4) // 4),
                        device=device.name)
    with torch.inference_mode():
        for _ in range(_TIMES):
            hidden = embed(torch.tensor([1]))
            run = LaneRun(lane, kv)
            for number, block in runs.items():
                before = time.perf_counter()
                hidden = block(hidden, run)
                device.finish()
                least[number] = min(least[number], time.perf_counter() - before)
            start = time.perf_counter()
            logits(hidden).argmax()
            head = min(head, time.perf_counter() - start)
            rate = max(rate, memory_rate(memory, device))
    del kept
    seconds = [0.0] * len(manifest.blocks)
    for group in alike:
        mean = statistics.mean(least[number] for number in _some(group))
        for number in group:
            seconds[number] = mean
    return BlockSeconds(statistics.mean(seconds[::2]), statistics.mean(seconds[1::2]), head, rate,
                        tuple(seconds))


def _alike(manifest: Manifest) -> list[list[int]]:
    """Return the blocks in groups of those whose tensors have the same types and shapes."""
    found: dict[object, list[int]] = {}
    for number, block in enumerate(manifest.blocks):
        kind = tuple((tensor.type.name, tensor.shape) for tensor in block.tensors)
        found.setdefault((number % 2, kind), []).append(number)
    return list(found.values())


def _some(group: list[int]) -> list[int]:
    """Return blocks of a group from its beginning to its end, `_LAYERS` at most."""
    return sorted({group[k * len(group) // _LAYERS] for k in range(_LAYERS)})


def memory_rate(memory: torch.Tensor | None = None, device: KernelDevice = HOST) -> float:
    """
    Return the bytes per second at which memory is read (float32): the best of some times.

    What is as small as a model that stays in the processor's cache is read from there.
    """
    floats = torch.ones(_READ // 4) if memory is None else memory
    best = math.inf
    for _ in range(_TIMES):
        start = time.perf_counter()
        kernels_on(device).read(floats)
        best = min(best, time.perf_counter() - start)
    return floats.nbytes / best
