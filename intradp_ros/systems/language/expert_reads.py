# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What is read of mixtures that take turns in a slot: chosen experts that are not there still.

Of E experts a token chooses k, each as likely as any other.  So m tokens choose
``E (1 - (1 - k / E)^m)`` different ones, a share q of all.  The place of an expert has that of
the block which chose it last: of n blocks that take turns, one finds there what it chose
itself with the chance ``q (1 - q)^(n - 1) / (1 - (1 - q)^n)``.
"""
from __future__ import annotations

from collections.abc import Sequence

from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.segment_plan import SegmentPlan


def part_read(manifest: Manifest, turns: int, lane: int = 0, lanes: int = 1, tokens: int = 1,
              ) -> float:
    """
    Return the part of a block's experts that is read for a lane; each has `tokens` tokens.

    `turns` are the blocks of its slot, 0 where nothing stays there from one turn to the next.
    """
    experts = manifest.blocks[1].experts
    if not experts:
        return 0.0
    missed = 1 - min(1.0, int(manifest.config['num_experts_per_tok']) / experts)
    left = missed ** (lanes * tokens)
    kept = (1 - left) * left ** (turns - 1) / (1 - left ** turns) if turns else 0.0
    return (missed ** (lane * tokens) - missed ** ((lane + 1) * tokens)) * (1 - kept)


def turns_of(manifest: Manifest, slot: Sequence[int]) -> int:
    """Return how many blocks take turns in a slot; 0 if what is one's is where others' is not."""
    return len(slot) if len({manifest.blocks[block].nbytes for block in slot}) == 1 else 0


def round_bytes(plan: SegmentPlan, manifest: Manifest, device: str, lanes: int = 1) -> float:
    """Return the bytes that a device is expected to read from its disk in a round."""
    part = {turns: sum(part_read(manifest, turns, lane, lanes) for lane in range(lanes))
            for turns in range(len(manifest.blocks) + 1)}
    return sum(file.nbytes - file.expert_bytes * (1 - part[turns_of(manifest, slot)])
               for slot in plan.slots.get(device, ()) if len(slot) > 1
               for file in (manifest.blocks[block] for block in slot))
