# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a plan takes of a device's memory, item by item; shown, checked and planned with."""
from __future__ import annotations

from dataclasses import dataclass

from intradp_ros.systems.language.arithmetic import COMPILED, extra_bytes
from intradp_ros.systems.language.lanes import PAGE
from intradp_ros.systems.language.manifest import COMPUTED, Manifest
from intradp_ros.systems.language.segment_plan import SegmentPlan

#: Bytes of a slot in addition to its block: the file's header, and whole pages.
SLOT_MARGIN = 3 * 4096
#: Hidden states of a lane, and what the widest part of a layer makes of them, at once.
_COPIES = 4
#: In addition those of an expert: what goes in and comes out.
_OF_EXPERTS = 2
#: Most tokens of a lane whose logits are wanted where tokens are drafted.
LOGIT_ROWS = 16


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes by what takes them; `floor` is what the process takes without a plan."""

    blocks: int
    kv: int
    activations: int
    head: int
    floor: int = 0

    @property
    def total(self) -> int:
        """Return all of it."""
        return self.blocks + self.kv + self.activations + self.head + self.floor


def activation_bytes(manifest: Manifest, tokens: int) -> int:
    """Return the bytes for computing so many tokens of a lane at once."""
    shapes = [t.shape for block in manifest.blocks[:2] for t in block.tensors]
    widest = max((shape[-2] for shape in shapes if len(shape) > 1), default=manifest.width)
    copies = _COPIES + _OF_EXPERTS * any(len(shape) == 3 for shape in shapes)
    return tokens * (2 * widest + copies * manifest.width) * COMPUTED.itemsize


def memory_need(plan: SegmentPlan, device: str, manifest: Manifest, tokens: int,
                floor: int = 0, arithmetic: str = COMPILED) -> MemoryNeed:
    """
    Return what a plan takes on a device, with lanes of so many tokens at most.

    Of an accelerator it is that of the memory in which it computes.
    """
    blocks = sum(max(manifest.blocks[block].nbytes for block in slot) + SLOT_MARGIN
                 for slot in plan.slots.get(device, ()))
    kv = len(plan.layers(device)) * plan.pages * PAGE * manifest.kv_bytes
    is_head = device == plan.head
    logits = int(manifest.config['vocab_size']) * 4 * (LOGIT_ROWS + 1) if is_head else 0
    return MemoryNeed(blocks, kv, activation_bytes(manifest, tokens) + logits
                      + extra_bytes(manifest, arithmetic),
                      manifest.head_bytes + 2 * SLOT_MARGIN if is_head else 0, floor)
