# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What blocks, hops and disks cost: measured here, or as a fleet's file says."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
import math

from intradp_ros.cluster.topology import Topology
from intradp_ros.systems.language.arithmetic import COMPILED, TORCH
from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.memory import memory_need, MemoryNeed
from intradp_ros.systems.language.segment_plan import SegmentPlan


@dataclass(frozen=True)
class LanguageCosts:
    """
    Seconds of a model on a fleet, for one token.

    `attention`, `mlp` and `head` are those of a device of speed 1, `blocks` those of each block
    where they differ; `hop` is what a message takes in addition to the way's own delay and the
    time of its bytes.  A device without a disk reads
    nothing while it computes.  `tokens` is how many tokens all requests together have room for,
    `lane` how many are computed at once.  `arithmetic` is what devices compute with, where it is
    not the compiled kernels.
    """

    manifest: Manifest
    topology: Topology
    attention: float
    mlp: float
    head: float
    hop: float = 0.0
    tokens: int = 2048
    lane: int = 128
    blocks: tuple[float, ...] = ()
    arithmetic: Mapping[str, str] = field(default_factory=dict)

    def block(self, device: str, block: int) -> float:
        """Return the seconds that a block takes on a device."""
        seconds = self.blocks[block] if self.blocks else \
            self.mlp if block % 2 else self.attention
        return seconds / self.topology.device(device).speed

    def head_seconds(self, device: str) -> float:
        """Return the seconds of embedding, head and sampling on a device."""
        return self.head / self.topology.device(device).speed

    def disk(self, device: str) -> float:
        """Return the bytes per second that a device reads; 0 without a disk."""
        name = self.topology.device(device).disk
        return self.topology.medium(name).bytes_per_second if name else 0.0

    def load(self, device: str, block: int) -> float:
        """Return the seconds that reading a block takes, without its `experts`."""
        rate, file = self.disk(device), self.manifest.blocks[block]
        return (file.nbytes - file.expert_bytes) / rate + self.experts(device, block, False) \
            if rate else math.inf

    def experts(self, device: str, block: int, chosen: bool = True) -> float:
        """
        Return the seconds of reading all experts that are read as they are `chosen`.

        An accelerator reads whole blocks.
        """
        on_host = self.arithmetic.get(device, COMPILED) in (COMPILED, TORCH)
        rate = self.disk(device)
        nbytes = self.manifest.blocks[block].expert_bytes if on_host is chosen else 0
        return nbytes / rate if nbytes and rate else 0.0

    def need(self, plan: SegmentPlan, device: str) -> MemoryNeed:
        """Return what a plan takes on a device."""
        return memory_need(plan, device, self.manifest, self.lane,
                           arithmetic=self.arithmetic.get(device, COMPILED))

    def hop_seconds(self, source: str, target: str) -> float:
        """Return the seconds in which a token's hidden state crosses."""
        if source == target:
            return 0.0
        nbytes = self.manifest.hidden_bytes
        media = self.topology.path(source, target)
        return self.hop + self.topology.delay(source, target) + sum(
            nbytes / self.topology.medium(name).bytes_per_second for name in media)
