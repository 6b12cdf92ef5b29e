# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp inspect``: the operators of a model, and how far they can be split."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import torch

from intradp_ros.cli.output import add_json, amount, Output, output, percent, plain, size, table
from intradp_ros.cli.subject import add_model, load_subject, MODEL_HELP, Subject
from intradp_ros.graph.operator_graph import ValueRef
from intradp_ros.graph.trees import rebuild_outputs
from intradp_ros.perception.heads.named_outputs import named
from intradp_ros.split.axes import AxisCandidate
from intradp_ros.split.checks.flops import operator_flops
from intradp_ros.split.local_operator import Kind, LocalOperator, SplitGraph
from intradp_ros.split.regions.region import Region
from intradp_ros.split.split_graph import axis_candidates

DESCRIPTION = f"""\
Capture a model as a graph of operators and show how far it can be split by rows.

An operator is local if some rows of its output can be computed from some rows of its input:
element-wise (the same row), block-wise (a window of rows) or row-wise (the same row of a
matrix).  It is global if it needs its whole input; if that input is split, all rows must meet
there, which the list "rows meet" shows.  At a reduction (a mean, a norm, a softmax along the
rows) only records meet, one of each part, from which the total follows.  The larger the local
share of the FLOPs, the more of the model can be computed on two sides at once.

Without --axis the input is split along the dimension that divides the most work; of those within
3 % of it, the one where the fewest bytes change sides if each side keeps half of every value.

{MODEL_HELP}"""

EPILOG = """\
examples:
  intradp inspect intradp_lab.zoo.hed:hed --input 1x3x272x640 --dtype uint8
  intradp inspect pytorchcv.models.resnet:resnet50 --input 1x3x224x224 --operators
  intradp inspect mymodel:make --input 1x3x480x640 --axis 2 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_model(parser)
    parser.add_argument('--operators', action='store_true', help='list all operators')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    with output(args.json) as out:
        subject = load_subject(args, out)
        data = inspection(subject, args.operators)
        _show(data, out)
        out.result(data)
    return 0


def inspection(subject: Subject, every: bool) -> dict[str, Any]:
    """Return what the command reports as JSON; with `every`, a record of each operator, too."""
    split = subject.shared.split
    rows = [_operator(split, local) for local in split.operators]
    flops = sum(row['flops'] for row in rows)
    local = sum(row['flops'] for row in rows if row['kind'] != Kind.GLOBAL.value)
    data = {
        'model': subject.name, 'digest': subject.shared.digest, 'capture': split.graph.method,
        'inputs': [_value(split, v) for v in split.graph.inputs],
        'outputs': _outputs(split),
        'axis': split.axis, 'rows': max(split.rows[v] for v in split.graph.inputs),
        'axes': [_axis(candidate) for candidate in axis_candidates(split.captured)],
        'operators': len(rows), 'parameters': len(split.graph.parameters),
        'parameter_bytes': sum(t.nbytes for t in split.graph.parameters.values()),
        'value_bytes': sum(v.nbytes for v in split.graph.values),
        'flops': flops, 'local_share': local / flops if flops else 0.0,
        'kinds': {kind.value: _kind(rows, kind.value, flops) for kind in Kind},
        'rows_meet': [row for row in rows if row['meets']],
    }
    return {**data, 'operator_list': rows} if every else data


def _axis(candidate: AxisCandidate) -> dict[str, Any]:
    return {'axis': candidate.axis, 'rows': candidate.rows, 'divided_share': candidate.share,
            'exchanged_bytes': candidate.exchanged, 'barriers': candidate.barriers}


def _outputs(split: SplitGraph) -> list[dict[str, Any]]:
    """Return the outputs by the names that topics and results have for them."""
    graph = split.graph
    values = [graph.values[output.value] if isinstance(output, ValueRef) else None
              for output in graph.outputs]
    tensors = named(rebuild_outputs(graph, [
        output if value is None else torch.empty(value.shape, dtype=value.dtype, device='meta')
        for output, value in zip(graph.outputs, values)]))
    found = [output.value for output in graph.outputs if isinstance(output, ValueRef)]
    return [_value(split, value) | {'name': name} for name, value in zip(tensors, found)]


def _value(split: SplitGraph, value: int) -> dict[str, Any]:
    v = split.graph.values[value]
    return {'name': v.name, 'shape': v.shape, 'dtype': str(v.dtype).removeprefix('torch.'),
            'bytes': v.nbytes, 'dim': split.dims[value], 'rows': split.rows[value]}


def _operator(split: SplitGraph, local: LocalOperator) -> dict[str, Any]:
    op = local.operator
    outputs = [split.graph.values[v] for v in op.outputs if v is not None]
    split_inputs = [v for v in op.inputs if split.dims[v] is not None]
    return {
        'id': op.id, 'name': op.name, 'target': op.target, 'kind': local.kind.value,
        'rows': local.rows, 'reads': _reads(local), 'shape': outputs[0].shape if outputs else (),
        'bytes': sum(v.nbytes for v in outputs), 'flops': operator_flops(split.graph, op),
        'meets': local.kind is Kind.GLOBAL and bool(split_inputs),
        'barrier_bytes': sum(split.graph.values[v].nbytes for v in dict.fromkeys(split_inputs)),
        'records': any(v in split.folded for v in split_inputs)}


def _reads(local: LocalOperator) -> int:
    """Return how many rows the middle row of the output needs, of the input it reads most."""
    middle = Region(local.rows // 2, local.rows // 2 + 1)
    return max((rowmap(middle).rows for rowmap in local.maps), default=0)


def _kind(rows: list[dict[str, Any]], kind: str, flops: int) -> dict[str, Any]:
    own = [row for row in rows if row['kind'] == kind]
    total = sum(row['flops'] for row in own)
    return {'operators': len(own), 'flops': total, 'share': total / flops if flops else 0.0,
            'bytes': sum(row['bytes'] for row in own)}


def _show(data: Mapping[str, Any], out: Output) -> None:
    out.show(_summary(data))
    kinds = table('operators by kind', 'kind', 'operators', 'FLOPs', 'share', 'bytes produced')
    for kind, row in data['kinds'].items():
        kinds.add_row(kind, str(row['operators']), amount(row['flops']), percent(row['share']),
                      size(row['bytes']))
    out.show(_axes(data), kinds, _barrier(data['rows_meet']))
    if 'operator_list' in data:
        out.show(_listing(data['operator_list']))


def _summary(data: Mapping[str, Any]) -> str:
    lines = [f'[bold]{plain(data["model"])}[/bold]  (digest {data["digest"][:12]}, captured by '
             f'{data["capture"]})']
    for end in ('inputs', 'outputs'):
        for v in data[end]:
            lines.append(f'{end[:-1]:7} {v["name"]}: {v["dtype"]} {_shape(v["shape"])}, '
                         f'{size(v["bytes"])}')
    lines += [
        f'split   along dimension {data["axis"]} of the input, {data["rows"]} rows',
        f'work    {amount(data["flops"])}FLOP in {data["operators"]} operators, '
        f'[bold]{percent(data["local_share"])} of it local[/bold]',
        f'memory  {size(data["parameter_bytes"])} of parameters, '
        f'{size(data["value_bytes"])} of values in all']
    return '\n'.join(lines) + '\n'


def _axes(data: Mapping[str, Any]) -> Any:
    axes = table('split axes, the best first: what cutting every value in halves would mean',
                 'dimension', 'rows', 'work divided', 'bytes exchanged', 'barriers')
    for row in data['axes']:
        taken = ' (taken)' if row['axis'] == data['axis'] else ''
        axes.add_row(f'{row["axis"]}{taken}', str(row['rows']), percent(row['divided_share']),
                     size(row['exchanged_bytes']), str(row['barriers']))
    return axes


def _barrier(rows: list[dict[str, Any]]) -> Any:
    if not rows:
        return 'rows meet nowhere: every operator that reads split rows is local'
    barrier = table('rows meet: global operators that read split rows', 'operator', 'target',
                    'FLOPs', 'bytes that meet', left=2)
    for row in rows:
        barrier.add_row(plain(row['name']), plain(row['target']), amount(row['flops']),
                        size(row['barrier_bytes']) + (' a part' if row['records'] else ''))
    return barrier


def _listing(rows: list[dict[str, Any]]) -> Any:
    listing = table('operators; "reads" is the count of input rows that one output row needs',
                    'operator', 'target', 'kind', 'output', 'rows', 'reads', 'bytes', 'FLOPs',
                    left=4)
    for row in rows:
        listing.add_row(plain(row['name']), plain(row['target']), row['kind'],
                        _shape(row['shape']),
                        str(row['rows']), str(row['reads']), size(row['bytes']),
                        amount(row['flops']))
    return listing


def _shape(shape: tuple[int, ...]) -> str:
    return 'x'.join(map(str, shape)) or 'scalar'
