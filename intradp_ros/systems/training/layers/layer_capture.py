# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A task's module as a graph of layers: exported, rewritten, checked, cut."""
from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
import io
import logging
import traceback

import torch
from torch import fx, nn
from torch._subclasses import FakeTensor
from torch.distributions import Distribution

from intradp_ros.graph.error_location import what_no_graph_says
from intradp_ros.graph.module_parts import attributes_put_back, copied
from intradp_ros.systems.training.base.structure import Structure, taken_apart, Tensors
from intradp_ros.systems.training.base.task import (
    call,
    examples,
    line_of,
    TaskError,
    TrainingTask,
)
from intradp_ros.systems.training.base.user_code import drawing
from intradp_ros.systems.training.layers.export_checks import (
    check_changes,
    check_copy,
    check_equal,
    check_evaluates,
    generators,
    Hooks,
    own_function,
    pass_changes,
    passed,
    TRIED_ROWS,
)
from intradp_ros.systems.training.layers.export_rewrite import functional, inline, name_as
from intradp_ros.systems.training.layers.layer_cuts import in_layers
from intradp_ros.systems.training.layers.layer_graph import (
    Interface,
    LayerGraph,
    MOST_TENSORS,
    returned_nodes,
    Value,
)
from intradp_ros.systems.training.layers.row_independence import not_proved
from intradp_ros.systems.training.layers.stage_interpreter import dtypes_of, Pass, run_pass

MOST_ROWS = 1 << 20
#: What to change in a module, by what an export that fails says, or where it fails.
_CHANGES = {
    'numpy()': 'NumPy is not trained through: compute with torch',
    'nn/modules/rnn.py': (whole := 'packed sequences cannot be cut: run padded ones, and take of '
                                   'each what its last step returns, by gather()'),
    'nn/utils/rnn.py': whole,
    '_functorch/vmap.py': 'torch.vmap and torch.func cannot be cut: write it with dimensions of '
                          'your own, by torch.einsum or torch.bmm say',
    ':_detect_is_causal_mask': 'give nn.Transformer and its layers is_causal (tgt_is_causal), '
                               'which else look at the values of the mask',
    'data-dependent': (branch := 'what is computed must not depend on values: take torch.where '
                                 'for a branch'),
    'bool value of Tensor': branch,
    'UnsupportedOperator': 'PyTorch exports no such operator: write it with others',
    'fake tensor in the exported': 'write to no weight in the forward pass, nor through .data: '
                                   'let a parametrization make what is used of it',
    'Constraints violated': 'what is computed must not depend on how many samples there are: take '
                            'n = x.shape[0], not len(x), and slices, z[:n], not chunk() or '
                            'split() of samples, nor torch.func; batch_first=True where samples '
                            "come first, and cdist(compute_mode='use_mm_for_euclid_dist')",
    '': 'what is computed must not depend on how many samples there are, or on their values; take '
        'x.shape[0], not len(x)'}


def capture(task: TrainingTask, checked: bool = False) -> LayerGraph:
    """
    Export a task's module in training mode, and find where it may be cut.

    Where the same task was `checked` before, by another process, the export is not compared with
    the module again: that takes the memory of several networks.

    :raises TaskError: if it cannot be exported, changes buffers other than statistics of batch
        norm, or the export differs from the module in any bit.
    """
    taken = examples(task.data, TRIED_ROWS)
    (inputs, given), (targets, wanted) = map(taken_apart, taken)
    if given.constants or wanted.constants or len(inputs) + len(targets) > MOST_TENSORS:
        raise TaskError(f'a sample is 1 to {MOST_TENSORS} tensors, and nothing else: inputs are '
                        f'{given.spec}, targets {wanted.spec}')
    module = task.module if task.module.training else task.module.train()
    kept = None if checked else copied(module)
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.momentum is None and \
                part.track_running_stats and part.training and not task.freeze_norms:
            raise TaskError(f'{name} has momentum=None: it averages over all batches, which is '
                            'not supported; give it a momentum, or freeze_norms to the task')
    changed = dict[str, torch.Tensor]()
    if kept is None:
        returned = passed(module, given.filled(inputs), task)[1]
    else:
        check_copy(kept, module, given.filled(inputs), task)
        changed, returned = pass_changes(kept, given.filled(inputs), task)
    root = _exported(module, given, inputs)
    if any('_add_batch_dim' in str(node.target) for node in root.graph.nodes):
        raise TaskError('the module uses torch.vmap (or torch.func), of which no part can be run '
                        'alone: write it with dimensions of your own, by torch.einsum or '
                        'torch.bmm say')
    inline(root)
    name_as(root, module)
    norms, changes, draws = functional(root)
    folded = {name for mean, norm in norms.items() for name in (mean, norm.variance)}
    if others := sorted({*changed} - folded - {*changes}):
        raise TaskError(f'the module changes {", ".join(others[:3])} in the forward pass: buffers '
                        'may change by statistics of norms, or whatever the samples are, as in '
                        'spectral norm (max_norm of an embedding cannot be used)')
    if kept is not None:
        check_equal(root, kept, given, inputs, task)
        if task.validate_every:
            check_evaluates(root, kept, given, inputs, task)
    ends = list(dict.fromkeys(returned_nodes(root)))
    interface = Interface(
        given, wanted, returned, tuple(map(ends.index, returned_nodes(root))),
        tuple(Value(f'target {k}', tuple(x.shape[1:]), x.dtype, False)
              for k, x in enumerate(targets)))
    dtypes = dtypes_of(root, inputs, task)
    graph = in_layers(root, norms, changes, dtypes, interface)
    check_changes(graph, changed)
    # In a mixed precision a pass rounds what it adds up for a weight to 16 bits: by grain, so that
    # it does not matter how many grains a device has.
    short = task.autocast or next((one for one in dtypes.values() if one in (
        torch.bfloat16, torch.float16)), None)
    alone = f'{short} rounds what a pass adds up' if short is not None else \
        'a draw of its own kind' if draws else not_proved(root.graph)
    return replace(graph, by_grain=alone, loss_by_grain=_loss_not_proved(graph, inputs, targets,
                                                                         task))


def _loss_not_proved(graph: LayerGraph, inputs: Tensors, targets: Tensors,
                     task: TrainingTask) -> str:
    """Return why it is not proved that a loss looks at each sample alone; '' if it is."""
    one = Pass(task.seed, 0, (0,), (len(inputs[0]),), task.autocast, task.freeze_norms)
    with torch.no_grad():
        made = run_pass(graph.root, inputs, one)
    outputs = tuple(made[graph.interface.order.index(k)] for k in range(len(graph.cuts[-1])))

    class Loss(nn.Module):
        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            split = len(outputs)
            return graph.losses(task, tuple(map(torch.clone, tensors[:split])), tensors[split:])
    given = tuple(x.detach().requires_grad_(value.gradient)
                  for x, value in zip(outputs, graph.cuts[-1])) + targets
    level, drawn, aside = logging.root.manager.disable, generators(), io.StringIO()
    logging.disable(logging.CRITICAL)  # what cannot be exported does not matter here
    try:
        with contextlib.redirect_stdout(aside), contextlib.redirect_stderr(aside):
            found = not_proved(exported(Loss(), given).graph, plain=True) or _own_way_back(
                task, graph, given[:len(outputs)], given[len(outputs):])
    except Exception:
        found = 'a branch on values, or another one that cannot be exported'
    finally:
        logging.disable(level)
    return found or 'a draw of Python or NumPy' * (drawn != generators())


def _own_way_back(task: TrainingTask, graph: LayerGraph, outputs: Tensors,
                  targets: Tensors) -> str:
    """Return what a loss does on its way back that none of its operators does."""
    with Hooks() as hooks, drawing(task.seed):
        losses, _ = graph.losses(task, tuple(map(torch.clone, outputs)), targets)
    return 'a hook on a tensor' if hooks.seen else own_function([losses])


def exported(module: nn.Module, tensors: Tensors) -> fx.GraphModule:
    """Export a module of tensors with a row a sample, any number of them."""
    batch, checked = torch.export.Dim('batch', min=1, max=MOST_ROWS), Distribution._validate_args
    Distribution.set_default_validate_args(False)  # branches on values, that change none
    try:
        root = torch.export.export(
            module, tensors, dynamic_shapes=(tuple({0: batch} for _ in tensors),)).module()
    finally:
        Distribution.set_default_validate_args(checked)
    assert isinstance(root, fx.GraphModule)
    return root


def _change(error: Exception) -> str:
    """Return what to change in a module for which an export fails so."""
    where = ' '.join([type(error).__name__, str(error), *(
        f'{one.filename}:{one.name}' for one in traceback.extract_tb(error.__traceback__))])
    return next(change for mark, change in _CHANGES.items() if mark in where)


def _exported(module: nn.Module, given: Structure, tried: Tensors) -> fx.GraphModule:
    """Export a module as what takes tensors in a row, and returns them so."""
    itself = copy.copy(module)  # with the hooks that it is called with
    hooks = {name: value for name, value in vars(module).items()
             if name.startswith('_forward_') and isinstance(value, dict)}

    def in_a_row(*tensors: torch.Tensor) -> Tensors:
        made, structure = taken_apart(call(itself, given.filled(tensors)))
        if structure.odd:
            raise TaskError(f'it returns a {structure.odd[0]}: it may return tensors with a row a '
                            'sample, in tuples, lists, dicts and dataclasses, and None')
        return made

    def uses() -> str:
        return what_no_graph_says(lambda: call(copy.deepcopy(itself), given.filled(tried)))
    level, aside = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.CRITICAL)  # what is wrong is said once
    try:
        with attributes_put_back(module), contextlib.redirect_stderr(aside):
            vars(module).update(
                forward=in_a_row, **{name: type(value)() for name, value in hooks.items()})
            root = exported(module, tried)
    except TaskError:
        raise
    except Exception as error:
        says = uses()
        first = f'{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ""}'
        raise TaskError(f'{type(module).__name__} cannot be exported in training mode: {first}'
                        f'{line_of(error)} ({says or _change(error)})') from error
    finally:
        logging.disable(level)
    if any(isinstance(x, FakeTensor) for part in root.modules()
           for x in (*vars(part).values(), *part._buffers.values())):
        raise TaskError(f'{type(module).__name__} cannot be exported in training mode: '
                        + (uses() or 'it makes a tensor that an export does not see'))
    root.graph.set_codegen(fx.graph.CodeGen())  # tensors in a row, as stages take them
    return root
