# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Snapshots of layers by round, and what must move so that a new plan begins at one of them.

The tag of a snapshot is the round that begins with it.  Each device keeps its own stage's and a
replica of another's; a snapshot is written with its header invalid, and sealed by its digest
last, so that a torn one is never taken for whole.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
import hashlib
from typing import TypeVar

from safetensors import torch as safetensors
import torch

from intradp_ros.systems.training.plan.training_plan import TrainingPlan

INITIAL = 0
#: Bytes of parameters that are packed, or summed, at once.
TOGETHER = 1 << 24
Piece = TypeVar('Piece')
#: The source of layers that come from the trainer's checkpoint.
TRAINER = ''
#: Device to the layers that it holds of each tag.
Held = Mapping[str, Mapping[int, Collection[int]]]


class TornError(ValueError):
    """A snapshot that is not what was sent."""


@dataclass
class Snapshots:
    """Layers that this device holds, by tag; only whole ones are in it."""

    kept: dict[int, dict[int, dict[str, torch.Tensor]]] = field(default_factory=dict)

    def put(self, tag: int, layer: int, state: dict[str, torch.Tensor]) -> None:
        """Keep a layer's state of a tag."""
        self.kept.setdefault(tag, {})[layer] = state

    def forget(self, before: int = 0, after: int | None = None) -> None:
        """Let go of tags before one, or after one: rounds that are played again."""
        for tag in list(self.kept):
            if tag < before or after is not None and tag > after:
                del self.kept[tag]

    def held(self) -> dict[int, list[int]]:
        """Return the layers that are here, by tag; copies may come meanwhile."""
        return {tag: sorted(layers.copy()) for tag, layers in list(self.kept.items())}


def pieces_of(all_of: Sequence[Piece], sizes: Sequence[int | float]) -> list[list[Piece]]:
    """Return what is given in pieces of at most `TOGETHER` bytes, or of one, in its order."""
    found, left = list[list[Piece]](), 0.0
    for one, size in zip(all_of, sizes, strict=True):
        if not found or size > left:
            found.append([])
            left = TOGETHER
        found[-1].append(one)
        left -= size
    return found


def most_bytes(sizes: Sequence[float]) -> int:
    """Return the most bytes that layers may have when packed: of an optimiser, and headers."""
    return int(8 * sum(sizes)) + (1 << 24)


def pack(layers: Mapping[int, Mapping[str, torch.Tensor]]) -> bytes:
    """Return layers as bytes that `unpack` reads: a digest, then safetensors."""
    body = safetensors.save({f'{layer}/{name}': tensor.contiguous()
                         for layer, state in layers.items() for name, tensor in state.items()})
    return b''.join((hashlib.sha256(body).digest(), body))


def unpack(data: bytes, layers: Collection[int]) -> dict[int, dict[str, torch.Tensor]]:
    """
    Return the layers that were packed; those without any state are among them.

    :raises TornError: if they are not those, or not whole.
    """
    if hashlib.sha256(memoryview(data)[32:]).digest() != data[:32]:
        raise TornError('a snapshot came torn: its digest does not fit')
    try:
        tensors = safetensors.load(data[32:])
    except Exception as error:  # of a kind of its own
        raise TornError(f'a snapshot cannot be read: {error!s:.200}') from None
    found: dict[int, dict[str, torch.Tensor]] = {layer: {} for layer in layers}
    for name, tensor in tensors.items():
        number, _, key = name.partition('/')
        if not number.isdecimal() or int(number) not in found:
            raise TornError(f'a snapshot has {name:.80}, which nobody asked for')
        found[int(number)][key] = tensor
    return found


def rollback_tag(held: Held, layers: int) -> int:
    """
    Return the newest tag of which the devices hold every layer among them.

    The initial state needs nobody: every device makes it from the task.
    """
    whole: dict[int, set[int]] = {}
    for tags in held.values():
        for tag, has in tags.items():
            whole.setdefault(tag, set()).update(has)
    return max((tag for tag, has in whole.items() if has >= set(range(layers))), default=INITIAL)


@dataclass(frozen=True, slots=True)
class Move:
    """Layers that go from a device, or from the trainer (''), to another before a plan begins."""

    source: str
    target: str
    layers: tuple[int, ...]


def moves(held: Held, tag: int, plan: TrainingPlan, sizes: Sequence[float]) -> tuple[Move, ...]:
    """
    Return what each device of a plan needs of a tag and lacks, from whom; all go at once.

    Of several that hold a layer, the one that sends the fewest bytes so far sends it; what no
    device holds comes from the trainer.
    """
    if tag == INITIAL:
        return ()
    load, found = dict.fromkeys(plan.participants, 0.0), dict[tuple[str, str], list[int]]()
    for stage in plan.stages:
        for device in stage.devices:
            own = held.get(device, {}).get(tag, ())
            for layer in range(stage.first, stage.last):
                if layer not in own:
                    sender = min((name for name in plan.participants
                                  if layer in held.get(name, {}).get(tag, ())),
                                 key=lambda name: load[name], default=TRAINER)
                    load[sender] = load.get(sender, 0.0) + sizes[layer]
                    found.setdefault((sender, device), []).append(layer)
    return tuple(Move(a, b, tuple(layers)) for (a, b), layers in found.items())


def backups(plan: TrainingPlan) -> dict[str, str]:
    """
    Return to whom each device sends its snapshots: the next stage's first, the last to the first.

    One that trains alone sends them to a keeper.  Stages of several devices need none: each of
    them holds all of it.
    """
    count = len(plan.stages)
    if count == 1 and len(plan.stages[0].devices) == 1 and plan.keepers:
        return {plan.stages[0].devices[0]: plan.keepers[0]}
    return {stage.devices[0]: plan.stages[(k + 1) % count].devices[0]
            for k, stage in enumerate(plan.stages) if len(stage.devices) == 1 and count > 1}
