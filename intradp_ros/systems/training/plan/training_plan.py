# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A plan of training: stages of layers on groups of devices, and the grains that each takes."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any

from intradp_ros.cluster.plan_id import PlanError

FORMAT = 'rounds/1'
MOST_STAGES, MOST_GRAINS, MOST_NAME = 256, 1 << 16, 256
#: Samples of the data on a device.
MOST_DATA = 1 << 40
#: Of a round; a day.
MOST_SECONDS = 86400.0


class DataGoneError(PlanError):
    """Data lie on a device that is not there."""


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

    With `of_round`, which a plan of one stage may have, the shares add up to the grains of the
    round: each device takes its own in as few passes as the largest micro-batch allows.

    `data` has how many samples of the data lie on a device, in the order of their numbers.  Such
    a device takes part, if only to send what others need.  Empty: all can read all.

    `keepers` are devices without a stage that take part to hold a copy of what one device alone
    trains.

    :raises PlanError: if layers or grains are left out or taken twice, or a device has two parts.
    """

    stages: tuple[TrainingStage, ...]
    grains: int
    micro_batches: int
    seconds: float = 0.0
    of_round: bool = False
    data: tuple[tuple[str, int], ...] = ()
    keepers: tuple[str, ...] = ()

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
        names = [name for stage in self.stages for name in stage.devices]
        if len(set(names)) != len(names):
            raise PlanError(f'a device has two parts in the plan: {", ".join(names)}')
        if len({name for name, _ in self.data}) != len(self.data) or \
                any(count < 1 for _, count in self.data):
            raise PlanError(f'the data lie on devices {self.data}: each once, with a sample or '
                            'more')
        if len({*self.keepers, *names}) != len(self.keepers) + len(names):
            raise PlanError(f'copies are on {", ".join(self.keepers)}: each once, without a part')
        if self.of_round and len(self.stages) > 1:
            raise PlanError('only a plan of one stage can deal the grains of a round at once')
        for stage in self.stages:
            if sum(n for _, n in stage.shares) != self.shared or \
                    any(n < 1 for _, n in stage.shares):
                raise PlanError(f'shares {stage.shares} do not make the {self.shared} grains of '
                                f'a {"round" if self.of_round else "micro-batch"}')

    @property
    def participants(self) -> tuple[str, ...]:
        """Return all devices; a device's place is its rank."""
        return tuple(dict.fromkeys([*(name for stage in self.stages for name in stage.devices),
                                    *(name for name, _ in self.data), *self.keepers]))

    @property
    def largest(self) -> int:
        """Return the grains of the largest micro-batch."""
        return -(-self.grains // self.micro_batches)

    @property
    def shared(self) -> int:
        """Return the grains that the shares of a stage add up to."""
        return self.grains if self.of_round else self.largest

    @property
    def layers(self) -> int:
        """Return how many layers there are."""
        return self.stages[-1].last

    def stage_of(self, device: str) -> int | None:
        """Return the stage of a device; None if it only sends samples, or holds a copy."""
        return next((k for k, stage in enumerate(self.stages) if device in stage.devices), None)

    def micro_batch(self, number: int) -> range:
        """Return the grains of a micro-batch."""
        least, more = divmod(self.grains, self.micro_batches)
        first = number * least + min(number, more)
        return range(first, first + least + (number < more))

    def dealt(self, stage: int, number: int) -> Mapping[str, range]:
        """Return the grains that each device of a stage computes in a pass, perhaps none."""
        grains = range(self.grains) if self.of_round else self.micro_batch(number)
        found, begin = {}, 0
        for name, share in self.stages[stage].shares:
            found[name] = grains[begin:begin + share]
            if self.of_round:
                ends = list(accumulate(passes_of(share, self.largest), initial=0))
                found[name] = found[name][ends[number]:ends[number + 1]] \
                    if number + 1 < len(ends) else found[name][:0]
            begin += share
        return found

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {'format': FORMAT, 'grains': self.grains, 'micro_batches': self.micro_batches,
                'seconds': self.seconds, 'of_round': self.of_round,
                'data': [list(part) for part in self.data], 'keepers': list(self.keepers),
                'stages': [{'first': s.first, 'last': s.last,
                            'shares': [list(share) for share in s.shares]}
                           for s in self.stages]}

    def __str__(self) -> str:
        """Return one line: layers and grains of every device."""
        return ' | '.join(f'{s.first}-{s.last - 1}: ' + ' '.join(
            f'{name}({share})' for name, share in s.shares) for s in self.stages) + (
            ' of the round' if self.of_round else '') + (
            f', copies: {" ".join(self.keepers)}' if self.keepers else '')


def passes_of(count: int, most: int) -> list[int]:
    """Return in which portions so many grains are computed, of at most so many, almost equal."""
    least, more = divmod(count, passes := max(1, -(-count // most)))
    return [least + (k < more) for k in range(passes)]


def parse_plan(data: Any) -> TrainingPlan:
    """
    Return the plan that plain data describe; nothing in them is trusted.

    :raises PlanError: if they describe none.
    """
    try:
        if data['format'] != FORMAT or len(data['stages']) > MOST_STAGES:
            raise PlanError(f'not a plan of format {FORMAT}, or one of more than {MOST_STAGES} '
                            'stages')
        stages = tuple(TrainingStage(read_number(s['first']), read_number(s['last']), tuple(
            (read_text(name), read_number(share)) for name, share in
            islice(s['shares'], MOST_STAGES))) for s in data['stages'])
        held = tuple((read_text(name), read_number(count, most=MOST_DATA))
                     for name, count in islice(data.get('data', ()), MOST_STAGES))
        keepers = tuple(map(read_text, islice(data.get('keepers', ()), MOST_STAGES)))
        return TrainingPlan(stages, read_number(data['grains']),
                            read_number(data['micro_batches']), float(data.get('seconds', 0.0)),
                            data.get('of_round') is True, held, keepers)
    except PlanError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PlanError(f'a plan of training cannot be read: {error!r:.200}') from None


def warm_up(stage: int, stages: int, batches: int) -> int:
    """Return the micro-batches that a stage may have forward of the backward pass: 2(P-p)-1."""
    return min(batches, 2 * (stages - stage) - 1)


#: Makes the plan for the devices that are there, given the one in use; None if there is none.
Planner = Callable[[tuple[str, ...], TrainingPlan | None], TrainingPlan | None]


def read_number(value: Any, least: int = 0, most: int = 1 << 20) -> int:
    """Return a whole number of a plan; PlanError if it is none in these bounds."""
    if type(value) is not int or not least <= value <= most:
        raise PlanError(f'{value!r:.40} is not a number from {least} to {most}')
    return value


def read_text(value: Any, most: int = MOST_NAME) -> str:
    """Return a text of a plan, such as a name; PlanError if it is empty, too long or none."""
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise PlanError(f'{value!r:.40} is not a text of 1 to {most} characters')
    return value
