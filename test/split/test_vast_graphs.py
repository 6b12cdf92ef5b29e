# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Graphs that arrive may declare any number: they are split in little memory, or refused."""
from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from single_operator import Parameter, Single
import torch
from torch.utils import _pytree as pytree

from intradp_ros.core.limits import MAX_ROWS
from intradp_ros.graph.serialise import graph_from_json, graph_to_json
from intradp_ros.split.split_graph import split_graph, split_received

VAST = (2**14, 2**20, 2**22, 2**31, 2**40, -2**31)
MOST_MB = 100.0
#: Of two and three numbers changed at once.
TOGETHER = 150


def image(*shape: int) -> torch.Tensor:
    return torch.zeros(shape or (1, 4, 8, 6))


def weight(*shape: int) -> Parameter:
    return Parameter(torch.zeros(shape))


def number(*values: int) -> Parameter:
    return Parameter(torch.tensor(values))


#: An operator with all its arguments, and the axis along which it is split.
CALLS: dict[str, tuple[int, tuple[Any, ...]]] = {
    'relu.default': (2, (image(),)),
    'conv1d.default': (2, (image(1, 4, 9), weight(4, 2, 3), None, [2], [1], [1], 2)),
    'conv2d.default': (2, (image(), weight(4, 2, 3, 3), None, [2, 1], [1, 1], [1, 1], 2)),
    'conv2d.padding': (2, (image(), weight(4, 4, 3, 3), None, [1, 1], 'same', [1, 1], 1)),
    'conv_transpose1d.default': (2, (
        image(1, 4, 9), weight(4, 2, 3), None, [2], [1], [1], 1, [1])),
    'conv_transpose2d.input': (2, (
        image(), weight(4, 2, 3, 3), None, [2, 2], [1, 1], [1, 1], 1, [1, 1])),
    'conv_transpose3d.input': (2, (
        image(1, 2, 4, 4, 4), weight(2, 2, 3, 3, 3), None, [1, 1, 1], [1, 1, 1], [0, 0, 0], 1,
        [1, 1, 1])),
    'max_pool2d.default': (2, (image(), [3, 3], [2, 2], [1, 1], [1, 1], False)),
    'max_pool2d_with_indices.default': (2, (image(), [3, 3], [2, 2], [1, 1], [1, 1], False)),
    'avg_pool2d.default': (2, (image(), [2, 2], [2, 2], [1, 1], False, True, None)),
    'adaptive_avg_pool2d.default': (2, (image(), [4, 3])),
    'adaptive_max_pool2d.default': (2, (image(), [4, 3])),
    'im2col.default': (2, (image(), [3, 3], [1, 1], [1, 1], [1, 1])),
    'col2im.default': (2, (image(1, 36, 48), [8, 6], [3, 3], [1, 1], [1, 1], [1, 1])),
    'unfold.default': (2, (image(), 2, 3, 2)),
    'diff.default': (2, (image(), 2, 2)),
    'upsample_nearest1d.vec': (2, (image(1, 4, 9), None, [2.0])),
    'upsample_nearest2d.default': (2, (image(), [16, 12], 2.0, 2.0)),
    'upsample_bilinear2d.vec': (2, (image(), None, False, [1.5, 1.5])),
    'upsample_bilinear2d.default': (2, (image(), [12, 9], True, None, None)),
    'upsample_bicubic2d.default': (2, (image(), [12, 9], False, 1.5, 1.5)),
    'upsample_trilinear3d.vec': (2, (image(1, 2, 4, 4, 4), [6, 6, 6], False, None)),
    '_upsample_bilinear2d_aa.default': (2, (image(), [4, 3], False, None, None)),
    '_upsample_bicubic2d_aa.vec': (2, (image(), None, False, [0.5, 0.5])),
    'roll.default': (2, (image(), [3], [2])),
    'flip.default': (2, (image(), [2])),
    'repeat.default': (2, (image(), [1, 1, 3, 1])),
    'tile.default': (2, (image(), [1, 1, 3, 1])),
    'repeat_interleave.self_int': (2, (image(), 3, 2)),
    'expand.default': (1, (image(1, 4, 1), [1, 4, 5])),
    'pad.default': (2, (image(), [1, 1, 2, 3], 'reflect')),
    'constant_pad_nd.default': (2, (image(), [1, 1, 2, 3], 0.0)),
    'replication_pad2d.default': (2, (image(), [1, 1, 2, 3])),
    'slice.Tensor': (2, (image(), 2, 1, 7, 2)),
    'narrow.default': (2, (image(), 2, 1, 5)),
    'select.int': (2, (image(), 1, 2)),
    'slice_scatter.default': (2, (image(), image(1, 4, 3, 6), 2, 1, 7, 2)),
    'select_scatter.default': (2, (image(), image(1, 4, 6), 2, 3)),
    'tril.default': (2, (image(), 1)),
    'cat.default': (2, ([image(), image(), image(1, 4, 3, 6)], 2)),
    'stack.default': (2, ([image(), image()], 1)),
    'index_select.default': (2, (image(), 2, number(0, 3, 5))),
    'index.Tensor': (2, (image(), [None, None, number(0, 3, 5)])),
    'pixel_shuffle.default': (2, (image(), 2)),
    'pixel_unshuffle.default': (2, (image(), 2)),
    'channel_shuffle.default': (2, (image(), 2)),
    'view.default': (2, (image(), [1, 4, 4, 12])),
    'split_with_sizes.default': (2, (image(), [3, 5], 2)),
    'chunk.default': (2, (image(), 3, 2)),
    'group_norm.default': (2, (image(), 2, None, None, 1e-5)),
    'softmax.int': (2, (image(), 2)),
    'sum.dim_IntList': (2, (image(), [2], True)),
    'var.correction': (2, (image(), [2])),
    'topk.default': (2, (image(), 3, 2)),
    'cumsum.default': (2, (image(), 2)),
    'fft_fft.default': (2, (image(), 7, 2)),
    'einsum.default': (1, ('bij,bjk->bik', [image(1, 5, 4), image(1, 4, 3)])),
    'matmul.default': (1, (image(1, 5, 4), weight(4, 3))),
    'linear.default': (1, (image(1, 5, 4), weight(3, 4))),
    'layer_norm.default': (1, (image(1, 5, 4), [4], None, None, 1e-5)),
    'scaled_dot_product_attention.default': (
        2, (image(1, 2, 5, 4), image(1, 2, 5, 4), image(1, 2, 5, 4))),
    'embedding.default': (1, (weight(7, 3), torch.zeros(1, 5, dtype=torch.int64)))}


def document(target: str, *arguments: Any) -> dict[str, Any]:
    """Return the graph of one operator as it arrives."""
    graph: dict[str, Any] = json.loads(graph_to_json(Single(target, *arguments).graph))
    return {**graph, 'arguments': [{'value': v} for v in graph['inputs']],
            'input_tree': tree_of((tuple(graph['inputs']), {})),
            'output_tree': tree_of(tuple(graph['outputs'])) if len(graph['outputs']) > 1
            else tree_of(0)}


def tree_of(item: Any) -> str:
    return pytree.treespec_dumps(pytree.tree_structure(item))


def places(item: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where numbers stand in what JSON holds."""
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        yield path
    elif isinstance(item, dict) and not {'value', 'parameter'} & set(item):
        for key, part in item.items():
            yield from places(part, (*path, key))
    elif isinstance(item, list):
        for key, part in enumerate(item):
            yield from places(part, (*path, key))


def declared(graph: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return where a graph declares arguments and shapes."""
    parts = [('operators', 0, 'args'), *(
        (what, k, 'shape') for what in ('values', 'parameters') for k in range(len(graph[what])))]
    return [place for a, b, c in parts for place in places(graph[a][b][c], (a, b, c))]


def changed(graph: dict[str, Any], *changes: tuple[tuple[Any, ...], int]) -> dict[str, Any]:
    copy = deepcopy(graph)
    for (*path, last), value in changes:
        part = copy
        for key in path:
            part = part[key]
        part[last] = type(part[last])(value)
    return copy


def resized(graph: dict[str, Any], size: int, value: int) -> dict[str, Any]:
    """Change a size wherever a value has it, so that shapes agree."""
    values = [{**v, 'shape': [value if n == size else n for n in v['shape']]}
              for v in graph['values']]
    return {**graph, 'values': values}


def vast(graph: dict[str, Any], random: Random) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield graphs with a vast number at every place, and at some places at once."""
    found = declared(graph)
    for place in found:
        for value in VAST:
            yield (place, value), changed(graph, (place, value))
    for size in {n for v in graph['values'] for n in v['shape']}:
        for value in VAST[:3]:
            yield (size, value), resized(graph, size, value)
    for _ in range(TOGETHER if len(found) > 1 else 0):
        changes = [(place, random.choice(VAST))
                   for place in random.sample(found, min(len(found), random.randint(2, 3)))]
        yield changes, changed(graph, *changes)


def peak_mb() -> float:
    return int(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]) / 1024


def mb_of_splitting(graph: dict[str, Any], axis: int) -> float:
    """Return by how much memory grew while a graph was read and split, as a node does it."""
    text = json.dumps(graph)
    Path('/proc/self/clear_refs').write_text('5')  # the peak is what is taken now
    before = peak_mb()
    try:
        split_graph(graph_from_json(text), axis, most_rows=MAX_ROWS)
    except MemoryError:
        return float('inf')
    except Exception:  # refused: rules compute with arguments that may be of any kind
        pass
    return peak_mb() - before


@pytest.mark.skipif(not Path('/proc/self/clear_refs').exists(), reason='only Linux tells the peak')
@pytest.mark.parametrize('target', CALLS)
def test_vast_numbers_take_little_memory(target: str) -> None:
    axis, arguments = CALLS[target]
    graph = document(target, *arguments)
    split_graph(graph_from_json(json.dumps(graph)), axis, most_rows=MAX_ROWS)
    for changes, other in vast(graph, Random(7)):
        assert mb_of_splitting(other, axis) < MOST_MB, changes


def test_many_inputs_of_many_rows_are_refused() -> None:
    """Each of an operator's inputs has a table of its own."""
    graph = document('cat.default', [image(), image()], 1)
    large = resized(graph, 8, 2**18)
    [operator] = large['operators']
    operator['args'][0] = operator['args'][0][:1] * 10_000
    assert mb_of_splitting(large, 2) < MOST_MB


def test_graphs_that_arrive_are_bounded_along_any_axis() -> None:
    """Also where none is given, as for a model that a device of a fleet fetches."""
    for axis in (None, 2):
        graph = document('relu.default', image())
        split_received(graph_from_json(json.dumps(graph)), axis)
        graph['values'][0]['shape'][2] = graph['values'][1]['shape'][2] = 1 << 22
        with pytest.raises(ValueError, match='too many rows'):
            split_received(graph_from_json(json.dumps(graph)), axis)
