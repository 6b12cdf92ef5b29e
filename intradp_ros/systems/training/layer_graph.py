# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A network in layers between which it may be cut, and any range of them as a stage.

The module is exported in training mode with a dynamic batch; layers are ranges of the export's
nodes.  A cut is valid where all that crosses it has one row a sample, and no parameter is used
on both sides.  Values that skip stages travel with each of them.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import copy
from dataclasses import dataclass, field, replace
import math
import random
import threading
from typing import Any

import numpy as np
import torch
from torch import fx, nn
import torch.nn.functional as F  # noqa: N812

from intradp_ros.systems.training.structure import (
    split_rows,
    Structure,
    taken_apart,
    Tensors,
    tensors_of,
)
from intradp_ros.systems.training.task import (
    call,
    draw_seed,
    examples,
    losses_of,
    TaskError,
    TrainingTask,
)

_ATEN = torch.ops.aten
MOST_ROWS = 1 << 20
#: Values that may cross a cut, and tensors of a sample: inputs and targets.
MOST_VALUES, MOST_TENSORS = 100, 27
_NORM = _ATEN.batch_norm.default
_INSTANCE = _ATEN.instance_norm.default
_DROPOUT = _ATEN.dropout.default
_FEATURES = _ATEN.feature_dropout.default
_BERNOULLI = _ATEN.bernoulli.p
_ATTENTION = _ATEN.scaled_dot_product_attention.default
#: What `node.meta` has of a node that draws: which of the network's draws it is.
_PLACE = 'intradp_draw'
#: What `node.meta` has of a norm: which use of its statistics it is.
_USE = 'intradp_use'
#: Seed of the draws when an export is compared with its module.
_TRIED = 11
#: Samples that a network is tried with, and how many of them are the first of two grains.
_ROWS, _FIRST = 5, 3
#: The generator of the process is shared by its threads.
_DRAWS = threading.Lock()


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


@dataclass
class Pass:
    """
    The grains of one forward pass of a stage, and the statistics of each.

    `statistics` has mean and variance of each use by grain, shape (uses, 2, ...), by the name of
    the running mean's buffer.  `held` returns what forward passes change, as it is before a grain.
    """

    seed: int
    round: int
    grains: Sequence[int]
    rows: Sequence[int]
    autocast: torch.dtype | None = None
    freeze_norms: bool = False
    statistics: dict[str, dict[int, torch.Tensor]] = field(default_factory=dict)
    held: Callable[[int], Mapping[str, torch.Tensor]] = lambda grain: {}  # noqa: E731

    def alone(self, k: int) -> Pass:
        """Return the pass of one of the grains; it notes its statistics here, too."""
        return replace(self, grains=self.grains[k:k + 1], rows=self.rows[k:k + 1])


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
    of their new values.  Where samples that are computed together change each other's values or
    gradients, `apart` (of the network) and `loss_apart` say that each grain is computed alone.
    """

    root: fx.GraphModule
    layers: tuple[Layer, ...]
    cuts: tuple[tuple[Value, ...], ...]
    norms: Mapping[str, Norm]
    interface: Interface
    changes: Mapping[str, str] = field(default_factory=dict)
    apart: bool = False
    loss_apart: bool = False

    def entering(self, inputs: Any) -> Tensors:
        """
        Return what enters the first layer of the inputs of some samples.

        Raises
        ------
        TaskError
            If they are not as the first ones were.

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
                         one.targets.filled(targets), len(targets[0]))

    def nbytes(self, layer: int) -> int:
        """Return the bytes of a layer's parameters and statistics."""
        one, tensors = self.layers[layer], _tensors(self.root)
        return sum(tensors[name].nbytes for name in (*one.parameters, *one.buffers))

    def stage(self, first: int, last: int) -> fx.GraphModule:
        """Return layers first to last - 1 as a module of its own tensors."""
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
        return copy.deepcopy(fx.GraphModule(self.root, graph))

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
        if (line := _line(node)) is not None and rows is not None:
            made[node] = graph.call_function(_sized, (rows, *line))
            return made[node]
        if node.op == 'placeholder':
            raise TaskError(f'{node.name} is read behind a cut that does not carry it')
        for needed in node.all_input_nodes:
            self._copy(needed, graph, made, rows)
        made[node] = graph.node_copy(node, lambda one: made[one])
        made[node].name = node.name
        return made[node]


class StageInterpreter(fx.Interpreter):
    """
    Runs a stage on some grains: batch norm and dropout go by grain, all else at once.

    What draws in another way needs a pass of one grain.
    """

    def __init__(self, stage: fx.GraphModule, one: Pass) -> None:
        super().__init__(stage)
        self._pass, self._held = one, one.held(one.grains[0])

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        if n.op == 'get_attr' and n.target in self._held:
            return self._held[str(n.target)]
        by_grain: dict[Any, Callable[..., Any]] = {
            _NORM: self._norm, _INSTANCE: self._norm, _DROPOUT: self._dropout,
            _FEATURES: self._features, _BERNOULLI: self._bernoulli,
            _ATTENTION: self._attention}
        special: Callable[..., Any] | None = by_grain.get(
            n.target, self._drawn if _PLACE in n.meta else None)
        if n.op != 'call_function' or special is None:
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return special(n, *args, **kwargs)

    def _norm(self, node: fx.Node, x: torch.Tensor, weight: torch.Tensor | None,
              bias: torch.Tensor | None, mean: torch.Tensor | None, var: torch.Tensor | None,
              training: bool, momentum: float, eps: float, cudnn: bool) -> torch.Tensor:
        if not training or self._pass.freeze_norms and mean is not None:
            assert callable(node.target)
            return node.target(  # type: ignore[no-any-return]
                x, weight, bias, mean, var, False, momentum, eps, cudnn)
        norm, parts = torch.batch_norm if node.target is _NORM else torch.instance_norm, []
        for grain, part in zip(self._pass.grains, torch.split(x, self._share(x))):
            found = [None, None] if mean is None else self._found(node, grain, mean)
            parts.append(norm(part, weight, bias, found[0], found[1], True, 1.0, eps, cudnn))
        return torch.cat(parts)

    def _found(self, node: fx.Node, grain: int, mean: torch.Tensor) -> torch.Tensor:
        """Return where a norm's statistics of a grain go."""
        name, use, uses = node.meta[_USE]
        of_grains = self._pass.statistics.setdefault(name, {})
        if grain not in of_grains:
            of_grains[grain] = torch.zeros(uses, 2, *mean.shape, dtype=mean.dtype,
                                           device=mean.device)
        return of_grains[grain][use]

    def _drawn(self, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
        assert callable(node.target)
        args, kwargs = fx.node.map_aggregate((args, kwargs), _in_order)
        with _DRAWS, torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._generators(node)[0].initial_seed())
            return node.target(*args, **kwargs)

    def _dropout(self, node: fx.Node, x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        return self._scaled(node, x, x, p) if train and p else x

    def _features(self, node: fx.Node, x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        channels = x.new_empty(*x.shape[:2], *[1] * (x.dim() - 2))
        return self._scaled(node, x, channels, p) if train and p else x

    def _scaled(self, node: fx.Node, x: torch.Tensor, like: torch.Tensor, p: float,
                ) -> torch.Tensor:
        """Let a part p of x go, by draws of the shape of `like`; scale up what stays."""
        if p == 1:
            return x * 0
        return x * self._bernoulli(node, like, 1 - p).div_(1 - p)

    def _bernoulli(self, node: fx.Node, x: torch.Tensor, p: float = 0.5) -> torch.Tensor:
        return torch.cat([
            torch.empty(part.shape, dtype=x.dtype, device=x.device).bernoulli_(
                p, generator=generator)
            for generator, part in zip(self._generators(node), torch.split(x, self._share(x)))])

    def _attention(self, node: fx.Node, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                   mask: torch.Tensor | None = None, p: float = 0.0, *args: Any,
                   **kwargs: Any) -> torch.Tensor:
        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                   mask: torch.Tensor | None) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v, mask, p, *args, **kwargs)
        if p == 0:
            return attend(q, k, v, mask)
        parts, masks = [], [mask] * len(self._pass.rows)
        if mask is not None and mask.dim() == q.dim() and len(mask) == len(q):
            masks = list(torch.split(mask, self._share(mask)))
        tensors = zip(*(torch.split(_in_order(t), self._share(t)) for t in (q, k, v)))
        for generator, (own_q, own_k, own_v), own in zip(self._generators(node), tensors, masks):
            with _DRAWS, torch.random.fork_rng(devices=[]):
                torch.manual_seed(generator.initial_seed())
                parts.append(attend(own_q, own_k, own_v, own))
        return torch.cat(parts)

    def _generators(self, node: fx.Node) -> list[torch.Generator]:
        one = self._pass
        return [torch.Generator().manual_seed(draw_seed(
            one.seed, 2, one.round, grain, node.meta[_PLACE])) for grain in one.grains]

    def _share(self, x: torch.Tensor) -> list[int]:
        """Return the rows of each grain in a tensor that may have several for a sample."""
        if len(self._pass.rows) == 1:
            return [len(x)]
        times = len(x) // sum(self._pass.rows)
        return [times * rows for rows in self._pass.rows]


def _in_order(value: Any) -> Any:
    """Return a tensor in memory as its rows are: draws go by memory, which borders change."""
    return value.contiguous() if isinstance(value, torch.Tensor) else value


def capture(task: TrainingTask) -> LayerGraph:
    """
    Export a task's module in training mode, and find where it may be cut.

    Raises
    ------
    TaskError
        If it cannot be exported, changes buffers other than statistics of batch norm, or the
        export differs from the module in any bit.

    """
    taken = examples(task.data, _ROWS)
    (inputs, given), (targets, wanted) = map(taken_apart, taken)
    if given.constants or wanted.constants or len(inputs) + len(targets) > MOST_TENSORS:
        raise TaskError(f'a sample is 1 to {MOST_TENSORS} tensors, and nothing else: inputs are '
                        f'{given.spec}, targets {wanted.spec}')
    module = task.module if task.module.training else task.module.train()
    kept = copy.deepcopy(module)
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.momentum is None and \
                part.track_running_stats and part.training and not task.freeze_norms:
            raise TaskError(f'{name} has momentum=None: it averages over all batches, which is '
                            'not supported; give it a momentum, or freeze_norms to the task')
    tried = tuple(x[:_FIRST] for x in inputs)
    changed, returned = _changed(kept, given.filled(tried), task)
    root = _exported(module, given, tried)
    _inline(root)
    _name_as(root, module)
    norms, changes, draws = _functional(root)
    folded = {name for mean, norm in norms.items() for name in (mean, norm.variance)}
    if others := sorted({*changed} - folded - {*changes}):
        raise TaskError(f'the module changes {", ".join(others[:3])} in the forward pass: buffers '
                        'may change by statistics of norms, or whatever the samples are, as in '
                        'spectral norm (max_norm of an embedding cannot be used)')
    _check_equal(root, kept, given, tried, task)
    ends = list(dict.fromkeys(_ends(root)))
    interface = Interface(
        given, wanted, returned, tuple(map(ends.index, _ends(root))),
        tuple(Value(f'target {k}', tuple(x.shape[1:]), x.dtype, False)
              for k, x in enumerate(targets)))
    dtypes = _dtypes(root, tried, task)
    _keep_learned(root, interface, tried, tuple(x[:_FIRST] for x in targets), task)
    graph = _in_layers(root, norms, changes, dtypes, interface)
    _check_changes(graph, changed)
    # In a mixed precision a pass rounds what it adds up for a weight to 16 bits: by grain, so that
    # it does not matter how many grains a device has.
    return replace(graph, apart=task.autocast is not None or draws or bool(changes)
                   or _mixes(root, inputs, task),
                   loss_apart=_loss_mixes(graph, inputs, targets, task))


def _exported(module: nn.Module, given: Structure, tried: Tensors) -> fx.GraphModule:
    """Export a module as what takes tensors in a row, and returns them so."""
    whole = module.forward

    def in_a_row(*tensors: torch.Tensor) -> Tensors:
        inputs = given.filled(tensors)
        made, structure = taken_apart(
            whole(**inputs) if isinstance(inputs, Mapping) else whole(*inputs))
        if structure.odd:
            raise TaskError(f'it returns a {structure.odd[0]}: it may return tensors with a row a '
                            'sample, in tuples, lists, dicts and dataclasses, and None')
        return made
    batch = torch.export.Dim('batch', min=1, max=MOST_ROWS)
    module.forward = in_a_row
    try:
        root = torch.export.export(
            module, tried, dynamic_shapes=(tuple({0: batch} for _ in tried),)).module()
    except TaskError:
        raise
    except Exception as error:
        raise TaskError(f'{type(module).__name__} cannot be exported in training mode: '
                        f'{str(error).splitlines()[0]} (what is computed must not depend on how '
                        'many samples there are, or on their values; take x.shape[0], '
                        'not len(x))') from error
    finally:
        del module.forward
    assert isinstance(root, fx.GraphModule)
    root.graph.set_codegen(fx.graph.CodeGen())  # tensors in a row, as stages take them
    return root


def _ends(root: fx.GraphModule) -> list[fx.Node]:
    """Return the nodes that a graph returns, in order; one may be returned twice."""
    returned: Any = root.graph.output_node().args[0]
    return list(returned) if isinstance(returned, tuple | list) else [returned]


def _check_changes(graph: LayerGraph, changed: Mapping[str, torch.Tensor]) -> None:
    """See that the graph makes of buffers what the module made of them."""
    change = graph.changed(0, len(graph.layers), graph.root)
    if change is None:
        return
    with torch.no_grad():
        made = StageInterpreter(change, Pass(0, 0, (0,), (0,))).run()
    if wrong := [name for name, value in made.items()
                 if name in changed and not _same(value, changed[name])]:
        raise TaskError(f'the module changes {wrong[0]} in the forward pass in a way that '
                        'cannot be followed: assign or change the buffer as a whole, once')


def _changed(module: nn.Module, inputs: Any, task: TrainingTask,
             ) -> tuple[dict[str, torch.Tensor], Structure]:
    """
    Return parameters and buffers that a forward pass changes, and what form its results have.

    What counts batches is left out.

    Raises
    ------
    TaskError
        If a second pass on a copy, with equal draws, returns other values.

    """
    module = copy.deepcopy(module)
    before = {name: t.detach().clone() for name, t in _by_first_name(module).items()}
    made, after = [], dict[str, torch.Tensor]()
    generators = _generators()
    for _ in range(2):
        with torch.no_grad(), _autocast(task), _DRAWS, torch.random.fork_rng(devices=[]):
            torch.manual_seed(_TRIED)
            made.append(taken_apart(call(module, inputs)))
        after = after or {name: t.detach().clone() for name, t in _by_first_name(module).items()}
    if generators != _generators():
        raise TaskError('the module draws at random with Python or NumPy, which cannot go by '
                        'round and grain: draw with torch')
    changed = {name: after[name] for name, t in _by_first_name(module).items()
               if name in before and not torch.equal(t, before[name])}
    (first, structure), (second, again) = made
    if not changed and (structure != again or not all(map(_same, first, second))):
        raise TaskError(f'{type(module).__name__} returns other values each time for the same '
                        'samples and draws: it must not count calls')
    if not first:
        raise TaskError(f'{type(module).__name__} returns no tensor')
    return {name: value for name, value in changed.items()
            if 'num_batches_tracked' not in name}, structure


def _generators() -> object:
    """Return the states of the generators of Python and NumPy."""
    state: Any = np.random.get_state()
    return random.getstate(), state[1].tolist(), state[2]


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers, by all of their names."""
    return {**dict(module.named_parameters(remove_duplicate=False)),
            **dict(module.named_buffers(remove_duplicate=False))}


def _by_first_name(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers, each by the first of its names."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _name_as(root: fx.GraphModule, module: nn.Module) -> None:
    """Let the graph name what has several names as the module does: by the first one."""
    first: dict[int, str] = {}
    for name, tensor in _tensors(module).items():
        first.setdefault(id(tensor), name)
    names = {name: first[id(tensor)] for name, tensor in _tensors(module).items()}
    for node in root.graph.nodes:
        if node.op == 'get_attr':
            node.target = names.get(str(node.target), node.target)


def _inline(root: fx.GraphModule) -> None:
    """Put the nodes of `with torch.no_grad():` into the graph itself; what leaves is detached."""
    for node in list(root.graph.nodes):
        if 'wrap_with_set_grad_enabled' not in str(node.target) or node.op != 'call_function':
            continue
        enabled, inner, *given = node.args
        part = getattr(root, str(inner.target))
        _inline(part)
        made: dict[fx.Node, Any] = dict(zip(
            (n for n in part.graph.nodes if n.op == 'placeholder'), given))
        with root.graph.inserting_before(node):
            for one in part.graph.nodes:
                if one.op == 'output':
                    continue
                if one not in made:
                    made[one] = root.graph.node_copy(one, made.__getitem__)
            ends = part.graph.output_node().args[0]
            found = []
            for end in ends if isinstance(ends, (tuple, list)) else [ends]:
                value = made[end]
                if not enabled:
                    left = root.graph.call_function(_ATEN.detach.default, (value,))
                    left.meta = dict(value.meta)
                    value = left
                found.append(value)
        for user in list(node.users):
            user.replace_all_uses_with(found[user.args[1]])
            root.graph.erase_node(user)
        root.graph.erase_node(node)


def _functional(root: fx.GraphModule) -> tuple[dict[str, Norm], dict[str, str], bool]:
    """
    Take out what counts batches, replace operators that work in place.

    Return the norms, the nodes of new values of other buffers, and whether some nodes draw in a
    way that needs each grain on its own.
    """
    changes, holds = dict[str, str](), dict[fx.Node, str]()
    buffers, norms = set(dict(root.named_buffers(remove_duplicate=False))), dict[str, Norm]()
    uses: dict[str, list[fx.Node]] = {}
    for node in list(root.graph.nodes):
        if node.op == 'call_module' and '_guards' in str(node.target):
            root.graph.erase_node(node)
            continue
        if node.op != 'call_function':
            continue
        schema = getattr(node.target, '_schema', None)
        if node.target is _ATEN.detach.default and node.args[0] in holds:
            holds[node] = holds[node.args[0]]  # what leaves `with torch.no_grad():`
        if node.target in (_NORM, _INSTANCE) and node.args[5] and node.args[3] is not None:
            mean = str(node.args[3].target)
            uses.setdefault(mean, []).append(node)
            norms[mean] = Norm(str(node.args[4].target), float(node.args[6]), len(uses[mean]))
        if schema is None or not schema.is_mutable:
            continue
        into = node.kwargs.get('out', node.args[0])
        if into.op == 'get_attr' and 'num_batches_tracked' in str(into.target):
            node.replace_all_uses_with(into)  # a norm that is used twice counts on
            root.graph.erase_node(node)
            continue
        if into.op == 'get_attr' and into.target in buffers:
            holds[into] = str(into.target)
        if into in holds:
            holds[node] = holds[into]
            changes[holds[into]] = node.name
        node.target = _without_writing(node)
        node.kwargs = {key: given for key, given in node.kwargs.items() if key != 'out'}
        order = list(root.graph.nodes)
        later = set(order[order.index(node) + 1:])
        into.replace_all_uses_with(node, later.__contains__)
    for name, made in changes.items():
        _check_free(root, name, made)
    for mean, nodes in uses.items():
        for use, node in enumerate(nodes):
            node.meta[_USE] = mean, use, len(nodes)
    draws = _number_draws(root)
    root.graph.lint()
    root.recompile()
    return norms, changes, draws


def _without_writing(node: fx.Node) -> Any:
    """Return the operator that returns what another one writes."""
    schema = node.target._schema  # type: ignore[union-attr]
    packet = getattr(_ATEN, schema.name.removeprefix('aten::').rstrip('_'), None)
    if node.target is _ATEN.bernoulli_.float:
        return _BERNOULLI
    if 'out' in node.kwargs:
        wanted = [(one.name, str(one.type)) for one in schema.arguments if one.name != 'out']
        for name in packet.overloads() if packet else ():
            found = getattr(packet, name)
            if [(one.name, str(one.type)) for one in found._schema.arguments] == wanted:
                return found
        packet = None
    if (found := getattr(packet, schema.overload_name or 'default', None)) is None:
        raise TaskError(f'{schema.name} works in place, and has no other form')
    return found


def _check_free(root: fx.GraphModule, buffer: str, made: str) -> None:
    """See that what a forward pass makes of a buffer depends neither on samples nor on draws."""
    ahead = [node for node in root.graph.nodes if node.name == made]
    seen = set(ahead)
    while ahead:
        one = ahead.pop()
        if one.op == 'placeholder' or _draws(one):
            raise TaskError(
                f'the module changes its buffer {buffer} in the forward pass by what it makes of '
                'samples, or draws: only running statistics of norms may change so')
        new = set(one.all_input_nodes) - seen
        ahead, seen = [*ahead, *new], seen | new


def _number_draws(root: fx.GraphModule) -> bool:
    """Give each node that draws its place; return whether some need each grain on its own."""
    place, others = 0, False
    for node in root.graph.nodes:
        if node.op != 'call_function':
            continue
        known = node.target in (_DROPOUT, _FEATURES, _BERNOULLI, _ATTENTION)
        if not known and not _draws(node):
            continue
        node.meta[_PLACE] = place
        place, others = place + 1, others or not known
    return others


def _draws(node: fx.Node) -> bool:
    """Whether a node draws; recurrent networks do where they drop out."""
    if node.op != 'call_function' or \
            torch.Tag.nondeterministic_seeded not in getattr(node.target, 'tags', ()):
        return False
    given = dict(zip((argument.name for argument in
                      node.target._schema.arguments), node.args))  # type: ignore[union-attr]
    given |= node.kwargs
    return not ('dropout' in given and (not given['dropout'] or not given.get('train', True)))


class _Recorder(StageInterpreter):
    """Notes the types of values."""

    def __init__(self, stage: fx.GraphModule, one: Pass) -> None:
        super().__init__(stage, one)
        self.dtypes: dict[str, torch.dtype] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and note its type."""
        found = super().run_node(n)
        if isinstance(found, torch.Tensor):
            self.dtypes[n.name] = found.dtype
        return found


def run_pass(stage: fx.GraphModule, inputs: Sequence[torch.Tensor], one: Pass,
             recorder: type[StageInterpreter] = StageInterpreter, apart: bool = False) -> Any:
    """Run a stage forward on some grains, each alone if need be; return the tuple it makes."""
    if apart and len(one.grains) > 1:
        parts = [run_pass(stage, pieces, one.alone(k), recorder) for k, pieces in
                 enumerate(split_rows(tuple(inputs), one.rows))]
        return tuple(torch.cat(pieces) for pieces in zip(*parts))
    runner = recorder(stage, one)
    with torch.autocast(inputs[0].device.type, one.autocast or torch.bfloat16,
                        enabled=one.autocast is not None):
        made = runner.run(*inputs)
    made = made if isinstance(made, tuple) else (made,)
    return (made, runner.dtypes) if isinstance(runner, _Recorder) else made


def _autocast(task: TrainingTask) -> torch.autocast:
    return torch.autocast('cpu', task.autocast or torch.bfloat16,
                          enabled=task.autocast is not None)


def _dtypes(root: fx.GraphModule, inputs: Tensors, task: TrainingTask) -> dict[str, torch.dtype]:
    one = Pass(task.seed, 0, (0,), (len(inputs[0]),), task.autocast, task.freeze_norms)
    with torch.no_grad():
        _, found = run_pass(root, inputs, one, _Recorder)
    return dict(found)


class _AsModule(StageInterpreter):
    """Draws as the module does, from the generator of the process."""

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        return super().run_node(n) if n.target in (_NORM, _INSTANCE) else \
            fx.Interpreter.run_node(self, n)


def _check_equal(root: fx.GraphModule, module: nn.Module, given: Structure, inputs: Tensors,
                 task: TrainingTask) -> None:
    """
    Compare outputs with the module's to the last bit, and gradients but for rounding.

    Both draw alike: from equal seeds, in the same order.
    """
    if task.freeze_norms:
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._NormBase):
                part.eval()
    export = copy.deepcopy(root)
    one = Pass(task.seed, 0, (0,), (len(inputs[0]),), task.autocast, task.freeze_norms)

    def ours() -> Tensors:
        return tensors_of(run_pass(export, inputs, one, _AsModule))

    def theirs() -> Tensors:
        with _autocast(task):
            return tensors_of(call(module, given.filled(inputs)))
    made, found = [], []
    for run, parameters in ((ours, export), (theirs, module)):
        with _DRAWS, torch.random.fork_rng(devices=[]):
            torch.manual_seed(_TRIED)
            outputs = run()
        _back(outputs)
        made.append(outputs)
        found.append({name: p.grad for name, p in parameters.named_parameters(
            remove_duplicate=False) if p.requires_grad})
    ours_by, theirs_by = found
    wrong = [name for name in ours_by.keys() & theirs_by.keys()
             if not _near(_dense(ours_by[name]), _dense(theirs_by[name]), task.autocast)]
    same = len(made[0]) == len(made[1]) and all(map(_same, *made))
    if not same or wrong:
        what = f'has other gradients of {", ".join(sorted(wrong)[:3])}' if same else \
            'does not return what the module returns'
        raise TaskError(f'the export of {type(module).__name__} {what}: use no views that are '
                        'written to, nothing that changes with each call, no hooks on tensors, no '
                        'autograd functions of your own, and checkpoint(use_reentrant=False)')


def _keep_learned(root: fx.GraphModule, interface: Interface, inputs: Tensors, targets: Tensors,
                  task: TrainingTask) -> None:
    """Freeze the parameters that the loss does not reach: plain PyTorch does not step them."""
    export, one = copy.deepcopy(root), Pass(task.seed, 0, (0,), (len(inputs[0]),), task.autocast,
                                            task.freeze_norms)
    outputs = run_pass(export, inputs, one)
    losses, _ = losses_of(task, interface.outputs.filled(outputs),
                          interface.targets.filled(targets), len(inputs[0]))
    if not losses.requires_grad:
        raise TaskError('the loss depends on no parameter that is to be trained')
    torch.autograd.backward(losses.sum())
    reached = {name for name, p in export.named_parameters(remove_duplicate=False)
               if p.grad is not None}
    for name, parameter in root.named_parameters(remove_duplicate=False):
        if name not in reached:
            parameter.requires_grad_(False)


def _dense(gradient: torch.Tensor | None) -> torch.Tensor:
    return torch.zeros(()) if gradient is None else gradient.to_dense()


def _back(outputs: Sequence[torch.Tensor]) -> None:
    """Go back from outputs with gradients that differ by row, as far as they have any."""
    total = torch.zeros((), dtype=torch.float64)
    for output in outputs:
        if output.requires_grad:
            real = torch.view_as_real(output) if output.is_complex() else output
            weights = torch.linspace(0.5, 1.5, real.numel(), dtype=torch.float64).to(real.dtype)
            total = total + (real * weights.view_as(real)).sum()
    if total.requires_grad:
        torch.autograd.backward(total)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two values are equal to the last bit, or no numbers at the same places."""
    return torch.equal(one, other) or one.shape == other.shape and \
        bool((one.isnan() == other.isnan()).all()) and \
        torch.equal(one.nan_to_num(), other.nan_to_num())


def _mixes(root: fx.GraphModule, inputs: Tensors, task: TrainingTask) -> bool:
    """Whether two grains have other values or gradients together than each on its own."""
    rows = [_FIRST, _ROWS - _FIRST]

    def run(apart: bool, double: bool) -> dict[str, torch.Tensor]:
        export = copy.deepcopy(root)
        export, given = (export.double(), tuple(
            x.double() if x.is_floating_point() else x for x in inputs)) if double else \
            (export, inputs)
        one = Pass(task.seed, 0, (0, 1), rows, None if double else task.autocast,
                   task.freeze_norms)
        outputs = run_pass(export, given, one, apart=apart)
        _back(outputs)
        return {str(k): output.detach() for k, output in enumerate(outputs)} | {
            f'p:{name}': p.grad.to_dense() for name, p in export.named_parameters()
            if p.grad is not None}
    try:
        together, apart = run(False, True), run(True, True)
    except RuntimeError:  # types that are written down, say
        try:
            together, apart = run(False, False), run(True, False)
        except RuntimeError:
            return True
    # Some gradients are 0 but for rounding, such as a bias' before a norm: no measure of others.
    largest = max((float(value.abs().max()) for name, value in apart.items()
                   if name[:2] == 'p:' and value.numel()), default=0.0)
    return any(name not in together or not _near(together[name], value, None) and (
                   name[:2] != 'p:' or float((together[name] - value).abs().max())
                   > largest * torch.finfo(value.dtype).eps ** (2 / 3))
               for name, value in apart.items())


def _loss_mixes(graph: LayerGraph, inputs: Tensors, targets: Tensors,
                task: TrainingTask) -> bool:
    """Whether the losses of two grains are others together than each on its own."""
    one = Pass(task.seed, 0, (0,), (_ROWS,), task.autocast, task.freeze_norms)
    with torch.no_grad():
        outputs = run_pass(graph.root, inputs, one)
        outputs = tuple(outputs[graph.interface.order.index(k)]
                        for k in range(len(graph.cuts[-1])))
        rows = [_FIRST, _ROWS - _FIRST]
        parts = [graph.losses(task, *pieces) for pieces in
                 zip(split_rows(outputs, rows), split_rows(targets, rows))]
        whole = graph.losses(task, outputs, targets)
    return not all(_near(found, torch.cat(pieces), None)
                   for found, pieces in zip(whole, zip(*parts)))


def _near(one: torch.Tensor, other: torch.Tensor, autocast: torch.dtype | None) -> bool:
    """Whether two gradients differ by no more than rounding of sums."""
    if not (one.is_floating_point() or one.is_complex()) or not one.numel():
        return torch.equal(one, other)
    bound = math.sqrt(torch.finfo(autocast or one.dtype).eps)
    return bool(((one - other).abs().max() <= bound * other.abs().max()) | other.isnan().any())


def _in_layers(root: fx.GraphModule, norms: Mapping[str, Norm], changes: Mapping[str, str],
               dtypes: Mapping[str, torch.dtype], interface: Interface) -> LayerGraph:
    order = list(root.graph.nodes)
    final = list(dict.fromkeys(_ends(root)))
    learned = {name for name, p in root.named_parameters(remove_duplicate=False)
               if p.requires_grad}
    folded = {*changes, *(name for mean, norm in norms.items() for name in (mean, norm.variance))}
    moving = _moving(order, learned | {*changes})
    steps = [n for n in order if n.op == 'call_function' and n in moving and _line(n) is None]
    place = {node: k for k, node in enumerate(steps)}
    place |= {node: -1 for node in order if node.op == 'placeholder'}
    reach = {node: max((place[u] for u in _readers(node, place)), default=-1) for node in place}
    reach |= {node: len(steps) for node in final if node in place}
    held = _spans(root, order, place, learned | folded)
    cuts, found = [0], [_crossing(place, reach, 0, dtypes, moving)]
    for k in range(1, len(steps)):
        if any(a < k <= b for a, b in held.values()):
            continue
        values = _crossing(place, reach, k, dtypes, moving)
        if values is None or len(values) >= MOST_VALUES:
            continue
        if cuts[-1] and not _learns(steps[cuts[-1]:k], learned):
            if _nbytes(values) < _nbytes(found[-1]):
                cuts[-1], found[-1] = k, values  # the narrower of two with nothing learned between
            continue
        cuts.append(k)
        found.append(values)
    if len(cuts) > 1 and not _learns(steps[cuts[-1]:], learned):
        cuts.pop(), found.pop()
    ends = [*cuts, len(steps)]
    if found[0] is None:
        raise TaskError('inputs need one row a sample, and rows of a fixed shape')
    returned = [_value(node, dtypes) for node in final]
    for k, value in enumerate(returned):
        if value is None:
            size = getattr(final[k].meta.get('val'), 'shape', ())
            raise TaskError(
                f'the module returns a tensor of the shape {tuple(map(str, size))} as number '
                f'{interface.order.index(k) + 1}: results need one row a sample, and rows of a '
                'fixed shape. Let the loss make means and sums over samples; give what is the '
                'same for all samples a row for each, by x.expand(rows, ...)')
    found.append(tuple(returned))  # type: ignore[arg-type]
    layers = tuple(_layer(root, steps[a:b], folded) for a, b in zip(ends, ends[1:]))
    return LayerGraph(root, layers, tuple(found), norms, interface, changes)  # type: ignore[arg-type]


def _moving(order: Sequence[fx.Node], learned: set[str]) -> set[fx.Node]:
    """Return the nodes that depend on inputs or on what changes; others are constants."""
    found = set[fx.Node]()
    for node in order:
        if node.op == 'placeholder' or node.op == 'get_attr' and node.target in learned \
                or any(one in found and _line(one) is None for one in node.all_input_nodes):
            found.add(node)
    return found


def _readers(node: fx.Node, place: Mapping[fx.Node, int]) -> set[fx.Node]:
    """Return the steps that read a node's tensor; sizes are none."""
    return {user for user in node.users if user in place}


def _spans(root: fx.GraphModule, order: Sequence[fx.Node], place: Mapping[fx.Node, int],
           state: set[str]) -> dict[str, tuple[int, int]]:
    """Return the first and last step that uses each tensor that is learned or folded."""
    tensors = {name: id(t) for name, t in _tensors(root).items()}
    uses: dict[int, list[int]] = {}
    for node in order:
        if node.op == 'get_attr' and node.target in state:
            uses.setdefault(tensors[str(node.target)], []).extend(
                place[user] for user in node.users if user in place)
    return {str(key): (min(k), max(k)) for key, k in uses.items() if k}


def _crossing(place: Mapping[fx.Node, int], reach: Mapping[fx.Node, int], cut: int,
              dtypes: Mapping[str, torch.dtype], moving: set[fx.Node]) -> tuple[Value, ...] | None:
    found = []
    for node, k in place.items():
        if k >= cut or reach[node] < cut:
            continue
        value = _value(node, dtypes)
        if value is None:
            return None
        found.append(value)
    order = {node.name: k for k, node in enumerate(next(iter(place)).graph.nodes)}
    return tuple(sorted(found, key=lambda value: order[value.name]))


def _value(node: fx.Node, dtypes: Mapping[str, torch.dtype]) -> Value | None:
    """Return what crosses where a node does; None if it has not one row a sample."""
    value = node.meta.get('val')
    if not isinstance(value, torch.Tensor) or not value.dim() or \
            _coefficients(value.shape[0]) != (1, 0) or \
            any(not isinstance(size, int) for size in value.shape[1:]):
        return None
    dtype = dtypes.get(node.name, value.dtype)
    return Value(node.name, tuple(value.shape[1:]), dtype,
                 node.op != 'placeholder' and (dtype.is_floating_point or dtype.is_complex)
                 and bool(value.requires_grad or _learned_behind(node)))


def _learned_behind(node: fx.Node) -> bool:
    """Whether a value depends on a parameter."""
    ahead, seen = [node], {node}
    while ahead:
        one = ahead.pop()
        if one.op == 'get_attr' and isinstance(one.meta.get('val'), nn.Parameter):
            return True
        if one.op == 'get_attr':
            target: Any = one.graph.owning_module
            for name in str(one.target).split('.'):
                target = getattr(target, name)
            if isinstance(target, nn.Parameter) and target.requires_grad:
                return True
        for before in one.all_input_nodes:
            if before not in seen:
                seen.add(before)
                ahead.append(before)
    return False


def _learns(steps: Sequence[fx.Node], learned: set[str]) -> bool:
    return any(one.op == 'get_attr' and one.target in learned
               for node in steps for one in node.all_input_nodes)


def _nbytes(values: Sequence[Value] | None) -> float:
    return math.inf if values is None else sum(value.nbytes for value in values)


def _layer(root: fx.GraphModule, nodes: Sequence[fx.Node], folded: set[str]) -> Layer:
    parameters = dict(root.named_parameters(remove_duplicate=False))
    used = list(dict.fromkeys(str(one.target) for node in nodes for one in node.all_input_nodes
                              if one.op == 'get_attr'))
    own = tuple(name for name in used if name in parameters)
    name = next((name.rpartition('.')[0] for name in own), '') or next(
        (node.name for node in nodes if not node.name.startswith('_assert')), nodes[0].name)
    return Layer(name, tuple(nodes), own, tuple(name for name in used if name in folded))


def _line(node: fx.Node) -> tuple[int, int] | None:
    """Return a, b where a node is the number a x rows + b, None where it is no such number."""
    value = node.meta.get('val')
    return _coefficients(value) if isinstance(value, torch.SymInt) else None


def _coefficients(size: Any) -> tuple[int, int]:
    if isinstance(size, int):
        return (0, size)
    expression = size.node.expr
    at = [int(expression.subs(dict.fromkeys(expression.free_symbols, rows))) for rows in (8, 16)]
    slope = (at[1] - at[0]) // 8
    return slope, at[0] - 8 * slope


def _sized(x: torch.Tensor, slope: int, offset: int) -> int:
    return slope * len(x) + offset
