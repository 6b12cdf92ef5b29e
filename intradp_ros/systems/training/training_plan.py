# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A plan of training: stages of layers on groups of devices, and the grains that each takes."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import itertools
from typing import Any

from intradp_ros.cluster.plan_id import PlanError

FORMAT = 'rounds/1'
MOST_STAGES, MOST_GRAINS, MOST_NAME = 256, 1 << 16, 256
#: Of a round; a day.
MOST_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class TrainingStage:
    """Layers first to last - 1 on devices that take so many grains of a micro-batch each."""

    first: int
    last: int
    shares: tuple[tuple[str, int], ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """Return its devices, in the order in which grains are dealt."""
        return tuple(name for name, _ in self.shares)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """
    Stages in order, and how a round of `grains` is dealt in micro-batches.

    Micro-batches are as equal as grains allow; the shares of every stage add up to the grains
    of the largest.  In a smaller one the last devices of a stage have less to do.  `seconds` are
    what a round is expected to take: waits are longer by some rounds; 0 where nobody knows.

    Raises
    ------
    PlanError
        If layers or grains are left out or taken twice, or a device has two parts.

    """

    stages: tuple[TrainingStage, ...]
    grains: int
    micro_batches: int
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Check that everything is there once."""
        if not 1 <= len(self.stages) <= MOST_STAGES or not 1 <= self.grains <= MOST_GRAINS \
                or not 1 <= self.micro_batches <= self.grains:
            raise PlanError(f'a plan has 1 to {MOST_STAGES} stages, 1 to {MOST_GRAINS} grains and '
                            'no more micro-batches than grains')
        ends = [0, *(stage.last for stage in self.stages)]
        if not 0 <= self.seconds <= MOST_SECONDS:
            raise PlanError(f'a round takes 0 to {MOST_SECONDS} s, not {self.seconds}')
        if any(s.first != end or s.last <= s.first for s, end in zip(self.stages, ends)):
            raise PlanError('the stages of a plan take the layers from 0 on, each once')
        names = self.participants
        if len(set(names)) != len(names):
            raise PlanError(f'a device has two parts in the plan: {", ".join(names)}')
        for stage in self.stages:
            if sum(n for _, n in stage.shares) != self.largest or \
                    any(n < 1 for _, n in stage.shares):
                raise PlanError(f'shares {stage.shares} do not make the {self.largest} grains of '
                                'a micro-batch')

    @property
    def participants(self) -> tuple[str, ...]:
        """Return all devices; a device's place is its rank."""
        return tuple(name for stage in self.stages for name in stage.devices)

    @property
    def largest(self) -> int:
        """Return the grains of the largest micro-batch."""
        return -(-self.grains // self.micro_batches)

    @property
    def layers(self) -> int:
        """Return how many layers there are."""
        return self.stages[-1].last

    def stage_of(self, device: str) -> int:
        """Return the stage of a device."""
        return next(k for k, stage in enumerate(self.stages) if device in stage.devices)

    def micro_batch(self, number: int) -> range:
        """Return the grains of a micro-batch."""
        least, more = divmod(self.grains, self.micro_batches)
        first = number * least + min(number, more)
        return range(first, first + least + (number < more))

    def dealt(self, stage: int, number: int) -> Mapping[str, range]:
        """Return the grains of a micro-batch that each device of a stage computes."""
        grains, found, begin = self.micro_batch(number), {}, 0
        for name, share in self.stages[stage].shares:
            found[name] = grains[begin:begin + share]
            begin += share
        return found

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {'format': FORMAT, 'grains': self.grains, 'micro_batches': self.micro_batches,
                'seconds': self.seconds,
                'stages': [{'first': s.first, 'last': s.last,
                            'shares': [list(share) for share in s.shares]}
                           for s in self.stages]}

    def __str__(self) -> str:
        """Return one line: layers and grains of every device."""
        return ' | '.join(f'{s.first}-{s.last - 1}: ' + ' '.join(
            f'{name}({share})' for name, share in s.shares) for s in self.stages)


def parse_plan(data: Any) -> TrainingPlan:
    """
    Return the plan that plain data describe; nothing in them is trusted.

    Raises
    ------
    PlanError
        If they describe none.

    """
    try:
        if data['format'] != FORMAT or len(data['stages']) > MOST_STAGES:
            raise PlanError(f'not a plan of format {FORMAT}, or one of more than {MOST_STAGES} '
                            'stages')
        stages = tuple(TrainingStage(_number(s['first']), _number(s['last']), tuple(
            (_name(name), _number(share)) for name, share in
            itertools.islice(s['shares'], MOST_STAGES))) for s in data['stages'])
        return TrainingPlan(stages, _number(data['grains']), _number(data['micro_batches']),
                            float(data.get('seconds', 0.0)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlanError(f'a plan of training cannot be read: {error!r:.200}') from None


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 1 << 20:
        raise PlanError(f'{value!r:.40} is no count')
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MOST_NAME:
        raise PlanError(f'{value!r:.40} is no name of a device')
    return value
