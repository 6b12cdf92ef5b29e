# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A network in layers between which it may be cut, and any range of them as a stage.

Layers are ranges of the nodes of an export in training mode.  A cut is valid where all that
crosses it has one row a sample, and no parameter is used on both sides.  Values that skip stages
travel with each of them.
"""
from __future__ import annotations

from collections.abc import Mapping
import copy
from dataclasses import dataclass, field
import math
from typing import Any

import torch
from torch import fx, nn

from intradp_ros.systems.training.base.structure import Structure, taken_apart, Tensors
from intradp_ros.systems.training.base.task import CPU, losses_of, TaskError, TrainingTask

#: Values that may cross a cut, and tensors of a sample: inputs and targets.
MOST_VALUES, MOST_TENSORS = 100, 27


@dataclass(frozen=True, slots=True)
class Value:
    """What crosses a cut: a row of `shape` for each sample; `gradient`: whether one comes back."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    gradient: bool

    @property
    def nbytes(self) -> int:
        """Bytes of one sample."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Layer:
    """A range of nodes, with the parameters and the buffers that only it uses."""

    name: str
    nodes: tuple[fx.Node, ...]
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Norm:
    """How statistics are folded: the running variance's name, momentum, uses in a pass."""

    variance: str
    momentum: float
    uses: int


@dataclass(frozen=True)
class Interface:
    """
    What the module takes, the loss gets as targets, and the module returns.

    `order` has, for each tensor that is returned, its place among the values behind the last
    layer; `wanted` are targets as values.
    """

    inputs: Structure
    targets: Structure
    outputs: Structure
    order: tuple[int, ...]
    wanted: tuple[Value, ...]


@dataclass(frozen=True)
class LayerGraph:
    """
    A network in layers; `cuts[k]` is what enters layer k, the last what the network returns.

    `norms` are by the name of the running mean.  `changes` has the buffers that a forward pass
    changes whatever the samples are, as the power iteration of spectral norm does, and the nodes
    of their new values.  Unless it is proved that samples which are computed together do not
    change each other, each grain is computed alone: `by_grain` says why for the network,
    `loss_by_grain` for the loss.
    """

    root: fx.GraphModule
    layers: tuple[Layer, ...]
    cuts: tuple[tuple[Value, ...], ...]
    norms: Mapping[str, Norm]
    interface: Interface
    changes: Mapping[str, str] = field(default_factory=dict)
    by_grain: str = ''
    loss_by_grain: str = ''

    @property
    def trained(self) -> list[str]:
        """Return the names of the parameters that are trained, in the order of layers."""
        return [name for layer in self.layers for name in layer.parameters
                if self.root.get_parameter(name).requires_grad]

    @property
    def moving(self) -> list[str]:
        """Return the names of the buffers that training changes."""
        return [name for layer in self.layers for name in layer.buffers]

    @property
    def apart(self) -> bool:
        """Whether each grain goes through the network alone."""
        return bool(self.by_grain)

    @property
    def loss_apart(self) -> bool:
        """Whether the loss gets each grain alone."""
        return bool(self.loss_by_grain)

    def entering(self, inputs: Any) -> Tensors:
        """
        Return what enters the first layer of the inputs of some samples.

        :raises TaskError: if they are not as the first ones were.
        """
        tensors, structure = taken_apart(inputs)
        if structure != self.interface.inputs:
            raise TaskError(f'some samples have inputs of the form {structure.spec}, the first '
                            f'ones {self.interface.inputs.spec}')
        names = [n.name for n in self.root.graph.nodes if n.op == 'placeholder']
        named = dict(zip(names, tensors, strict=True))
        return tuple(named[value.name] for value in self.cuts[0])

    def losses(self, task: TrainingTask, outputs: Tensors, targets: Tensors,
               ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return losses and counts of samples, by what leaves the last layer and by targets."""
        one = self.interface
        return losses_of(task, one.outputs.filled([outputs[k] for k in one.order]),
                         one.targets.filled(targets), targets[0].shape[0])

    def nbytes(self, layer: int) -> int:
        """Return the bytes of a layer's parameters and statistics."""
        one, tensors = self.layers[layer], tensors_by_name(self.root)
        return sum(tensors[name].nbytes for name in (*one.parameters, *one.buffers))

    def stage(self, first: int, last: int, place: torch.device = CPU) -> fx.GraphModule:
        """Return layers first to last - 1 as a module of its own tensors, which lie there."""
        graph, made = fx.Graph(), {}
        for value in self.cuts[first]:
            node = self._node(value.name)
            made[node] = graph.placeholder(node.name)
        rows = next(iter(made.values()))
        for layer in self.layers[first:last]:
            for node in layer.nodes:
                self._copy(node, graph, made, rows)
        graph.output(tuple(self._copy(self._node(value.name), graph, made, rows)
                           for value in self.cuts[last]))
        stage = copy.deepcopy(fx.GraphModule(self.root, graph))
        for name in (name for layer in self.layers[first:last] for name in layer.buffers):
            _hold(stage, name, self.root.get_buffer(name))
        if place != CPU:
            _move(stage, place)
        return stage

    def changed(self, first: int, last: int, stage: fx.GraphModule) -> fx.GraphModule | None:
        """Return what makes the new values of `changes` in layers, of a stage's own tensors."""
        names = [name for layer in self.layers[first:last] for name in layer.buffers
                 if name in self.changes]
        if not names:
            return None
        graph, made = fx.Graph(), dict[fx.Node, fx.Node]()
        graph.output({name: self._copy(self._node(self.changes[name]), graph, made)
                      for name in names})
        return fx.GraphModule(stage, graph)

    def _node(self, name: str) -> fx.Node:
        nodes: dict[str, fx.Node] = {node.name: node for node in self.root.graph.nodes}
        return nodes[name]

    def _copy(self, node: fx.Node, graph: fx.Graph, made: dict[fx.Node, fx.Node],
              rows: fx.Node | None = None) -> fx.Node:
        """Copy a node, what it needs that no cut carries first: constants and sizes."""
        if node in made:
            return made[node]
        if (line := row_line(node)) is not None and rows is not None:
            made[node] = graph.call_function(_sized, (rows, *line))
            return made[node]
        if node.op == 'placeholder':
            raise TaskError(f'{node.name} is read behind a cut that does not carry it')
        for needed in node.all_input_nodes:
            self._copy(needed, graph, made, rows)
        made[node] = graph.node_copy(node, lambda one: made[one])
        made[node].name = node.name
        return made[node]


def _hold(stage: nn.Module, name: str, value: torch.Tensor) -> None:
    """Let a stage have a copy of a buffer, also one that its graph never reads."""
    *path, last = name.split('.')
    for part in path:
        if not hasattr(stage, part):
            stage.add_module(part, nn.Module())
        stage = getattr(stage, part)
    if not hasattr(stage, last):
        stage.register_buffer(last, value.detach().clone())


def _move(stage: fx.GraphModule, place: torch.device) -> None:
    """Put a stage's tensors, and what its operators make, into another memory."""
    moved: dict[int, torch.Tensor] = {}
    for part in stage.modules():
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None and id(tensor) not in moved:
                there = tensor.detach().to(place)
                moved[id(tensor)] = nn.Parameter(there, tensor.requires_grad) \
                    if isinstance(tensor, nn.Parameter) else there
            if tensor is not None:
                setattr(part, name, moved[id(tensor)])
    for node in stage.graph.nodes:
        node.args, node.kwargs = fx.node.map_aggregate(
            (node.args, node.kwargs), lambda one: place if isinstance(one, torch.device) else one)


def returned_nodes(root: fx.GraphModule) -> list[fx.Node]:
    """Return the nodes that a graph returns, in order; one may be returned twice."""
    returned: Any = root.graph.output_node().args[0]
    return list(returned) if isinstance(returned, tuple | list) else [returned]


def tensors_by_name(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers, by all of their names."""
    return {**dict(module.named_parameters(remove_duplicate=False)),
            **dict(module.named_buffers(remove_duplicate=False))}


def by_first_name(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers, each by the first of its names."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def row_line(node: fx.Node) -> tuple[int, int] | None:
    """Return a, b where a node is the number a x rows + b, None where it is not such a number."""
    value = node.meta.get('val')
    return size_line(value) if isinstance(value, torch.SymInt) else None


def size_line(size: Any) -> tuple[int, int]:
    """Return a, b where a size is a x rows + b."""
    if isinstance(size, int):
        return (0, size)
    expression = size.node.expr
    at = [int(expression.subs(dict.fromkeys(expression.free_symbols, rows))) for rows in (8, 16)]
    slope = (at[1] - at[0]) // 8
    return slope, at[0] - 8 * slope


def _sized(x: torch.Tensor, slope: int, offset: int) -> int:
    return slope * len(x) + offset
