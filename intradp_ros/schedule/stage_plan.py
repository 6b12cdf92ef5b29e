# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Plans of a pipeline: which device runs which operators, for which samples.

A model's operators are divided into stages.  A stage runs on one device, or
on several (a replica group), which divide the samples of a micro-batch among
them.  One sample is one inference of the captured graph.  A plan says too in which
order transfers leave their senders.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from intradp_ros.cluster.plan_id import PlanError as PlanError
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.wire.sanitise import quoted

FORMAT, VERSION = 'intradp_ros.stage_plan', 2
#: More would make plans of untrusted origin expensive to check and to compile.
MAX_SAMPLES, MAX_STAGES, MAX_MEMBERS, MAX_TURNS = 256, 256, 64, 1 << 14
#: Inferences that a transfer may be ahead of its own, or behind.
MAX_LEAD = 1e6


@dataclass(frozen=True, slots=True)
class Member:
    """A device of a stage, and how many samples of each micro-batch it takes."""

    device: str
    samples: int


@dataclass(frozen=True, slots=True)
class Stage:
    """Operators by index in the graph's running order, ascending, and who runs them."""

    operators: tuple[int, ...]
    members: tuple[Member, ...]

    def device_of(self, sample: int) -> str:
        """Return who runs a sample of a micro-batch, 0 for the first: shares in members' order."""
        for member in self.members:
            if sample < member.samples:
                return member.device
            sample -= member.samples
        raise PlanError(f'the stage has no device for {sample + 1} samples more')


@dataclass(frozen=True, slots=True)
class Turn:
    """
    By how many inferences a transfer is ahead of its turn.

    The transfer is that of a value (by index in the graph) from device to
    device.  That of inference k has the urgency k - lead; the smallest goes first.
    """

    value: int
    source: str
    target: str
    lead: float


@dataclass(frozen=True)
class StagePlan:
    """
    Stages in an order in which each reads only what the source or earlier stages have.

    `digest` is the model's; `source` is the device that has the inputs and
    takes the outputs; `samples` is the size of a micro-batch, of which each
    stage's shares are the parts.  `order` has the transfers that do not go in
    the order of inferences, the oldest first; None: transfers take turns.
    """

    digest: str
    source: str
    samples: int
    stages: tuple[Stage, ...]
    order: tuple[Turn, ...] | None = ()

    def check(self, graph: OperatorGraph, devices: Sequence[str]) -> None:
        """
        See that every operator stands in one stage, in order, and all devices are known.

        :raises PlanError: if that does not hold; the text says what is wrong.
        """
        _check_sizes(self)
        for name in (self.source, *self.devices):
            if name not in devices:
                raise PlanError(f'the plan names device {name!r}; there are {", ".join(devices)}')
        placed = [op for stage in self.stages for op in stage.operators]
        if sorted(placed) != list(range(len(graph.operators))):
            raise PlanError(f'a plan places each of the {len(graph.operators)} operators once; '
                            f'this one places {len(set(placed))} of them, {len(placed)} in sum')
        _check_order(self, graph)

    @property
    def leads(self) -> dict[tuple[int, str, str], float]:
        """How far transfers are ahead, by value, source and target; of others it is 0."""
        return {(t.value, t.source, t.target): t.lead for t in self.order or ()}

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that compute, in order of the stages, each once."""
        return tuple(dict.fromkeys(m.device for s in self.stages for m in s.members))

    @property
    def participants(self) -> tuple[str, ...]:
        """All devices of the plan, each once: the source first."""
        return tuple(dict.fromkeys((self.source, *self.devices)))

    def route(self, sample: int) -> tuple[str, ...]:
        """Return the device of every stage for one sample of a micro-batch."""
        return tuple(stage.device_of(sample) for stage in self.stages)

    def routes(self) -> tuple[tuple[str, ...], ...]:
        """Return the distinct routes in order of the samples that first take them."""
        return tuple(dict.fromkeys(self.route(k) for k in range(self.samples)))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return {'format': FORMAT, 'version': VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any) -> StagePlan:
        """
        Return the plan that plain data describe; nothing in them is trusted.

        :raises PlanError: if the data are not those of a plan.
        """
        if not isinstance(data, Mapping) or data.get('format') != FORMAT:
            raise PlanError(f'not a plan: the field "format" must be {FORMAT!r}')
        if data.get('version') != VERSION:
            raise PlanError(f'the plan has version {quoted(data.get("version"))}, this release '
                            f'reads {VERSION}: make the plan again')
        try:
            plan = cls(_text(data['digest']), _text(data['source']), _count(data['samples']),
                       tuple(_stage(item) for item in _items(data['stages'], MAX_STAGES)),
                       _order(data['order']))
        except (KeyError, TypeError) as error:
            raise PlanError(f'the plan lacks or misspells {error}') from None
        _check_sizes(plan)
        return plan


def _stage(item: Any) -> Stage:
    members = tuple(Member(_text(m['device']), _count(m['samples']))
                    for m in _items(item['members'], MAX_MEMBERS))
    return Stage(tuple(_count(k, 0) for k in _items(item['operators'], 1 << 20)), members)


def _order(items: Any) -> tuple[Turn, ...] | None:
    if items is None:
        return None
    return tuple(Turn(_count(t['value'], 0), _text(t['source']), _text(t['target']),
                      _lead(t['lead'])) for t in _items(items, MAX_TURNS, 0))


def _items(data: Any, most: int, least: int = 1) -> Sequence[Any]:
    if not isinstance(data, list | tuple) or not least <= len(data) <= most:
        raise PlanError(f'a plan has lists of {least} to {most} entries')
    return data


def _lead(data: Any) -> float:
    if type(data) not in (int, float) or not -MAX_LEAD <= data <= MAX_LEAD:
        raise PlanError(f'leads in a plan are numbers of at most {MAX_LEAD:g}, got '
                        f'{quoted(data)}')
    return float(data)


def _text(data: Any) -> str:
    if not isinstance(data, str) or not 0 < len(data) <= 256:
        raise PlanError('names and digests in a plan are texts of 1 to 256 characters')
    return data


def _count(data: Any, least: int = 1) -> int:
    if type(data) is not int or not least <= data < 1 << 31:
        raise PlanError(f'counts in a plan are whole numbers of {least} or more, got '
                        f'{quoted(data)}')
    return data


def _check_sizes(plan: StagePlan) -> None:
    if not 1 <= plan.samples <= MAX_SAMPLES or not 1 <= len(plan.stages) <= MAX_STAGES:
        raise PlanError(f'a plan has 1 to {MAX_SAMPLES} samples in 1 to {MAX_STAGES} stages')
    for number, stage in enumerate(plan.stages):
        names = [member.device for member in stage.members]
        if not stage.operators or list(stage.operators) != sorted(set(stage.operators)):
            raise PlanError(f'stage {number} needs operators in ascending order, each once')
        if len(set(names)) != len(names) or any(m.samples < 1 for m in stage.members):
            raise PlanError(f'stage {number} names a device twice, or one without samples')
        if sum(m.samples for m in stage.members) != plan.samples:
            raise PlanError(f'the samples of stage {number} must add up to {plan.samples}')
    if len(plan.leads) != len(plan.order or ()):
        raise PlanError('the order of a plan names a transfer twice')


def _check_order(plan: StagePlan, graph: OperatorGraph) -> None:
    known = set(graph.inputs)
    for number, stage in enumerate(plan.stages):
        for op in (graph.operators[index] for index in stage.operators):
            if missing := set(op.inputs) - known:
                names = ', '.join(graph.values[v].name for v in sorted(missing))
                raise PlanError(f'stage {number} runs {op.name} before {names} is there')
            known.update(v for v in op.outputs if v is not None)
