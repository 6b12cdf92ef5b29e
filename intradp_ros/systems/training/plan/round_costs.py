# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What any stage of a round costs on any device: sums over ranges of layers, looked up."""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from intradp_ros.cluster.topology import Topology
from intradp_ros.systems.training.layers.layer_table import LayerTable, TableError
from intradp_ros.systems.training.plan.hybrid_plan import HybridStage
from intradp_ros.systems.training.plan.training_plan import passes_of, warm_up

Shares = tuple[tuple[str, int], ...]
Moves = dict[tuple[str, str], float]
"""Samples (or bytes) from one device to another."""


@dataclass(frozen=True)
class RoundCosts:
    """
    A round of `micro_batches` micro-batches of `micro_batch` samples on the devices of a topology.

    `block` samples are dealt at once (a grain).  `batch` are the samples of the round, where some
    micro-batches are smaller: as equal as grains allow, larger ones first.  `images` has the share
    of the data that lies on a device, adding up to 1; without it, images are where they are
    needed.  `merges`: devices that train the whole network may take a round in fewer passes.

    `tags` are the rounds of which devices keep snapshots (parameters, and what the optimiser
    keeps): of their own layers, and where others train the rest, of a stage as large.  Where
    weights are `judged`, the best ones go with each snapshot.  `process` are the bytes of a
    process that trains, whatever its layers are.

    :raises TableError: if a device has no times, or a figure makes no sense.
    """

    table: LayerTable
    topology: Topology
    micro_batch: int
    micro_batches: int
    block: int = 0
    images: Mapping[str, float] = field(default_factory=dict)
    batch: int = 0
    tags: int = 0
    process: float = 0.0
    merges: bool = False
    judged: bool = False

    def __post_init__(self) -> None:
        """Check the figures."""
        if not 1 <= self.micro_batch <= 1 << 16 or not 1 <= self.micro_batches <= 1 << 16:
            raise TableError('a round has 1 to 65536 micro-batches of 1 to 65536 samples')
        if not 0 <= self.block <= self.micro_batch:
            raise TableError(f'a block has 1 to {self.micro_batch} samples, not {self.block}')
        if missing := [name for name in self.topology.names if name not in self.table.times]:
            raise TableError(f'the layer table has no seconds of {", ".join(missing)}: measure '
                             'them there')
        for name, share in self.images.items():
            self.topology.device(name)
            if not 0 <= share <= 1:
                raise TableError(f'{name} has {share} of the data: a share is from 0 to 1')
        if self.images and not abs(sum(self.images.values()) - 1) < 1e-6:
            raise TableError('the shares of the data must add up to 1')
        if self.batch and (-(-self.batch // self.grain) < self.micro_batches
                           or max(self.portions) != self.micro_batch):
            raise TableError(f'{self.batch} samples in blocks of {self.grain} are not '
                             f'{self.micro_batches} micro-batches, the largest of '
                             f'{self.micro_batch}')

    def only(self, names: Collection[str]) -> RoundCosts:
        """Return the same on these devices alone."""
        gone = set(self.topology.names).difference(names)
        images = {name: share for name, share in self.images.items() if name not in gone}
        return replace(self, topology=self.topology.without(gone), images=images) if gone \
            else self

    def in_passes(self, count: int) -> RoundCosts:
        """
        Return the same with a round in so many micro-batches.

        :raises TableError: if one were too large.
        """
        if count == self.micro_batches:
            return self
        blocks = -(-self.samples // self.grain)
        most = -(-blocks // count) * self.grain
        return replace(self, micro_batch=min(self.samples, most), micro_batches=count,
                       block=self.grain, batch=self.samples)

    @property
    def samples(self) -> int:
        """Return the samples of a round."""
        return self.batch or self.micro_batch * self.micro_batches

    @property
    def layers(self) -> int:
        """Return how many layers there are."""
        return len(self.table.layers)

    @cached_property
    def grain(self) -> int:
        """Return the samples of a block; a sixteenth of a micro-batch where none is given."""
        return self.block or max(1, self.micro_batch // 16)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Return the samples that a device may have: whole blocks, the last one may be short."""
        return (*range(0, self.micro_batch, self.grain), self.micro_batch)

    @cached_property
    def portions(self) -> tuple[int, ...]:
        """Return the samples of each micro-batch."""
        if not self.batch:
            return (self.micro_batch,) * self.micro_batches
        blocks = -(-self.batch // self.grain)
        least, more = divmod(blocks, self.micro_batches)
        short = blocks * self.grain - self.batch
        return tuple(self.grain * (least + (k < more))
                     - short * (k + 1 == self.micro_batches) for k in range(self.micro_batches))

    @cached_property
    def _different(self) -> tuple[tuple[int, int], ...]:
        """Different portions, and how many micro-batches are as large."""
        return tuple(Counter(self.portions).items())

    @property
    def even(self) -> bool:
        """Return whether all micro-batches are as large."""
        return len(self._different) == 1

    @cached_property
    def _summed(self) -> dict[str, npt.NDArray[np.float64]]:
        """Sums of seconds by device: shape (2, sizes, layers + 1)."""
        found = {}
        for name in self.topology.names:
            rows = np.zeros((2, len(self.sizes), self.layers + 1))
            for k, samples in enumerate(self.sizes):
                if samples:
                    both = self.table.times[name].seconds(samples)
                    rows[:, k, 1:] = np.cumsum(np.array(both), axis=1)
            found[name] = rows
        return found

    @cached_property
    def _bytes(self) -> npt.NDArray[np.float64]:
        rows = (np.array(self.table.weight_bytes) * 2 + np.array(self.table.optimiser_bytes),
                self.table.activation_bytes, self.table.weight_bytes,
                self.table.statistics_bytes or np.zeros(self.layers))
        return np.concatenate([np.zeros((4, 1)), np.cumsum(np.array(rows), axis=1)], axis=1)

    def blocks(self, samples: int) -> int:
        """Return the index of so many samples in `sizes`."""
        return -(-samples // self.grain)

    def seconds(self, name: str, first: int, last: int, samples: int) -> tuple[float, float]:
        """Return forward and backward seconds of a range of layers on a device."""
        rows = self._summed[name][:, self.blocks(samples)]
        both = rows[:, last] - rows[:, first]
        return float(both[0]), float(both[1])

    def step_seconds(self, name: str, first: int, last: int) -> float:
        """Return the seconds of the optimiser's step of a range of layers."""
        return sum(self.table.times[name].step[first:last])

    def range_seconds(self, name: str, first: int, last: int) -> npt.NDArray[np.float64]:
        """Return seconds of both directions together by `sizes`."""
        rows = self._summed[name]
        found: npt.NDArray[np.float64] = (rows[:, :, last] - rows[:, :, first]).sum(axis=0)
        return found

    def dealing_seconds(self, name: str, first: int, last: int) -> npt.NDArray[np.float64]:
        """
        Return how long a device is busy with a micro-batch by `sizes`, as samples are dealt by.

        Where images have to come to the first stage, it is what takes longer: they or computing.
        """
        found = self.range_seconds(name, first, last)
        away = [giver for giver, part in self.images.items() if part and giver != name]
        if first or not away:
            return found
        rate = min(self.topology.rate(giver, name) for giver in away)
        each = (1 - self.images.get(name, 0.0)) * self.table.border_bytes[0] / rate
        return np.maximum(found, each * np.array(self.sizes))

    def weights(self, first: int, last: int) -> float:
        """Return the bytes of the parameters of a range."""
        return float(self._bytes[2, last] - self._bytes[2, first])

    def summed_bytes(self, first: int, last: int) -> float:
        """Return what a group sums after a round: gradients, and statistics of every grain."""
        grains = self.micro_batches * (len(self.sizes) - 1)
        return self.weights(first, last) + grains * float(
            self._bytes[3, last] - self._bytes[3, first])

    def fixed_bytes(self, first: int, last: int) -> float:
        """Return the bytes of a process, parameters, gradients, optimiser and snapshots."""
        trained = float(self._bytes[0, last] - self._bytes[0, first])
        weights, kept = self.weights(first, last), self.tags * (
            1 if last - first == self.layers else 2)
        best = self.judged * weights
        return self.process + trained + best + kept * (trained - weights + best)

    def state_bytes(self, layer: int) -> float:
        """Return what moves with a layer: parameters, best ones, and what the optimiser keeps."""
        return (1 + self.judged) * self.table.weight_bytes[layer] + \
            self.table.optimiser_bytes[layer]

    def copies_bytes(self) -> float:
        """Return what copies of all layers take: those of `tags` rounds, and one on the way."""
        return self.process + (self.tags + 1) * sum(map(self.state_bytes, range(self.layers)))

    def sample_bytes(self, first: int, last: int) -> float:
        """Return what a range keeps of one sample, what enters it included."""
        return float(self._bytes[1, last] - self._bytes[1, first]) + self.table.border_bytes[first]

    def memory(self, first: int, last: int, samples: int, kept: int) -> float:
        """Return the bytes of a device with so many micro-batches kept (Eq. 3)."""
        return (self.fixed_bytes(first, last)
                + kept * samples * self.sample_bytes(first, last))

    def kept(self, stages_behind: int) -> int:
        """Return K_p of a stage with so many behind it: 2r + 1, at most M."""
        return warm_up(0, stages_behind + 1, self.micro_batches)

    def dealt(self, stage: HybridStage, numbers: range | None = None) -> list[Shares]:
        """Return the samples of each device of a stage in these passes of a round (all)."""
        if not stage.of_round:
            cut = {portion: _first_of(stage.shares, portion) for portion, _ in self._different}
            return [cut[self.portions[k]] for k in numbers or range(self.micro_batches)]
        own = {}
        for name, samples in stage.shares:
            blocks = passes_of(self.blocks(samples), len(self.sizes) - 1)
            own[name] = [self.grain * count for count in blocks]
            own[name][-1] -= sum(own[name]) - samples
        return [tuple((name, passes[k]) for name, passes in own.items() if k < len(passes))
                for k in range(self.micro_batches)]

    def different_passes(self, stage: HybridStage) -> list[tuple[Shares, int]]:
        """Return who takes how many samples in a pass of a round, and how often."""
        if stage.of_round:
            return list(Counter(self.dealt(stage)).items())
        return [(_first_of(stage.shares, portion), times) for portion, times in self._different]

    def round_samples(self, stage: HybridStage, name: str) -> int:
        """Return the samples that a device of a stage has in a round."""
        return sum(times * dict(shares).get(name, 0)
                   for shares, times in self.different_passes(stage))

    def stage_memory(self, stage: HybridStage, name: str) -> float:
        """Return the bytes of a device of a stage."""
        return self.memory(stage.first, stage.last,
                           max(dict(shares).get(name, 0)
                               for shares, _ in self.different_passes(stage)), stage.warm_up)

    def stage_seconds(self, stage: HybridStage, name: str) -> tuple[float, float]:
        """Return forward and backward seconds of a round on a device of a stage."""
        both = [(times, self.seconds(name, stage.first, stage.last, samples))
                for shares, times in self.different_passes(stage)
                for other, samples in shares if other == name]
        return sum(n * f for n, (f, _) in both), sum(n * b for n, (_, b) in both)

    def crossings(self, before: HybridStage, behind: HybridStage) -> Moves:
        """Return the samples that go from a stage to the next in a micro-batch, on average."""
        if self.even:
            return crossings(before.shares, behind.shares)
        return self._mean((crossings(_first_of(before.shares, portion),
                                     _first_of(behind.shares, portion)), times)
                          for portion, times in self._different)

    def images_of(self, stage: HybridStage) -> Moves:
        """Return the samples that travel to a first stage in a pass, on average."""
        if not self.images:
            return {}
        return self._mean((self.image_moves(shares), times)
                          for shares, times in self.different_passes(stage))

    def _mean(self, found: Iterable[tuple[Moves, int]]) -> Moves:
        total: Moves = {}
        for moves, times in found:
            for ends, samples in moves.items():
                total[ends] = total.get(ends, 0.0) + times * samples / self.micro_batches
        return total

    def most_samples(self, name: str, first: int, last: int, kept: int) -> int:
        """Return the most samples (whole blocks) that fit on a device."""
        room = self.topology.device(name).memory_bytes - self.fixed_bytes(first, last)
        each = kept * self.sample_bytes(first, last)
        if room < 0:
            return 0
        if room >= each * self.micro_batch:
            return self.micro_batch
        return int(room / each) // self.grain * self.grain

    def image_moves(self, shares: Sequence[tuple[str, float]]) -> Moves:
        """
        Return the samples of a pass that travel to the devices of the first stage, on average.

        Samples are drawn from all data alike, wherever they lie: who needs them is not a reason
        to draw others, or results would depend on the plan.
        """
        return {(giver, taker): samples * part for taker, samples in shares
                for giver, part in self.images.items() if giver != taker and samples and part}

    def media_seconds(self, moves: Mapping[tuple[str, str], float], nbytes: float,
                      ) -> dict[str, float]:
        """Return how long moves of samples keep each medium busy."""
        found: dict[str, float] = {}
        for (a, b), samples in moves.items():
            for medium in self.topology.path(a, b):
                rate = self.topology.medium(medium).bytes_per_second
                found[medium] = found.get(medium, 0.0) + samples * nbytes / rate
        return found

    def delay(self, moves: Mapping[tuple[str, str], float]) -> float:
        """Return the longest delay of some moves."""
        return max((self.topology.delay(a, b) for a, b in moves), default=0.0)


def crossings(before: Shares, behind: Shares) -> Moves:
    """Return the samples that go from each device of a group to each of the next, other ones."""
    moves: Moves = {}
    ends = [_spans(before), _spans(behind)]
    for a, low, high in ends[0]:
        for b, first, last in ends[1]:
            both = min(high, last) - max(low, first)
            if both > 0 and a != b:
                moves[a, b] = both
    return moves


def ring_moves(names: Sequence[str]) -> Moves:
    """Return what each device sends to the next in a sum of gradients, in weights' bytes."""
    count = len(names)
    if count < 2:
        return {}
    return {(a, names[(k + 1) % count]): 2 * (count - 1) / count for k, a in enumerate(names)}


def ring_delays(names: Sequence[str], topology: Topology) -> tuple[tuple[str, str], int]:
    """
    Return the slowest hop of a ring, and how many of its delays a sum takes.

    Parts go around twice, once to be summed and once to all: 2 (n - 1) hops one after another.
    """
    pairs = [(a, names[(k + 1) % len(names)]) for k, a in enumerate(names)]
    return max(pairs, key=lambda pair: topology.delay(*pair)), 2 * (len(names) - 1)


def _first_of(shares: Shares, samples: int) -> Shares:
    """Return what devices have of a smaller micro-batch: the last ones less, or nothing."""
    found = []
    for name, share in shares:
        if samples <= 0:
            break
        found.append((name, min(share, samples)))
        samples -= share
    return tuple(found)


def _spans(shares: Shares) -> list[tuple[str, int, int]]:
    found, at = [], 0
    for name, samples in shares:
        found.append((name, at, at + samples))
        at += samples
    return found
