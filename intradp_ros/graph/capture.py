# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Capture a torch module as an operator graph.

Three methods are tried in turn: ``export`` (`torch.export`), ``trace`` (the
calls of one run on tensors without data, then exported) and ``module`` (the
whole model as one global operator).  All leave the model as it was.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
import logging
from typing import Any
import warnings

import torch
from torch import nn
from torch.export import export, ExportedProgram
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from intradp_ros.graph.compare import explained_by_rounding
from intradp_ros.graph.constant_numbers import settle_numbers
from intradp_ros.graph.error_location import blame_submodule, what_no_graph_says
from intradp_ros.graph.example_call import example_call, ExampleCall, FlatModel
from intradp_ros.graph.fx_import import import_program, Imported, PREFIX
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.kept_registrations import registered_once
from intradp_ros.graph.module_parts import check_hashable
from intradp_ros.graph.no_operations import reshape_views
from intradp_ros.graph.normalise import normalise
from intradp_ros.graph.opaque import import_opaque
from intradp_ros.graph.operator_graph import OperatorGraph, ValueRef
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.to_float64 import double_inputs, in_double
from intradp_ros.graph.trial_run import private_copy, Rehearsal, rehearse, whole_copy

METHODS = ('export', 'trace', 'module')


def capture(
        model: nn.Module, example: torch.Tensor | tuple[Any, ...], *,
        kwargs: Mapping[str, Any] | None = None, name: str | None = None,
        methods: Sequence[str] = METHODS, effects: bool = False) -> OperatorGraph:
    """
    Capture a model, as it behaves in evaluation, for inputs shaped as `example`.

    :param model: any module whose result depends on nothing but its arguments.  It is not changed;
        the graph shares the memory of its parameters.
    :param example: the model's positional arguments, or its single one.  Tensors become the
        graph's inputs, with these shapes and dtypes; all else (numbers, strings, None) becomes a
        constant of the graph.
    :param kwargs: keyword arguments of the call.
    :param name: name of the graph; the class of the model by default.
    :param methods: ways to capture, in the order in which they are tried.
    :param effects: whether callers see what the model does in addition to returning results: one
        that writes to its inputs or to files, or leaves tensors in itself, is refused.
    :raises CaptureError: if the model cannot be captured.  The message names the input, the
        submodule or the operator at fault.
    :raises ValueError: if there is no such method.
    """
    if unknown := set(methods).difference(METHODS):
        raise ValueError(f'no capture method {unknown.pop()!r}; there are {", ".join(METHODS)}')
    if any(global_hooks()):
        raise CaptureError(
            'hooks on all modules are registered (torch.nn.modules.module.register_module_...), '
            'which no graph can call: remove them')
    check_hashable(model)
    quantised = _quantised_part(model)
    if quantised and 'module' not in methods:
        raise CaptureError(quantised)
    args = example if isinstance(example, tuple) else (example,)
    reasons: dict[str, CaptureError] = {}
    # What torch.compile has wrapped is captured as it was written, and never compiled for it.
    with torch.inference_mode(False), torch.no_grad(), torch.compiler.set_stance('force_eager'):
        call = example_call(model, args, kwargs or {})
        rehearsal = rehearse(model, call, effects)
        if effects:
            _refuse_effects(rehearsal)
        for method in methods:
            try:
                with _quiet_torch():
                    graph = _capture_by(
                        method, model, call, rehearsal, name or type(model).__name__)
                break
            except CaptureError as error:
                reasons[method] = error
        else:
            raise CaptureError(quantised or 'the model cannot be captured: '
                               + _why(model, call, reasons))
    if graph.method == 'module' and reasons:
        warnings.warn(
            f'{graph.name} is captured as one operator, which runs as a whole on one side: '
            f'{quantised or _why(model, call, reasons)}', stacklevel=2)
    return graph if graph.opaque else normalise(graph)


def _quantised_part(model: nn.Module) -> str:
    """Return why quantised layers cannot be captured, '' if there are none."""
    for name, module in model.named_modules():
        script = isinstance(module, torch.jit.ScriptModule)
        if '.quantized' in type(module).__module__ or script and not name \
                and 'quantized::' in str(getattr(module, 'inlined_graph', '')):
            return (f'{name or "the model"} is quantised ({type(module).__name__}): its kernels '
                    'work on packed weights, which no graph of operators holds; give the network '
                    'as it was before quantisation (--precision of `intradp model add` '
                    'halves what crosses)')
    return ''


def _refuse_effects(rehearsal: Rehearsal) -> None:
    if rehearsal.writes:
        raise CaptureError(
            f'the model writes to its input {rehearsal.writes!r}, and a graph does not: let '
            'it write to a copy')
    if rehearsal.leaves:
        raise CaptureError(
            f'the model leaves a tensor at {rehearsal.leaves} at each call, which somebody '
            'may read, and a graph does not: return it as a result')


def _capture_by(
        method: str, model: nn.Module, call: ExampleCall, rehearsal: Rehearsal,
        name: str) -> OperatorGraph:
    flat = FlatModel(private_copy(model), call)
    with blame_submodule(flat.model, 'capture stops'):
        imported = _IMPORTERS[method](flat, call)
    if len(imported.results) != len(rehearsal.tensors):
        raise CaptureError(
            f'the graph has {len(imported.results)} results, the model {len(rehearsal.tensors)}')
    graph = OperatorGraph(
        name=name, values=tuple(imported.values), operators=tuple(imported.operators),
        inputs=tuple(imported.inputs), outputs=_fill(rehearsal.results, imported.results),
        output_tree=rehearsal.tree, parameters=imported.parameters,
        arguments=_fill(call.leaves, [ValueRef(v) for v in imported.inputs]),
        input_tree=call.tree, method=method, opaque=imported.opaque)
    if not graph.opaque:
        graph = reshape_views(graph)  # what the graph runs may lie otherwise in memory
    # A graph says itself in which precision it computes, and draws nothing.
    with torch.autocast('cpu', enabled=False), torch.random.fork_rng(devices=[]), \
            blame_submodule(flat.model, 'the graph fails on the example'):
        before = torch.get_rng_state()
        same = explained_by_rounding(rehearsal.results, run_graph(graph, call.tensors))
        drawn = not torch.equal(before, torch.get_rng_state())
    if drawn or _own_generators(graph):
        raise CaptureError('the graph draws random numbers')
    if not same and not _same_in_double(model, call, graph):
        raise CaptureError('the graph computes something else than the model')
    return graph


def _own_generators(graph: OperatorGraph) -> bool:
    return any(isinstance(x, torch.Generator)
               for op in graph.operators for x in (*op.args, *op.kwargs.values()))


def global_hooks() -> tuple[Any, ...]:
    """Return the hooks that are registered for all modules, by kind."""
    module = torch.nn.modules.module
    return (module._global_forward_hooks, module._global_forward_pre_hooks,
            module._global_backward_hooks, module._global_backward_pre_hooks)


def _same_in_double(model: nn.Module, call: ExampleCall, graph: OperatorGraph) -> bool:
    """
    Return whether graph and model are the same if both run in double precision.

    Where a model selects (the best of its proposals, say), rounding turns
    over what is nearly equal, so that results change places.  Less than in
    double they may still differ, where the model makes its own constants in
    a named precision; so they are compared in single.
    """
    if graph.opaque:
        return False
    inputs = double_inputs(call.tensors)
    args, kwargs = call.rebuild(inputs)
    try:
        results = pytree.tree_leaves(whole_copy(model).double()(*args, **kwargs))
        return explained_by_rounding(
            _single(results), _single(run_graph(in_double(graph), inputs)))
    except Exception:  # a model that names its precision does not run in another
        return False


def _single(results: Sequence[Any]) -> list[Any]:
    return [x.float() if isinstance(x, torch.Tensor) and x.dtype == torch.float64 else x
            for x in results]


def _import_exported(flat: FlatModel, call: ExampleCall) -> Imported:
    return import_program(_export(flat, *call.tensors), call.tensor_names)


def _import_traced(flat: FlatModel, call: ExampleCall) -> Imported:
    """Trace without data, so that nothing which depends on data is taken for a constant."""
    state: dict[str, torch.Tensor] = {
        **dict(flat.named_parameters()), **dict(flat.named_buffers())}

    def run(tensors: list[torch.Tensor], *inputs: torch.Tensor) -> Any:
        return functional_call(flat, dict(zip(state, tensors)), inputs)

    arguments = (list(state.values()), *call.tensors)
    trace = make_fx(run, tracing_mode='fake', pre_dispatch=True, _allow_non_fake_inputs=True)
    parameters = [(name.removeprefix(PREFIX), tensor) for name, tensor in state.items()]
    return import_program(
        _export(trace(*arguments), *arguments), [*parameters, *call.tensor_names])


def _export(module: nn.Module, *arguments: Any) -> ExportedProgram:
    # An empty table of decompositions makes the program functional, but leaves
    # convolutions, attention, norms and pools whole.
    program = export(module, arguments, strict=False)
    with registered_once():
        functional: ExportedProgram = program.run_decompositions({})
    settled = settle_numbers(functional)
    return functional if settled is None else _export(settled, *arguments)


_IMPORTERS: dict[str, Callable[[FlatModel, ExampleCall], Imported]] = {
    'export': _import_exported, 'trace': _import_traced, 'module': import_opaque}


def _fill(template: Sequence[Any], tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Put references in the places of tensors among flattened arguments or results."""
    given = iter(tensors)
    return tuple(next(given) if isinstance(x, torch.Tensor) else x for x in template)


def _why(model: nn.Module, call: ExampleCall, reasons: Mapping[str, CaptureError]) -> str:
    """Return what of the model no graph says, as a user knows it; else what torch says."""
    copied = private_copy(model, parameters=True)

    def run() -> None:
        args, kwargs = call.rebuild([tensor.clone() for tensor in call.tensors])
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            copied(*args, **kwargs)
    return what_no_graph_says(run) or _describe(reasons)


def _describe(reasons: Mapping[str, CaptureError]) -> str:
    causes: dict[str, list[str]] = {}
    for method, reason in reasons.items():
        causes.setdefault(str(reason), []).append(method)
    return '; '.join(f'{cause} (by {", ".join(methods)})' for cause, methods in causes.items())


#: Modules of torch that log what they then raise; the second by torch 2.6.
_TALKATIVE = 'symbolic_shapes', 'recording'


@contextmanager
def _quiet_torch() -> Iterator[None]:
    """Keep torch from warning of itself, and from printing what the errors here say."""
    loggers = [logging.getLogger(f'torch.fx.experimental.{name}') for name in _TALKATIVE]
    before = {logger: logger.disabled for logger in loggers}
    for logger in loggers:
        logger.disabled = True
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter('ignore')
            yield
    finally:
        for logger, disabled in before.items():
            logger.disabled = disabled
