# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Run a model on its example before it is captured.

The runs give the result that a capture must reproduce, and find the models
that no graph can stand for: those that fail on their example, keep state
from call to call, or draw random numbers.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from intradp_ros.graph.blame import blame_submodule
from intradp_ros.graph.compare import difference, explained_by_rounding
from intradp_ros.graph.example_call import ExampleCall
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.reference_evaluation import describe
from intradp_ros.graph.trees import flatten


@dataclass(frozen=True)
class Rehearsal:
    """What the model returned for the example: flattened results and their structure."""

    results: tuple[Any, ...]
    tree: str

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Tensors among the results, in order."""
        return [x for x in self.results if isinstance(x, torch.Tensor)]


def private_copy(model: nn.Module) -> nn.Module:
    """
    Return the model in evaluation mode, sharing parameters but nothing else with the original.

    Raises
    ------
    CaptureError
        If the model cannot be copied.

    """
    shared: dict[int, Any] = {id(p): p for p in model.parameters()}
    for module in model.modules():
        for item in vars(module).values():
            if isinstance(item, torch.Tensor) and not item.is_leaf:
                shared[id(item)] = item.detach().clone()
    try:
        return copy.deepcopy(model, shared).eval()
    except Exception as error:
        raise CaptureError(
            f'{type(model).__name__} cannot be copied ({error}); capture works on a copy so as '
            'to leave the model alone: make it work with copy.deepcopy') from error


def rehearse(model: nn.Module, call: ExampleCall) -> Rehearsal:
    """
    Run the model twice on the example.

    Raises
    ------
    CaptureError
        If the model fails, returns no tensor, keeps state, is not
        deterministic, or is not on the CPU.

    """
    _check_devices(model, call)
    model = private_copy(model)
    rehearsal = _run(model, call, call.tensors)
    _check_results(rehearsal)
    before = _state(model)
    with _RandomCalls() as random:
        again = _run(model, call, call.tensors)
    after = _state(model)
    changed = _changed(before, after)
    for name in changed:
        if after[name].registered:
            _refuse_state(name, model)
    _check_repeatable(rehearsal, again, random.names)
    if changed:  # a cache, or a memory that another input would leave in another state
        _run(model, call, [torch.zeros_like(x) for x in call.tensors])
        _check_repeatable(rehearsal, _run(model, call, call.tensors), random.names)
    return rehearsal


def _check_devices(model: nn.Module, call: ExampleCall) -> None:
    inputs = ((f'input {name!r}', x) for name, x in zip(call.tensor_names, call.tensors))
    held = ((f'parameter {name!r}', x) for name, x in model.named_parameters())
    for what, tensor in (*inputs, *held):
        if tensor.device.type != 'cpu':
            raise CaptureError(
                f'{what} is on device {tensor.device}; move model and example to the CPU')


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


class _RandomCalls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the names of the operators called that may draw random numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class _Held:
    """
    A tensor that a module holds, and what tells that it was written.

    It is kept alive, so that another one is never mistaken for it.  Batch
    normalisation writes its buffers without counting up their versions, so
    that buffers are compared by `content`.
    """

    tensor: torch.Tensor
    registered: bool
    version: int | None
    content: torch.Tensor | None

    def written(self, before: _Held | None) -> bool:
        """Tell whether the tensor is another one than before, or was written since."""
        if before is None or self.tensor is not before.tensor:
            return True
        if self.content is not None and before.content is not None:
            return bool(difference(before.content, self.content))
        return self.version != before.version


def _state(model: nn.Module) -> dict[str, _Held]:
    """Return every tensor that a module holds, as parameter, buffer or plain attribute."""
    found = {}
    for path, module in model.named_modules():
        registered = {**module._parameters, **module._buffers}
        for name, item in {**vars(module), **registered}.items():
            if isinstance(item, torch.Tensor):
                version = None if item.is_inference() else item._version
                content = item.clone() if name in module._buffers else None
                key = f'{path}.{name}' if path else name
                found[key] = _Held(item, name in registered, version, content)
    return found


def _changed(before: Mapping[str, _Held], after: Mapping[str, _Held]) -> list[str]:
    return [name for name, held in after.items() if held.written(before.get(name))]


def _refuse_state(name: str, model: nn.Module) -> None:
    training = dict.fromkeys(type(m).__name__ for m in model.modules() if m.training)
    hint = f' (still in training mode: {", ".join(training)})' if training else ''
    raise CaptureError(
        f'the model writes its parameter or buffer {name!r} at every call{hint}; a graph keeps no '
        'state from call to call: make the state an input and an output of the model')


def _check_repeatable(first: Rehearsal, second: Rehearsal, random: Sequence[str]) -> None:
    if first.tree == second.tree and explained_by_rounding(first.results, second.results):
        return
    cause = (f'it draws random numbers ({", ".join(dict.fromkeys(random))})' if random else
             'it keeps state from call to call')
    raise CaptureError(
        f'the model returns different results for the same input: {cause}; such a model cannot '
        'be shared exactly: make the noise or the state an input of the model')
