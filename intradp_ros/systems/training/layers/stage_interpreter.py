# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A pass of a stage by grains: norms and draws of each grain are its own."""
from __future__ import annotations

from collections.abc import Callable, Sequence
import copy
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import fx
import torch.nn.functional as F  # noqa: N812

from intradp_ros.systems.training.base.structure import split_rows, Tensors
from intradp_ros.systems.training.base.task import autocast_of, CPU, draw_seed, TrainingTask
from intradp_ros.systems.training.base.user_code import DRAWING

ATEN = torch.ops.aten
BATCH_NORM = ATEN.batch_norm.default
INSTANCE_NORM = ATEN.instance_norm.default
DROPOUT = ATEN.dropout.default
FEATURE_DROPOUT = ATEN.feature_dropout.default
BERNOULLI = ATEN.bernoulli.p
ATTENTION = ATEN.scaled_dot_product_attention.default
#: What `node.meta` has of a node that draws: which of the network's draws it is.
DRAW_PLACE = 'intradp_draw'
#: What `node.meta` has of a norm: which use of its statistics it is.
NORM_USE = 'intradp_use'


@dataclass
class Pass:
    """
    The grains of one forward pass of a stage, and the statistics of each.

    `statistics` has mean and variance of each use by grain, shape (uses, 2, ...), by the name of
    the running mean's buffer.  One that is `evaluating` uses running statistics and drops nothing.
    """

    seed: int
    round: int
    grains: Sequence[int]
    rows: Sequence[int]
    autocast: torch.dtype | None = None
    freeze_norms: bool = False
    evaluating: bool = False
    statistics: dict[str, dict[int, torch.Tensor]] = field(default_factory=dict)

    def alone(self, k: int) -> Pass:
        """Return the pass of one of the grains; it notes its statistics here, too."""
        return replace(self, grains=self.grains[k:k + 1], rows=self.rows[k:k + 1])


@dataclass(frozen=True)
class _Operator:
    """What the operators of a pass by grain need of a node."""

    target: Any
    meta: dict[str, Any]


class ByGrain:
    """
    The operators that look at several samples, or draw: batch norm and dropout go by grain.

    What draws in another way needs a pass of one grain.  Draws are the CPU's wherever a stage
    lies: so they depend on round and grain only.
    """

    def __init__(self, one: Pass, place: torch.device = CPU) -> None:
        self._pass, self._place = one, place

    def runs(self, node: fx.Node) -> Callable[..., Any] | None:
        """Return what runs a node by grain, from it and its arguments; None if it runs at once."""
        by_grain: dict[Any, Callable[..., Any]] = {
            BATCH_NORM: self._norm, INSTANCE_NORM: self._norm, DROPOUT: self._dropout,
            FEATURE_DROPOUT: self._features, BERNOULLI: self._bernoulli,
            ATTENTION: self._attention}
        return None if node.op != 'call_function' else by_grain.get(
            node.target, self._drawn if DRAW_PLACE in node.meta else None)

    def _norm(self, node: _Operator, x: torch.Tensor, weight: torch.Tensor | None,
              bias: torch.Tensor | None, mean: torch.Tensor | None, var: torch.Tensor | None,
              training: bool, momentum: float, eps: float, cudnn: bool) -> torch.Tensor:
        fixed = self._pass.freeze_norms or self._pass.evaluating
        if not training or fixed and mean is not None:
            assert callable(node.target)
            return node.target(  # type: ignore[no-any-return]
                x, weight, bias, mean, var, False, momentum, eps, cudnn)
        norm, parts = torch.batch_norm if node.target is BATCH_NORM else torch.instance_norm, []
        for grain, part in zip(self._pass.grains, torch.split(x, self._share(x))):
            found = [None, None] if mean is None else self._found(node, grain, mean)
            parts.append(norm(part, weight, bias, found[0], found[1], True, 1.0, eps, cudnn))
        return torch.cat(parts)

    def _found(self, node: _Operator, grain: int, mean: torch.Tensor) -> torch.Tensor:
        """Return where a norm's statistics of a grain go."""
        name, use, uses = node.meta[NORM_USE]
        of_grains = self._pass.statistics.setdefault(name, {})
        if grain not in of_grains:
            of_grains[grain] = torch.zeros(uses, 2, *mean.shape, dtype=mean.dtype,
                                           device=mean.device)
        return of_grains[grain][use]

    def _drawn(self, node: _Operator, *args: Any, **kwargs: Any) -> Any:
        assert callable(node.target)
        args, kwargs = fx.node.map_aggregate((args, kwargs), _in_order)
        with DRAWING, torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._generators(node)[0].initial_seed())
            made = node.target(*args, **kwargs)
        return fx.node.map_aggregate(made, self._back)

    def _back(self, value: Any) -> Any:
        return value.to(self._place) if isinstance(value, torch.Tensor) else value

    def _dropout(self, node: _Operator, x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        return self._scaled(node, x, x, p) if self._drops(p, train) else x

    def _features(self, node: _Operator, x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        channels = x.new_empty(*x.shape[:2], *[1] * (x.dim() - 2))
        return self._scaled(node, x, channels, p) if self._drops(p, train) else x

    def _drops(self, p: float, train: bool) -> bool:
        return train and p > 0 and not self._pass.evaluating

    def _scaled(self, node: _Operator, x: torch.Tensor, like: torch.Tensor, p: float,
                ) -> torch.Tensor:
        """Let a part p of x go, by draws of the shape of `like`; scale up what stays."""
        if p == 1:
            return x * 0
        return x * self._bernoulli(node, like, 1 - p).div_(1 - p)

    def _bernoulli(self, node: _Operator, x: torch.Tensor, p: float = 0.5) -> torch.Tensor:
        return torch.cat([
            torch.empty(part.shape, dtype=x.dtype).bernoulli_(p, generator=generator)
            for generator, part in zip(self._generators(node), torch.split(x, self._share(x)))]
            ).to(x.device)

    def _attention(self, node: _Operator, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                   mask: torch.Tensor | None = None, p: float = 0.0, *args: Any,
                   **kwargs: Any) -> torch.Tensor:
        p = 0.0 if self._pass.evaluating else p

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                   mask: torch.Tensor | None) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v, mask, p, *args, **kwargs)
        if p == 0:
            return attend(q, k, v, mask)
        mask = _in_order(mask)
        parts, masks = [], [mask] * len(self._pass.rows)
        if mask is not None and mask.dim() == q.dim() and len(mask) == len(q):
            masks = list(torch.split(mask, self._share(mask)))
        tensors = zip(*(torch.split(_in_order(t), self._share(t)) for t in (q, k, v)))
        for generator, (own_q, own_k, own_v), own in zip(self._generators(node), tensors, masks):
            with DRAWING, torch.random.fork_rng(devices=[]):
                torch.manual_seed(generator.initial_seed())
                parts.append(attend(own_q, own_k, own_v, own))
        return torch.cat(parts).to(q.device)

    def _generators(self, node: _Operator) -> list[torch.Generator]:
        one = self._pass
        return [torch.Generator().manual_seed(draw_seed(
            one.seed, 2, one.round, grain, node.meta[DRAW_PLACE])) for grain in one.grains]

    def _share(self, x: torch.Tensor) -> list[int]:
        """Return the rows of each grain in a tensor that may have several for a sample."""
        if len(self._pass.rows) == 1:
            return [len(x)]
        times = len(x) // sum(self._pass.rows)
        return [times * rows for rows in self._pass.rows]


class StageInterpreter(fx.Interpreter):
    """Runs a stage on some grains, and may look at each node."""

    def __init__(self, stage: fx.GraphModule, one: Pass, place: torch.device = CPU) -> None:
        super().__init__(stage)
        self._by_grain = ByGrain(one, place)

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        special = self._by_grain.runs(n)
        if special is None:
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return special(n, *args, **kwargs)


class StageCode:
    """
    A stage as the code that PyTorch generates of its graph, as quick as a module.

    It shares the stage's tensors, and keeps nothing of a pass: several threads may run it.  An
    interpreter takes some microseconds for each node, which is most of a small network's pass.
    """

    def __init__(self, stage: fx.GraphModule) -> None:
        graph, any_pass = copy.deepcopy(stage.graph), ByGrain(Pass(0, 0, (), ()))
        with graph.inserting_before(next(iter(graph.nodes))):
            this_pass = graph.placeholder('this_pass')
        for node in graph.nodes:
            if found := any_pass.runs(node):
                node.target = _special(found.__name__, _Operator(node.target, node.meta))
                node.args = (this_pass, *node.args)
        self._code = fx.GraphModule(stage, graph)

    def run(self, inputs: Sequence[torch.Tensor], one: Pass, place: torch.device) -> Any:
        """Return what a pass makes of inputs."""
        return self._code.forward(ByGrain(one, place), *inputs)


def _special(name: str, node: _Operator) -> Callable[..., Any]:
    def by_grain(this_pass: ByGrain, *args: Any, **kwargs: Any) -> Any:
        return getattr(this_pass, name)(node, *args, **kwargs)
    return by_grain


#: The code of each stage that has run.
_CODES: WeakKeyDictionary[fx.GraphModule, StageCode] = WeakKeyDictionary()


def _in_order(value: Any) -> Any:
    """Return a tensor in the host's memory as its rows are: draws go by memory."""
    if isinstance(value, torch.device):
        return CPU
    return value.cpu().contiguous() if isinstance(value, torch.Tensor) else value


class _Recorder(StageInterpreter):
    """Notes the types of values."""

    def __init__(self, stage: fx.GraphModule, one: Pass, place: torch.device = CPU) -> None:
        super().__init__(stage, one, place)
        self.dtypes: dict[str, torch.dtype] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and note its type."""
        found = super().run_node(n)
        if isinstance(found, torch.Tensor):
            self.dtypes[n.name] = found.dtype
        return found


def run_pass(stage: fx.GraphModule, inputs: Sequence[torch.Tensor], one: Pass,
             recorder: type[StageInterpreter] | None = None, apart: bool = False) -> Any:
    """Run a stage forward on some grains, each alone if need be; return the tuple it makes."""
    if apart and len(one.grains) > 1:
        parts = [run_pass(stage, pieces, one.alone(k), recorder) for k, pieces in
                 enumerate(split_rows(tuple(inputs), one.rows))]
        return tuple(torch.cat(pieces) for pieces in zip(*parts))
    place = inputs[0].device
    runner = recorder(stage, one, place) if recorder else None
    with autocast_of(one.autocast, place):
        made = runner.run(*inputs) if runner else _run_code(stage, inputs, one, place)
    made = made if isinstance(made, tuple) else (made,)
    return (made, runner.dtypes) if isinstance(runner, _Recorder) else made


def _run_code(stage: fx.GraphModule, inputs: Sequence[torch.Tensor], one: Pass,
              place: torch.device) -> Any:
    code = _CODES.get(stage)
    if code is None:
        code = _CODES[stage] = StageCode(stage)
    try:
        return code.run(inputs, one, place)
    except Exception:
        StageInterpreter(stage, one, place).run(*inputs)  # its error says which line it was
        raise


def dtypes_of(root: fx.GraphModule, inputs: Tensors,
              task: TrainingTask) -> dict[str, torch.dtype]:
    """Return the types of all values of a pass, by the names of their nodes."""
    one = Pass(task.seed, 0, (0,), (len(inputs[0]),), task.autocast, task.freeze_norms)
    with torch.no_grad():
        _, found = run_pass(root, inputs, one, _Recorder)
    return dict(found)
