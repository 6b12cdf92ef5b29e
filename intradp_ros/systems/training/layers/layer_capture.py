# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A task's module as a graph of layers: exported, rewritten, checked, cut."""
from __future__ import annotations

from collections.abc import Mapping
import copy
from dataclasses import replace

import torch
from torch import fx, nn

from intradp_ros.systems.training.base.structure import Structure, taken_apart, Tensors
from intradp_ros.systems.training.base.task import examples, TaskError, TrainingTask
from intradp_ros.systems.training.layers.export_checks import (
    check_changes,
    check_equal,
    FIRST_ROWS,
    freeze_unreached,
    loss_mixes,
    mixes,
    pass_changes,
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
from intradp_ros.systems.training.layers.stage_interpreter import dtypes_of

MOST_ROWS = 1 << 20


def capture(task: TrainingTask) -> LayerGraph:
    """
    Export a task's module in training mode, and find where it may be cut.

    Raises
    ------
    TaskError
        If it cannot be exported, changes buffers other than statistics of batch norm, or the
        export differs from the module in any bit.

    """
    taken = examples(task.data, TRIED_ROWS)
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
    tried = tuple(x[:FIRST_ROWS] for x in inputs)
    changed, returned = pass_changes(kept, given.filled(tried), task)
    root = _exported(module, given, tried)
    inline(root)
    name_as(root, module)
    norms, changes, draws = functional(root)
    folded = {name for mean, norm in norms.items() for name in (mean, norm.variance)}
    if others := sorted({*changed} - folded - {*changes}):
        raise TaskError(f'the module changes {", ".join(others[:3])} in the forward pass: buffers '
                        'may change by statistics of norms, or whatever the samples are, as in '
                        'spectral norm (max_norm of an embedding cannot be used)')
    check_equal(root, kept, given, tried, task)
    ends = list(dict.fromkeys(returned_nodes(root)))
    interface = Interface(
        given, wanted, returned, tuple(map(ends.index, returned_nodes(root))),
        tuple(Value(f'target {k}', tuple(x.shape[1:]), x.dtype, False)
              for k, x in enumerate(targets)))
    dtypes = dtypes_of(root, tried, task)
    freeze_unreached(root, interface, tried, tuple(x[:FIRST_ROWS] for x in targets), task)
    graph = in_layers(root, norms, changes, dtypes, interface)
    check_changes(graph, changed)
    # In a mixed precision a pass rounds what it adds up for a weight to 16 bits: by grain, so that
    # it does not matter how many grains a device has.
    return replace(graph, apart=task.autocast is not None or draws or bool(changes)
                   or mixes(root, inputs, task),
                   loss_apart=loss_mixes(graph, inputs, targets, task))


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
