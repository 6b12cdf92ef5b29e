# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Layers of a plan that go between devices: those that a plan begins with, then copies of all.

Copies are made in the background, and one of a tag is over in all devices before the next begins.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
import threading
from typing import Any

import torch

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.profiling.machine import trim_heap
from intradp_ros.split.kernel_device import KernelDevice
from intradp_ros.systems.training.base.task import TrainingTask
from intradp_ros.systems.training.layers.judgement import BEST_WEIGHTS
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.plan.stage_actions import Action
from intradp_ros.systems.training.plan.training_plan import TrainingPlan, TrainingStage
from intradp_ros.systems.training.run.round_groups import GroupError, RoundGroup
from intradp_ros.systems.training.run.snapshots import (
    backups,
    most_bytes,
    Move,
    pack,
    pieces_of,
    Snapshots,
    TornError,
    TRAINER,
    unpack,
)
from intradp_ros.systems.training.run.ways import WorkerWays
from intradp_ros.systems.training.run.worker_settings import Settings

Report = Callable[[dict[str, Any]], None]
#: Bytes of a snapshot that are sent at once: each wait is for one such piece.
PIECE = 1 << 18
#: Layers that go together, and to or from whom.
_Parcels = Sequence[tuple[str, Sequence[int]]]


@dataclass
class TrainingDevice:
    """
    What a device brings to every plan: its name, its task, what it holds, its ways to others.

    `before` is called before every action with round and action; stages compute on `kernels`.
    """

    name: str
    task: TrainingTask
    graph: LayerGraph
    settings: Settings
    ways: WorkerWays
    report: Report
    before: Callable[[int, Action], None]
    kernels: KernelDevice
    snapshots: Snapshots = field(default_factory=Snapshots)


class LayerTraffic:
    """
    That of one device in one plan, of which it has `part`, over a group of its own.

    `due` says that copies are to be made, `copying` that some device is not done with the last.
    """

    def __init__(self, device: TrainingDevice, plan: TrainingPlan, number: PlanId,
                 part: TrainingStage, group: RoundGroup) -> None:
        self._device, self._plan, self._number, self._part = device, plan, number, part
        self._group = group
        self._sizes = [device.graph.nbytes(k) for k in range(len(device.graph.layers))]
        self._copy: threading.Thread | None = None
        self._copied: list[Exception | int] = []
        self._last = (0, 0)  # the tag of the last copies, and the round of their best weights
        self.due = self.copying = False  # the same on all devices

    def send(self, tag: int, moved: Sequence[Move], given: Mapping[int, str]) -> None:
        """Take what comes from the trainer, of these digests, and send what others lack."""
        device = self._device
        for move in moved:
            if (move.source, move.target) == (TRAINER, device.name):
                for layer in move.layers:
                    device.snapshots.put(tag, layer, self._given(tag, layer, given))
        for move in moved:
            if move.source == device.name:
                self.check_held(tag, move.layers)
                for layers in self._pieces(move.layers):
                    held = device.snapshots.kept[tag]
                    self._send_bytes(pack({k: held[k] for k in layers}), move.target)

    def receive(self, tag: int, moved: Sequence[Move]) -> None:
        """Take what others send; all that was sent is out then."""
        for move in moved:
            if move.target == self._device.name and move.source != TRAINER:
                for layers in self._pieces(move.layers):
                    for layer, state in unpack(self._receive_bytes(move.source), layers).items():
                        self._device.snapshots.put(tag, layer, state)
        self._group.settle()

    def check_held(self, tag: int, layers: Sequence[int]) -> None:
        """See that what the trainer believes to be here is here; else it learns what is."""
        held = self._device.snapshots.kept.get(tag, {})
        if missing := [layer for layer in layers if layer not in held]:
            raise GroupError(f'layers {missing} of round {tag} are not held here')

    def copy(self, tag: int, best: int) -> None:
        """
        Exchange copies of a tag, which is kept here, in the background.

        `best` is the round of its best weights: they go out once.

        :raises GroupError, TornError: if the copies before did not come.
        """
        self.join()
        if failed := [one for one in self._copied if isinstance(one, Exception)]:
            raise failed[0]
        (before, last), self._last = self._last, (tag, best)
        name, targets = self._device.name, backups(self._plan)
        mine = [(targets[name], layers) for layers in self._pieces(
            range(self._part.first, self._part.last))] if name in targets else []
        theirs = [(source, layers) for source, target in targets.items() if target == name
                  for stage in self._plan.stages if source in stage.devices
                  for layers in self._pieces(range(stage.first, stage.last))]
        known = before if best and last == best else None  # on all devices alike
        if mine or theirs:
            self._copy = threading.Thread(
                target=self._exchange, args=(tag, mine, theirs, known), daemon=True)
            self._copy.start()
        else:
            self._have(tag)

    def _have(self, tag: int) -> None:
        self._copied.append(tag)
        self._device.report({'report': 'replicated', 'plan': self._number, 'tag': tag})

    def _exchange(self, tag: int, mine: _Parcels, theirs: _Parcels, known: int | None) -> None:
        """Send and receive layers; best weights are those of the tag `known`, where it is one."""
        snapshots, kept = self._device.snapshots, self._device.snapshots.kept
        try:
            # Each sends a piece before it waits for one: so nobody waits for all others.
            for sent, came in zip_longest(mine, theirs):
                if sent is not None:
                    self._send_bytes(pack({layer: {
                        name: x for name, x in kept[tag][layer].items()
                        if known is None or not name.startswith(BEST_WEIGHTS)}
                        for layer in sent[1]}), sent[0])
                if came is not None:
                    for layer, state in unpack(self._receive_bytes(came[0]), came[1]).items():
                        there = {} if known is None else kept[known][layer]
                        snapshots.put(tag, layer, state | {
                            name: x for name, x in there.items() if name.startswith(BEST_WEIGHTS)})
                self._group.settle()
            trim_heap()
            self._have(tag)
        except (GroupError, TornError) as error:
            self._copied.append(error)
        except Exception as error:  # noqa: BLE001 - memory is used up, say: the plan ends
            self._copied.append(GroupError(f'no copy: {type(error).__name__}: {error}'))

    @property
    def running(self) -> bool:
        """Whether copies are on their way: over a slow link they take longer than some rounds."""
        return self._copy is not None and self._copy.is_alive()

    @property
    def newest(self) -> int | None:
        """The tag of the newest copies that are over, 0 for none; None if they failed."""
        last = self._copied[-1] if self._copied else 0
        return last if isinstance(last, int) else None

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end of what is copied, for so long; its waits have ends."""
        if self._copy is not None:
            self._copy.join(seconds)

    def _pieces(self, layers: Sequence[int]) -> list[list[int]]:
        """Return layers in pieces that are packed at once: a copy of all would take as much."""
        return pieces_of(layers, [self._sizes[k] for k in layers])

    def _given(self, tag: int, layer: int, given: Mapping[int, str]) -> dict[str, torch.Tensor]:
        """Return a layer of the trainer's checkpoint."""
        try:
            return unpack(self._device.ways.given(tag, layer, most_bytes(self._sizes),
                                                  given[layer]), [0])[0]
        except (KeyError, OSError, ValueError) as error:
            raise GroupError(f'layer {layer} of the checkpoint did not come: '
                             f'{str(error).splitlines()[0]:.200}') from None

    def _send_bytes(self, data: bytes, target: str) -> None:
        group = self._group
        group.send(torch.tensor([len(data)]), target, 1)
        for piece in torch.split(torch.frombuffer(bytearray(data), dtype=torch.uint8), PIECE):
            group.send(piece, target, 2)

    def _receive_bytes(self, source: str) -> bytes:
        group = self._group
        size, work = group.receive((1,), torch.int64, source, 1)
        group.wait(work, source)
        if not 32 <= int(size) <= most_bytes(self._sizes):
            raise TornError(f'{source} offers a snapshot of {int(size)} bytes')
        data = bytearray()
        while left := int(size) - len(data):
            piece, work = group.receive((min(left, PIECE),), torch.uint8, source, 2)
            group.wait(work, source)
            data += piece.numpy().tobytes()
        return bytes(data)
