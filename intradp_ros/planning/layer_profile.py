# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Published layer profiles of PipeDream and DAPPLE as models to plan for.

Each line describes a node (``ID -- NAME -- forward_compute_time=MS,
backward_compute_time=MS, activation_size=BYTES, parameter_size=BYTES``), or an
edge (blanks, then ``ID -- ID``).  A node with several outputs lists their sizes
in brackets.  In PipeDream's profiles every reader gets all of them; DAPPLE's
list, in the same form, one for each edge.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
import math
import re

from intradp_ros.planning.planning_model import Flow, Node, PlanningModel, SOURCE

#: Longer texts are not a layer profile of a network that this planner is for.
MOST_BYTES, MOST_LAYERS = 8 << 20, 20_000

_NODE = re.compile(r'(\S{1,64}) -- (.*) -- forward_compute_time=(\S+), +'
                   r'backward_compute_time=(\S+), +activation_size=(.+), +parameter_size=(\S+)')
_EDGE = re.compile(r'[ \t]+(\S{1,64}) -- (\S{1,64})')


@dataclass(frozen=True, slots=True)
class _Layer:
    name: str
    seconds: float
    outputs: tuple[float, ...]
    weight_bytes: float

    @property
    def output_bytes(self) -> float:
        return math.fsum(self.outputs)


def read_layer_profile(text: str, name: str, batch: int = 1, by_edge: bool = False,
                       ) -> PlanningModel:
    """
    Return the model of a layer profile that was measured with `batch` samples at once.

    `by_edge` means that a layer with as many sizes as edges sends one along
    each of them, as in DAPPLE's profiles.

    Layers called ``Input`` are the source's: nothing is computed there, and
    what they yield comes from the source.

    :raises ValueError: if the text is not such a profile; it names the line.
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
    flows = tuple(flow for key in layers if read[key] or key not in inputs
                  for flow in _sent(place[key], read[key], layers[key], batch, by_edge))
    return PlanningModel(name, nodes, flows)


def _sent(maker: int, readers: list[int], layer: _Layer, batch: int, by_edge: bool) -> list[Flow]:
    if by_edge and len(readers) == len(layer.outputs) > 1:
        return [Flow(maker, (reader,), nbytes / batch)
                for reader, nbytes in zip(readers, layer.outputs)]
    return [Flow(maker, tuple(sorted(readers)) or (SOURCE,), layer.output_bytes / batch)]


def _parse(text: str) -> tuple[dict[str, _Layer], Mapping[str, list[str]]]:
    layers: dict[str, _Layer] = {}
    readers: dict[str, list[str]] = defaultdict(list)
    for number, line in enumerate(text.splitlines(), 1):
        if edge := _EDGE.fullmatch(line.rstrip()):
            for end in edge.groups():
                if end not in layers:
                    raise ValueError(f'line {number}: an edge names {end!r}, which is not a layer')
            readers[edge[1]].append(edge[2])
        elif node := _NODE.fullmatch(line.rstrip()):
            layers[node[1]] = _layer(node, number)
        elif line.strip():
            raise ValueError(f'line {number} describes neither a layer nor an edge: {line[:60]!r}')
    if not layers or len(layers) > MOST_LAYERS:
        raise ValueError(f'a layer profile has 1 to {MOST_LAYERS} layers, this one {len(layers)}')
    return layers, readers


def _layer(node: re.Match[str], number: int) -> _Layer:
    try:
        sizes = tuple(float(size) for size in node[5].strip('[]').split(';'))
        seconds, weights = float(node[3]) / 1e3, float(node[6])
    except ValueError:
        raise ValueError(f'line {number}: times and sizes must be numbers') from None
    if not all(math.isfinite(figure) and figure >= 0 for figure in (seconds, weights, *sizes)):
        raise ValueError(f'line {number}: times and sizes must be 0 or more')
    return _Layer(node[2], seconds, sizes, weights)


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
