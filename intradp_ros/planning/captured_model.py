# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""From a captured network and measured profiles to what the planner plans for."""
from __future__ import annotations

from collections.abc import Mapping

from intradp_ros.graph.operator_graph import Operator, OperatorGraph
from intradp_ros.graph.serialise import digest
from intradp_ros.planning.planning_model import Flow, Node, PlanningModel, SOURCE
from intradp_ros.profiling.profile import Profile
from intradp_ros.split.local_operator import SplitGraph


def captured_model(split: SplitGraph, profile: Profile,
                   measured: Mapping[str, Profile] | None = None) -> PlanningModel:
    """
    Return a network with a node for each operator, in running order.

    `profile` holds for every device that is not in `measured`, divided by
    the device's speed; `measured` has profiles of devices by name.

    :raises ValueError: if a profile is another network's.
    """
    graph = split.graph
    seconds = whole_seconds(split, profile)
    nodes = tuple(Node(op.name, taken, _weight_bytes(graph, op), _working_bytes(graph, op),
                       (index,))
                  for index, (op, taken) in enumerate(zip(graph.operators, seconds)))
    return PlanningModel(graph.name, nodes, _flows(graph), digest(split.captured), {
        name: {1: whole_seconds(split, own)} for name, own in (measured or {}).items()})


def whole_seconds(split: SplitGraph, profile: Profile) -> tuple[float, ...]:
    """Return what a device takes for each operator as a whole, in running order."""
    if len(profile.timings) != len(split.operators):
        raise ValueError(f'the profile of {profile.device} has {len(profile.timings)} operators, '
                         f'the network {len(split.operators)}: profile this network')
    return tuple(profile.scale * float(timing.table(op.rows)[-1])
                 for timing, op in zip(profile.timings, split.operators))


def _weight_bytes(graph: OperatorGraph, operator: Operator) -> float:
    return float(sum(graph.parameters[name].nbytes for name in dict.fromkeys(operator.parameters)))


def _working_bytes(graph: OperatorGraph, operator: Operator) -> float:
    held = {v for v in (*operator.inputs, *operator.outputs) if v is not None}
    return float(sum(graph.values[value].nbytes for value in held))


def _flows(graph: OperatorGraph) -> tuple[Flow, ...]:
    place = {op.id: index for index, op in enumerate(graph.operators)}
    results = set(graph.output_values)
    flows = []
    for value in graph.values:
        readers = tuple(sorted(place[op] for op in graph.consumers[value.id]))
        if value.id in results:
            readers += (SOURCE,)
        made = value.id in graph.producer
        if readers and (made or value.id in graph.inputs):
            maker = place[graph.producer[value.id]] if made else SOURCE
            flows.append(Flow(maker, readers, float(value.nbytes), value.id))
    return tuple(flows)
