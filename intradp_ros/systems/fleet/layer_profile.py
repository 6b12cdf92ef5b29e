# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Published layer profiles of the PipeDream kind (``graph.txt``) as models to plan for.

Each line describes a node (``ID -- NAME -- forward_compute_time=MS, ...,
activation_size=BYTES, parameter_size=BYTES``), or an edge (a tab, then
``ID -- ID``).  A node with several outputs lists their sizes in brackets.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
import math
import re

from intradp_ros.systems.fleet.planning_model import Flow, Node, PlanningModel, SOURCE

#: Longer texts are no layer profile of a network that this planner is for.
MOST_BYTES, MOST_LAYERS = 8 << 20, 20_000

_NODE = re.compile(r'(\S{1,64}) -- (.*) -- forward_compute_time=(\S+), '
                   r'backward_compute_time=(\S+), activation_size=(.+), parameter_size=(\S+)')
_EDGE = re.compile(r'\t(\S{1,64}) -- (\S{1,64})')


@dataclass(frozen=True, slots=True)
class _Layer:
    name: str
    seconds: float
    output_bytes: float
    weight_bytes: float


def read_layer_profile(text: str, name: str, batch: int = 1) -> PlanningModel:
    """
    Return the model of a layer profile that was measured with `batch` samples at once.

    Layers called ``Input`` are the source's: nothing is computed there, and
    what they yield comes from the source.

    Raises
    ------
    ValueError
        If the text is not such a profile; it names the line.

    """
    if batch < 1:
        raise ValueError(f'a profile is measured with 1 sample or more, got {batch}')
    if len(text) > MOST_BYTES:
        raise ValueError(f'a layer profile has at most {MOST_BYTES >> 20} MB')
    layers, readers = _parse(text)
    inputs = {key for key, layer in layers.items() if layer.name.startswith('Input')}
    order = [key for key in _order(layers, readers) if key not in inputs]
    place = {key: index for index, key in enumerate(order)} | dict.fromkeys(inputs, SOURCE)
    read = {key: [place[r] for r in readers[key] if r not in inputs] for key in layers}
    working = {key: layers[key].output_bytes for key in order}
    for key, targets in readers.items():
        for target in targets:
            if target in working:
                working[target] += layers[key].output_bytes
    nodes = tuple(Node(layers[key].name, layers[key].seconds / batch, layers[key].weight_bytes,
                       working[key] / batch) for key in order)
    flows = tuple(Flow(place[key], tuple(sorted(read[key])) or (SOURCE,),
                       layers[key].output_bytes / batch)
                  for key in layers if read[key] or key not in inputs)
    return PlanningModel(name, nodes, flows)


def _parse(text: str) -> tuple[dict[str, _Layer], Mapping[str, list[str]]]:
    layers: dict[str, _Layer] = {}
    readers: dict[str, list[str]] = defaultdict(list)
    for number, line in enumerate(text.splitlines(), 1):
        if edge := _EDGE.fullmatch(line):
            for end in edge.groups():
                if end not in layers:
                    raise ValueError(f'line {number}: an edge names {end!r}, which is no layer')
            readers[edge[1]].append(edge[2])
        elif node := _NODE.fullmatch(line):
            layers[node[1]] = _layer(node, number)
        elif line.strip():
            raise ValueError(f'line {number} describes neither a layer nor an edge: {line[:60]!r}')
    if not layers or len(layers) > MOST_LAYERS:
        raise ValueError(f'a layer profile has 1 to {MOST_LAYERS} layers, this one {len(layers)}')
    return layers, readers


def _layer(node: re.Match[str], number: int) -> _Layer:
    try:
        sizes = [float(size) for size in node[5].strip('[]').split(';')]
        figures = float(node[3]) / 1e3, math.fsum(sizes), float(node[6])
    except ValueError:
        raise ValueError(f'line {number}: times and sizes must be numbers') from None
    if not all(math.isfinite(figure) and figure >= 0 for figure in figures):
        raise ValueError(f'line {number}: times and sizes must be 0 or more')
    return _Layer(node[2], *figures)


def _order(layers: Mapping[str, _Layer], readers: Mapping[str, list[str]]) -> tuple[str, ...]:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for key in layers:
        sorter.add(key)
    for key, targets in readers.items():
        for target in targets:
            sorter.add(target, key)
    try:
        return tuple(sorter.static_order())
    except CycleError:
        raise ValueError('the layers read each other in a circle') from None
