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
from dataclasses import dataclass, field
import math
import threading
from typing import Any

import torch
from torch import fx, nn
import torch.nn.functional as F  # noqa: N812

from intradp_ros.systems.training.task import (
    draw_seed,
    examples,
    TaskError,
    Tensors,
    TrainingTask,
)

_ATEN = torch.ops.aten
MOST_ROWS = 1 << 20
_NORM = _ATEN.batch_norm.default
_DROPOUT = _ATEN.dropout.default
_FEATURES = _ATEN.feature_dropout.default
_BERNOULLI = _ATEN.bernoulli.p
_ATTENTION = _ATEN.scaled_dot_product_attention.default
#: What `node.meta` has of a node that draws: which of the network's draws it is.
_PLACE = 'intradp_draw'
#: Seed of the draws when an export is compared with its module.
_TRIED = 11
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

    `statistics` has mean and variance of each grain by the name of the running mean's buffer.
    """

    seed: int
    round: int
    grains: Sequence[int]
    rows: Sequence[int]
    autocast: torch.dtype | None = None
    freeze_norms: bool = False
    statistics: dict[str, dict[int, torch.Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class LayerGraph:
    """A network in layers; `cuts[k]` is what enters layer k, the last what the network returns."""

    root: fx.GraphModule
    layers: tuple[Layer, ...]
    cuts: tuple[tuple[Value, ...], ...]
    norms: Mapping[str, tuple[str, float]]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the names of the module's inputs, in the order of its forward."""
        return tuple(n.name for n in self.root.graph.nodes if n.op == 'placeholder')

    def nbytes(self, layer: int) -> int:
        """Return the bytes of a layer's parameters and statistics."""
        one, tensors = self.layers[layer], {**dict(self.root.named_parameters()),
                                            **dict(self.root.named_buffers())}
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

    def _node(self, name: str) -> fx.Node:
        nodes: dict[str, fx.Node] = {node.name: node for node in self.root.graph.nodes}
        return nodes[name]

    def _copy(self, node: fx.Node, graph: fx.Graph, made: dict[fx.Node, fx.Node],
              rows: fx.Node) -> fx.Node:
        """Copy a node, what it needs that no cut carries first: constants and sizes."""
        if node in made:
            return made[node]
        if (line := _line(node)) is not None:
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
    """Runs a stage on some grains: batch norm and dropout go by grain, all else at once."""

    def __init__(self, stage: fx.GraphModule, one: Pass) -> None:
        super().__init__(stage)
        self._pass = one

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        by_grain: dict[Any, Callable[..., Any]] = {
            _NORM: self._norm, _DROPOUT: self._dropout, _FEATURES: self._features,
            _BERNOULLI: self._bernoulli, _ATTENTION: self._attention}
        special = by_grain.get(n.target)
        if n.op != 'call_function' or special is None:
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return special(n, *args, **kwargs)

    def _norm(self, node: fx.Node, x: torch.Tensor, weight: torch.Tensor | None,
              bias: torch.Tensor | None, mean: torch.Tensor | None, var: torch.Tensor | None,
              training: bool, momentum: float, eps: float, cudnn: bool) -> torch.Tensor:
        if not training or self._pass.freeze_norms and mean is not None:
            return F.batch_norm(x, mean, var, weight, bias, False, momentum, eps)
        parts = []
        for grain, part in zip(self._pass.grains, torch.split(x, list(self._pass.rows))):
            if mean is None:
                parts.append(F.batch_norm(part, None, None, weight, bias, True, momentum, eps))
                continue
            found = torch.zeros(2, *mean.shape, dtype=mean.dtype, device=mean.device)
            parts.append(F.batch_norm(part, found[0], found[1], weight, bias, True, 1.0, eps))
            name = str(node.args[3].target)  # type: ignore[union-attr]
            self._pass.statistics.setdefault(name, {})[grain] = found
        return torch.cat(parts)

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
            torch.empty_like(part).bernoulli_(p, generator=generator)
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
        tensors = zip(*(torch.split(t, self._share(t)) for t in (q, k, v)))
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
        times = len(x) // sum(self._pass.rows)
        return [times * rows for rows in self._pass.rows]


def capture(task: TrainingTask) -> LayerGraph:
    """
    Export a task's module in training mode, and find where it may be cut.

    Raises
    ------
    TaskError
        If it cannot be exported, changes buffers other than statistics of batch norm, or the
        export differs from the module in any bit.

    """
    inputs, _ = examples(task.data, min(3, max(2, len(task.data))))
    module = task.module.train()
    kept = copy.deepcopy(module)
    batch = torch.export.Dim('batch', min=1, max=MOST_ROWS)
    dynamic = (tuple({0: batch} for _ in inputs),) if _variadic(module) else \
        tuple({0: batch} for _ in inputs)
    try:
        root = torch.export.export(module, inputs, dynamic_shapes=dynamic).module()
    except Exception as error:
        raise TaskError(f'{type(module).__name__} cannot be exported in training mode: '
                        f'{str(error).splitlines()[0]}') from error
    assert isinstance(root, fx.GraphModule)
    norms = _functional(root)
    dtypes = _dtypes(root, inputs, task)
    _check_equal(root, kept, inputs, task)
    return _in_layers(root, norms, dtypes)


def _variadic(module: nn.Module) -> bool:
    return bool(module.forward.__code__.co_flags & 0x04)


def _functional(root: fx.GraphModule) -> dict[str, tuple[str, float]]:
    """Take out what counts batches, replace operators that work in place; return the norms."""
    buffers, norms = dict(root.named_buffers()), {}
    for node in list(root.graph.nodes):
        if node.op == 'call_module' and '_guards' in str(node.target):
            root.graph.erase_node(node)
            continue
        if node.op != 'call_function':
            continue
        schema = getattr(node.target, '_schema', None)
        if node.target is _NORM and node.args[5] and node.args[3] is not None:
            norms[node.args[3].target] = (node.args[4].target, node.args[6])
        if schema is None or not schema.is_mutable:
            continue
        into = node.args[0]
        if into.op == 'get_attr' and 'num_batches_tracked' in str(into.target):
            if node.users:
                raise TaskError('batch norm with momentum=None averages over all batches, which '
                                'is not supported: give it a momentum')
            root.graph.erase_node(node)
            continue
        if into.op == 'get_attr' and into.target in buffers:
            raise TaskError(f'the module changes its buffer {into.target} in the forward pass, '
                            'which only batch norm may')
        node.target = _BERNOULLI if node.target is _ATEN.bernoulli_.float else getattr(
            getattr(_ATEN, schema.name.removeprefix('aten::').rstrip('_'), None),
            schema.overload_name or 'default', None)
        if node.target is None:
            raise TaskError(f'{schema.name} works in place, and has no other form')
        order = list(root.graph.nodes)
        later = set(order[order.index(node) + 1:])
        into.replace_all_uses_with(node, later.__contains__)
    _number_draws(root)
    root.graph.lint()
    root.recompile()
    return norms


def _number_draws(root: fx.GraphModule) -> None:
    """Give each node that draws its place; refuse those that cannot draw by grain."""
    place = 0
    for node in root.graph.nodes:
        if node.op != 'call_function':
            continue
        if node.target in (_DROPOUT, _FEATURES, _BERNOULLI, _ATTENTION):
            node.meta[_PLACE] = place
            place += 1
        elif torch.Tag.nondeterministic_seeded in getattr(node.target, 'tags', ()):
            raise TaskError(f'{node.target} draws at random in a way that cannot go by round and '
                            'grain: use nn.Dropout, nn.Dropout1d to 3d or stochastic depth')


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
             recorder: type[StageInterpreter] = StageInterpreter) -> Any:
    """Run a stage forward on some grains and return the tuple that it makes."""
    runner = recorder(stage, one)
    with torch.autocast(inputs[0].device.type, one.autocast or torch.bfloat16,
                        enabled=one.autocast is not None):
        made = runner.run(*inputs)
    return (made, runner.dtypes) if isinstance(runner, _Recorder) else made


def _dtypes(root: fx.GraphModule, inputs: Tensors, task: TrainingTask) -> dict[str, torch.dtype]:
    one = Pass(task.seed, 0, (0,), (len(inputs[0]),), task.autocast, task.freeze_norms)
    with torch.no_grad():
        _, found = run_pass(root, inputs, one, _Recorder)
    return dict(found)


class _AsModule(StageInterpreter):
    """Draws as the module does, from the generator of the process."""

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        return super().run_node(n) if n.target is _NORM else fx.Interpreter.run_node(self, n)


def _check_equal(root: fx.GraphModule, module: nn.Module, inputs: Tensors,
                 task: TrainingTask) -> None:
    """
    Compare outputs with the module's to the last bit, and gradients but for rounding.

    Both draw alike: from equal seeds, in the same order.
    """
    if task.freeze_norms:
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                part.eval()
    export = copy.deepcopy(root)
    one = Pass(task.seed, 0, (0,), (len(inputs[0]),), task.autocast, task.freeze_norms)

    def ours() -> Any:
        return run_pass(export, inputs, one, _AsModule)

    def theirs() -> Any:
        with torch.autocast('cpu', task.autocast or torch.bfloat16,
                            enabled=task.autocast is not None):
            return module(*inputs)
    made, found = [], []
    for run, parameters in ((ours, export), (theirs, module)):
        with _DRAWS, torch.random.fork_rng(devices=[]):
            torch.manual_seed(_TRIED)
            output = run()
        output = output[0] if isinstance(output, tuple) and len(output) == 1 else output
        if not isinstance(output, torch.Tensor):
            raise TaskError(f'{type(module).__name__} must return one tensor, not '
                            f'{type(output).__name__}')
        if output.requires_grad:
            weights = torch.linspace(0.5, 1.5, output.numel(), dtype=output.dtype)
            torch.autograd.backward((output * weights.view_as(output)).sum())
        made.append(output.detach())
        found.append({name: torch.zeros_like(p) if p.grad is None else p.grad
                      for name, p in parameters.named_parameters()})
    same = torch.equal(*made) or bool((made[0].isnan() == made[1].isnan()).all()) and torch.equal(
        *(value.nan_to_num() for value in made))
    wrong = [name for name in found[0].keys() & found[1].keys()
             if not _near(found[0][name], found[1][name], task.autocast)]
    if not same or wrong:
        what = f'has other gradients of {", ".join(sorted(wrong)[:3])}' if same else \
            'does not return what the module returns'
        raise TaskError(f'the export of {type(module).__name__} {what}: use no views that are '
                        'written to, and nothing that changes with each call')


def _near(one: torch.Tensor, other: torch.Tensor, autocast: torch.dtype | None) -> bool:
    """Whether two gradients differ by no more than rounding of sums."""
    bound = math.sqrt(torch.finfo(autocast or one.dtype).eps)
    return bool(((one - other).abs().max() <= bound * other.abs().max()) | other.isnan().any()) \
        if one.numel() else True


def _in_layers(root: fx.GraphModule, norms: Mapping[str, tuple[str, float]],
               dtypes: Mapping[str, torch.dtype]) -> LayerGraph:
    order = list(root.graph.nodes)
    final = order[-1].all_input_nodes
    if order[-1].op != 'output' or len(final) != 1:
        raise TaskError('the module must return one tensor')
    learned = {name for name, p in root.named_parameters() if p.requires_grad}
    moving = _moving(order, learned)
    steps = [n for n in order if n.op == 'call_function' and n in moving and _line(n) is None]
    place = {node: k for k, node in enumerate(steps)}
    place |= {node: -1 for node in order if node.op == 'placeholder'}
    reach = {node: max((place[u] for u in _readers(node, place)), default=-1) for node in place}
    reach[final[0]] = len(steps)
    held = _spans(root, order, place, learned)
    cuts, found = [0], [_crossing(place, reach, 0, dtypes, moving)]
    for k in range(1, len(steps)):
        if any(a < k <= b for a, b in held.values()):
            continue
        values = _crossing(place, reach, k, dtypes, moving)
        if values is None:
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
    found.append(_crossing(place, reach, len(steps), dtypes, moving))
    if any(values is None for values in found):
        raise TaskError('inputs and result need one row a sample, and rows of a fixed shape')
    layers = tuple(_layer(root, steps[a:b]) for a, b in zip(ends, ends[1:]))
    return LayerGraph(root, layers, tuple(found), norms)  # type: ignore[arg-type]


def _moving(order: Sequence[fx.Node], learned: set[str]) -> set[fx.Node]:
    """Return the nodes that depend on inputs or on what is learned; others are constants."""
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
           learned: set[str]) -> dict[str, tuple[int, int]]:
    """Return the first and last step that uses each tensor that is learned or folded."""
    tensors = {name: id(t) for name, t in [*root.named_parameters(remove_duplicate=False),
                                           *root.named_buffers(remove_duplicate=False)]}
    uses: dict[int, list[int]] = {}
    for node in order:
        if node.op == 'get_attr' and (node.target in learned or 'running_' in str(node.target)):
            uses.setdefault(tensors[str(node.target)], []).extend(
                place[user] for user in node.users if user in place)
    return {str(key): (min(k), max(k)) for key, k in uses.items() if k}


def _crossing(place: Mapping[fx.Node, int], reach: Mapping[fx.Node, int], cut: int,
              dtypes: Mapping[str, torch.dtype], moving: set[fx.Node]) -> tuple[Value, ...] | None:
    found = []
    for node, k in place.items():
        if k >= cut or reach[node] < cut:
            continue
        value = node.meta.get('val')
        if not isinstance(value, torch.Tensor) or not value.dim() or \
                _coefficients(value.shape[0]) != (1, 0) or \
                any(not isinstance(size, int) for size in value.shape[1:]):
            return None
        dtype = dtypes.get(node.name, value.dtype)
        found.append(Value(node.name, tuple(value.shape[1:]), dtype,
                           node.op != 'placeholder' and dtype.is_floating_point
                           and bool(value.requires_grad or _learned_behind(node))))
    order = {node.name: k for k, node in enumerate(next(iter(place)).graph.nodes)}
    return tuple(sorted(found, key=lambda value: order[value.name]))


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


def _layer(root: fx.GraphModule, nodes: Sequence[fx.Node]) -> Layer:
    parameters, buffers = dict(root.named_parameters()), dict(root.named_buffers())
    used = list(dict.fromkeys(str(one.target) for node in nodes for one in node.all_input_nodes
                              if one.op == 'get_attr'))
    tensors = {id(p): name for name, p in parameters.items()}
    duplicates = dict(root.named_parameters(remove_duplicate=False))
    own = dict.fromkeys(tensors[id(duplicates[name])] for name in used if name in duplicates)
    name = next((name.rpartition('.')[0] for name in own), '') or next(
        (node.name for node in nodes if not node.name.startswith('_assert')), nodes[0].name)
    return Layer(name, tuple(nodes), tuple(own),
                 tuple(name for name in used if name in buffers and 'running_' in name))


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
