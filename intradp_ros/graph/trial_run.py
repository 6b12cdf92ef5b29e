# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Run a model on its example before it is captured.

The runs give the result that a capture must reproduce, and find the models
that no graph can stand for: those that fail on their example, keep state
from call to call, or draw random numbers.

State is found where it is held: whatever the model leads to is compared
between runs, with other inputs in between.  A tensor may be left behind, as
long as no later run reads it; a cache may be filled once.  What a run asks of
the world around it (`surroundings`) counts as state, too, as does the mode of
gradients and the clock, where the model's code asks for them.  What hides
where `held_state` cannot look (an object of compiled code that cannot be
copied) is not found, unless results differ.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
import copy
from dataclasses import dataclass
import random
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from intradp_ros.graph.compare import explained_by_rounding
from intradp_ros.graph.error_location import blame_submodule
from intradp_ros.graph.example_call import ExampleCall
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.held_state import held_state, HeldState, HOOKS, mutable_identities, put_back
from intradp_ros.graph.module_parts import attributes_put_back, copied
from intradp_ros.graph.reference_evaluation import describe
from intradp_ros.graph.surroundings import ASKING, other_time, Surroundings
from intradp_ros.graph.tensor_bits import memory_address
from intradp_ros.graph.trees import flatten


@dataclass(frozen=True)
class Rehearsal:
    """What the model returned for the example: flattened results and their structure."""

    results: tuple[Any, ...]
    tree: str
    writes: str = ''  # the input that the model writes to
    leaves: str = ''  # where it leaves a tensor at each call, which it does not read itself

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Tensors among the results, in order."""
        return [x for x in self.results if isinstance(x, torch.Tensor)]


_COPIED_BYTES = 256 * 2**20


def private_copy(model: nn.Module, parameters: bool = False) -> nn.Module:
    """
    Return the model in evaluation mode, sharing parameters but nothing else with the original.

    If asked to, small `parameters` are copied as well.

    :raises CaptureError: if the model cannot be copied.
    """
    small = sum(p.numel() * p.element_size() for p in model.parameters()) <= _COPIED_BYTES
    return whole_copy(model, () if parameters and small else model.parameters())


def whole_copy(model: nn.Module, shared: Iterable[torch.Tensor] = ()) -> nn.Module:
    """
    Return a copy of the model in evaluation mode, with what parameters hold besides numbers.

    :param shared: tensors that are not copied.
    :raises CaptureError: if the model cannot be copied.
    """
    known: dict[int, Any] = {id(tensor): tensor for tensor in shared}
    for module in model.modules():
        for item in vars(module).values():
            if isinstance(item, torch.Tensor) and not item.is_leaf:
                known[id(item)] = item.detach().clone()
    try:
        return copied(model, known).eval()
    except Exception as error:
        raise CaptureError(
            f'{type(model).__name__} cannot be copied ({error}); capture works on a copy so as '
            'to leave the model alone: make it work with copy.deepcopy') from error


def own_forward(model: nn.Module) -> nn.Module:
    """
    Return a shallow copy of a model without the hooks on itself.

    Its parts are the same modules; calling it does what ``forward`` does.
    """
    if isinstance(model, GraphModule):  # a copy of it would take its graph over
        kind: type = model.__class__
        bare: nn.Module = object.__new__(kind)
        vars(bare).update(vars(model))
    else:
        bare = copy.copy(model)
        if bare is model:
            bare = object.__new__(model.__class__)
        vars(bare).update(vars(model))  # what its __getstate__ leaves out
    for name in HOOKS:
        vars(bare)[name] = OrderedDict()
    return bare


def rehearse(model: nn.Module, call: ExampleCall, effects: bool = False) -> Rehearsal:
    """
    Run the model on the example and on other inputs.

    Neither the model nor what its code leads to is changed by it, nor are
    the states of random numbers; with `effects`, no file either.

    :raises CaptureError: if the model fails, returns no tensor, keeps state, is not deterministic,
        or is not on the CPU.
    """
    _check_devices(model, call)
    own = held_state(model)
    if own.once:
        raise CaptureError(
            f'the model takes from an iterator, {own.once[0]}; a graph keeps no state from call '
            'to call: make what it yields an input of the model')
    with put_back(own), _unseen_draws():
        trial = _Trial(model, call, mutable_identities(own), effects)
        begun = trial.state
        with put_back(begun):
            rehearsal = trial.rehearse()
        if begun.changed_items(own) or begun.changed_tensors(own):
            with _evaluating(model):
                itself = _run(model, call, call.tensors)
            if itself.tree != rehearsal.tree or not explained_by_rounding(
                    itself.results, rehearsal.results):
                raise CaptureError(
                    f'a copy of {type(model).__name__} returns something else than the model, and '
                    'capture works on copies: see its __deepcopy__, __getstate__ or train, and '
                    'those of what it holds')
        return rehearsal


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Let a model behave as in evaluation, without telling it; put its attributes back."""
    with attributes_put_back(model):
        for part in model.modules():
            if vars(part).get('training') and not isinstance(part, torch.jit.ScriptModule):
                part.training = False
        yield


class _Trial:
    """A private copy of the model, and what it held after each run."""

    def __init__(self, model: nn.Module, call: ExampleCall, shared: frozenset[int],
                 effects: bool) -> None:
        self.original, self.call, self.shared, self.effects = model, call, shared, effects
        self.begun = False  # once it has, a model has read what it reads but once
        self.model = private_copy(model, parameters=True)
        self.state = held_state(self.model, shared)
        self.drawn: list[str] = []
        self.read = False
        self.changing: set[str] = set()  # tensors that differed after some run but the first
        self.writes = ''

    def rehearse(self) -> Rehearsal:
        """Run it several times; return the results of the first run."""
        fresh = self.state
        with _higher_operators() as higher:
            first = self.run(self.call.tensors)
        self.begun = True
        if higher:
            raise CaptureError(
                f'the model calls {", ".join(dict.fromkeys(higher))}, which takes functions as '
                'arguments: what it computes is decided at each call, and no graph of operators '
                'can say that')
        _check_results(first)
        begun = bool(self.state.changed_items(fresh) or self.state.changed_tensors(fresh))
        self.refuse_registered(self.state.changed_tensors(fresh), fresh)
        self.again(first)
        others = other_inputs(self.call.tensors)
        for kind in range(len(others) if begun or self.changing else 1):
            self.elsewhere(others[kind], first)
            self.again(first)
        self.refuse_memory()
        if begun:
            self.from_another_beginning(first, others)
        self.under_other_circumstances(first)
        return Rehearsal(first.results, first.tree, self.writes, min(self.changing, default=''))

    def run(self, tensors: Sequence[torch.Tensor]) -> Rehearsal:
        """Run the model once, and see whether it draws, or writes to its inputs."""
        kept = [(t._version, t.clone()) for t in tensors]
        before = _draws_of_all()
        result = self.plain_run(tensors)
        if before != _draws_of_all():
            self.drawn.append(_SOMEWHERE)
        for name, tensor, (version, content) in zip(self.call.tensor_names, tensors, kept):
            if tensor._version != version or not explained_by_rounding([content], [tensor]):
                self.writes = name
        self.follow()
        return result

    def plain_run(self, tensors: Sequence[torch.Tensor]) -> Rehearsal:
        """
        Run the model once, and see what it asks of the world around it.

        :raises CaptureError: if it does so at every run.
        """
        around = Surroundings(stops=self.effects or self.begun)
        with around.watched():
            try:
                result = _run(self.model, self.call, tensors)
            except CaptureError:
                if around.touched and around.stops:
                    raise CaptureError(around.touched) from None
                raise
        if around.touched and self.begun:
            raise CaptureError(around.touched)
        if around.drawn:
            self.drawn.append(_SYSTEM)
        return result

    def follow(self) -> None:
        """Note what the model holds now."""
        self.before, self.state = self.state, held_state(self.model, self.shared)

    def again(self, first: Rehearsal) -> None:
        """Run the example again, watching what is read of what earlier runs left."""
        left = [self.state.tensors[name].tensor for name in self.changing
                if name in self.state.tensors]
        tensors = self.call.tensors
        watch = _Calls(left)
        try:
            with watch:
                again = self.plain_run(tensors)
        except CaptureError:  # operators with functions for arguments take no watching
            again = self.plain_run(self.call.tensors)
            watch.read = bool(left)
        self.drawn += watch.drawn
        self.follow()
        _check_repeatable(first, again, self.drawn)
        self.read = self.read or watch.read or watch.hands_on(again.tensors)
        self.note_changes()

    def elsewhere(self, tensors: Sequence[torch.Tensor], first: Rehearsal) -> None:
        """Run on other inputs, which the model may refuse."""
        try:
            other = self.run(tensors)
        except CaptureError:
            self.follow()
            return
        self.note_changes()
        for k, (a, b) in enumerate(zip(first.results, other.results)):
            if not isinstance(a, torch.Tensor) and explained_by_rounding([a], [b]) is False:
                raise CaptureError(
                    f'result {k} of the model, {a!r}, is not a tensor and depends on the input '
                    f'(for another it is {b!r}): return it as a tensor')

    def note_changes(self) -> None:
        """
        Note which tensors differ from those before.

        :raises CaptureError: if a parameter or buffer does, or anything that is not a tensor.
        """
        changed = self.state.changed_tensors(self.before)
        self.refuse_registered(changed, self.before)
        self.changing.update(changed)
        items = self.state.changed_items(self.before)
        if items and not self.drawn:
            raise CaptureError(
                f'the model keeps state from call to call: {items[0]} changes; such a model '
                'cannot be shared exactly: make the state an input and an output of the model')
        if self.drawn:
            raise CaptureError(_draws(self.drawn))

    def refuse_registered(self, names: Sequence[str], before: HeldState) -> None:
        """Refuse a model that writes its parameters or buffers."""
        for name in names:
            if self.state.tensors[name].registered:
                _refuse_state(name, self.model)

    def refuse_memory(self) -> None:
        """Refuse a model that reads what an earlier call left."""
        if self.read:
            raise CaptureError(
                'the model keeps state from call to call: it reads what an earlier call left at '
                f'{min(self.changing)}; such a model cannot be shared exactly: make the state an '
                'input and an output of the model')

    def from_another_beginning(
            self, first: Rehearsal, others: Sequence[Sequence[torch.Tensor]]) -> None:
        """Refuse a model whose results depend on what its very first input was."""
        self.model = private_copy(self.original, parameters=True)
        for tensors in others[:1]:
            try:
                _run(self.model, self.call, tensors)
            except CaptureError:
                return
        _check_repeatable(first, _run(self.model, self.call, self.call.tensors), self.drawn)

    def under_other_circumstances(self, first: Rehearsal) -> None:
        """Refuse a model whose results depend on the clock, or on whether gradients are kept."""
        if not self.state.words.isdisjoint(ASKING):
            with other_time(self.state):
                later = _run(self.model, self.call, self.call.tensors)
            self._same_as(first, later, 'the time of day, or that of a clock')
        if not self.state.words.isdisjoint(_MODES):
            with torch.enable_grad():
                other = _run(self.model, self.call, self.call.tensors)
            self._same_as(first, other, 'whether gradients are kept (torch.no_grad)')
            with torch.inference_mode():
                other = _run(private_copy(self.original), self.call, self.call.tensors)
            self._same_as(first, other, 'whether it runs in torch.inference_mode')
        if not self.state.words.isdisjoint(_OF_TENSORS):
            written = [x.clone().copy_(x) for x in self.call.tensors]
            self._same_as(first, _run(self.model, self.call, written),
                          'how often its input was written to, or where in memory it lies')

    def _same_as(self, first: Rehearsal, other: Rehearsal, on: str) -> None:
        if first.tree != other.tree or not explained_by_rounding(first.results, other.results):
            raise CaptureError(f'the results of the model depend on {on}, which a graph does not '
                               'see: make it an input of the model')


def other_inputs(tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """
    Return inputs other than the example's that a model may be expected to take.

    They are its elements in another order, zeros, and nearly the example.
    """
    nearly = [x * (1 + 2**-7) if x.dtype.is_floating_point else x.clone() for x in tensors]
    return [[_reordered(x) for x in tensors], [torch.zeros_like(x) for x in tensors], nearly]


def _reordered(x: torch.Tensor) -> torch.Tensor:
    other = x.flatten().roll(1 + x.numel() // 3).reshape(x.shape)
    if x.dtype.is_floating_point and torch.equal(other, x):
        other = (other * 0.5 + torch.linspace(0.1, 0.4, x.numel()).reshape(x.shape)).to(x.dtype)
    return other


def _check_devices(model: nn.Module, call: ExampleCall) -> None:
    inputs = ((f'input {name!r}', x) for name, x in zip(call.tensor_names, call.tensors))
    held = ((f'{kind} {name!r}', x) for kind, named in (
        ('parameter', model.named_parameters()), ('buffer', model.named_buffers()))
        for name, x in named)
    for what, tensor in (*inputs, *held):
        if nn.parameter.is_lazy(tensor):
            raise CaptureError(f'{what} has no shape yet, for its module is lazy: run the model '
                               'once on an example before')
        if tensor.layout != torch.strided:
            raise CaptureError(f'{what} lies in memory as {tensor.layout}, which no graph holds: '
                               'make it dense, by .to_dense()')
        if tensor.device.type != 'cpu':
            raise CaptureError(
                f'{what} is on device {tensor.device}; move model and example to the CPU'
                + ', where weights are loaded: it has no values' * tensor.is_meta)


def _run(model: nn.Module, call: ExampleCall, tensors: Sequence[torch.Tensor]) -> Rehearsal:
    shapes = ', '.join(f'{n}: {describe(x)}' for n, x in zip(call.tensor_names, tensors))
    args, kwargs = call.rebuild(tensors)
    with blame_submodule(model, f'the model fails on the example ({shapes})'):
        nested = model(*args, **kwargs)
    leaves, tree = flatten(nested)
    return Rehearsal(tuple(leaves), tree)


def _check_results(rehearsal: Rehearsal) -> None:
    for leaf in rehearsal.results:
        if not isinstance(leaf, (torch.Tensor, int, float, bool, str, type(None))):
            raise CaptureError(
                f'the model returns a {type(leaf).__name__}, whose tensors cannot be found; '
                'return tensors in tuples, lists or dicts, or register the class with '
                'torch.utils._pytree.register_pytree_node')
    if not rehearsal.tensors:
        raise CaptureError('the model returns no tensor: there is nothing to compute')


@contextmanager
def _higher_operators() -> Iterator[list[str]]:
    """Collect the names of operators that take functions, such as `torch.cond`."""
    found: list[str] = []
    plain: Any = HigherOrderOperator.__call__

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        found.append(str(self.name()))
        return plain(self, *args, **kwargs)

    HigherOrderOperator.__call__ = call  # type: ignore[method-assign]
    try:
        yield found
    finally:
        HigherOrderOperator.__call__ = plain  # type: ignore[method-assign]


class _Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Finds operators that draw random numbers, or read tensors that an earlier run left."""

    supports_higher_order_operators = True

    def __init__(self, left: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn: list[str] = []
        self.read = False
        self._left = {memory_address(x) for x in left} - {0}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if self._left and self.hands_on(pytree.tree_leaves((args, given))):
            self.read = True
        if torch.Tag.nondeterministic_seeded not in getattr(func, 'tags', ()):
            return func(*args, **given)
        before = torch.get_rng_state()
        result = func(*args, **given)
        if given.get('generator') is not None or not torch.equal(before, torch.get_rng_state()):
            self.drawn.append(str(func))
        return result

    def hands_on(self, items: Sequence[Any]) -> bool:
        """Return whether a tensor among items lies where an earlier run left one."""
        return any(memory_address(x) in self._left for x in items if isinstance(x, torch.Tensor))


def _draws_of_all() -> tuple[Any, ...]:
    """Return the states of random numbers of torch, NumPy and Python."""
    kind, keys, *rest = np.random.get_state()
    return (torch.get_rng_state().numpy().tobytes(), random.getstate(),
            np.asarray(keys).tobytes(), *rest)


@contextmanager
def _unseen_draws() -> Iterator[None]:
    """Put the states of random numbers back afterwards."""
    of_numpy, of_python = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0x1D9)  # one that no model is likely to set itself
        try:
            yield
        finally:
            np.random.set_state(of_numpy)
            random.setstate(of_python)


def _refuse_state(name: str, model: nn.Module) -> None:
    training = dict.fromkeys(type(m).__name__ for m in model.modules()
                             if getattr(m, 'training', False))
    hint = f' (still in training mode: {", ".join(training)})' if training else ''
    raise CaptureError(
        f'the model writes its parameter or buffer {name!r} at every call{hint}; a graph keeps no '
        'state from call to call: make the state an input and an output of the model')


def _check_repeatable(first: Rehearsal, second: Rehearsal, drawn: Sequence[str]) -> None:
    if drawn:
        raise CaptureError(_draws(drawn))
    if first.tree == second.tree and explained_by_rounding(first.results, second.results):
        return
    raise CaptureError(
        'the model returns different results for the same input: it keeps state from call to '
        'call; such a model cannot be shared exactly: make the noise or the state an input of '
        'the model')


def _draws(drawn: Sequence[str]) -> str:
    named = dict.fromkeys(name for name in drawn if name != _SOMEWHERE) or (_SOMEWHERE,)
    return (f'the model draws random numbers ({", ".join(named)}); such a model cannot be shared '
            'exactly: make the noise an input of the model')


_SOMEWHERE = 'of torch, NumPy or Python, or seeds their draws'
_SYSTEM = 'from the entropy of the system'
_MODES = frozenset(('is_grad_enabled', 'is_inference_mode_enabled', 'is_inference'))
"""Names by which code asks whether gradients are kept."""
_OF_TENSORS = frozenset(('_version', 'data_ptr', 'untyped_storage', 'storage', '_cdata', 'id'))
"""Names by which code asks what two tensors of the same numbers do not share."""
