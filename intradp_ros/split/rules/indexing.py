# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Look-ups and writes by index: local along dimensions that no index chooses from."""
from __future__ import annotations

from collections.abc import Collection

import torch

from intradp_ros.graph.arguments import type_of
from intradp_ros.graph.operator_graph import ParameterRef
from intradp_ros.split.calls.aligned import operands_of
from intradp_ros.split.calls.copies import chosen_rows
from intradp_ros.split.calls.labelled import Label, labelled_split, trailing
from intradp_ros.split.calls.site import follow, normal_dim, Operand, Rule, rules, Site, Split
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.rules.any_rows import split_any_rows

_MASKS = (torch.bool, torch.uint8)


def split_index(site: Site) -> Split | None:
    """
    Split ``x[..., index, ...]`` with any number of indices.

    Local along the dimensions that are not indexed, along those of an index
    (then all of `x` is needed), and along rows chosen by a constant index.
    """
    chosen = _indices(site)
    if chosen is None:
        return None
    target, lines, result = _indexed(site, chosen)
    split = labelled_split(site, [target, *lines], result)
    return _chosen_rows(site, chosen) if split is None else split


def split_index_put(site: Site) -> Split | None:
    """
    Split a write to indexed places along the dimensions that are not indexed.

    Where many values are written to a grid (points, say), all of them are
    needed for any rows of the longest dimension that is indexed.
    """
    chosen = _indices(site)
    if chosen is None:
        return None
    target, lines, source = _indexed(site, chosen)
    rank = len(site.shape(site.call.argument('values')))
    split = labelled_split(
        site, [target, *lines, source[len(source) - rank:]], _labels(len(target), chosen, 'out'))
    return split or split_any_rows(site, max(chosen, key=site.output_shape.__getitem__))


def split_gather(site: Site) -> Split | None:
    """
    Split a look-up of single elements along a dimension; those of the index may be rows.

    Where the elements are chosen among rows, all of these are needed for any of the index.
    """
    rank, dims = _rank_and_dim(site)
    terms = [_labels(rank, dims, 'in'), _labels(rank, dims, 'chosen')]
    return labelled_split(site, terms, terms[1], *(f'chosen {dim}' for dim in dims))


def split_scatter(site: Site) -> Split | None:
    """Split a write to indexed places of one dimension along the others; it yields any rows."""
    rank, dims = _rank_and_dim(site)
    given = operands_of(site)[1:]
    written = _labels(rank, dims, 'written')
    terms = [written if len(site.shape(x)) == rank else [] for x in given]
    split = labelled_split(
        site, [_labels(rank, dims, 'in'), *terms], _labels(rank, dims, 'out'))
    return split or split_any_rows(site, dims[0])


def split_index_write(site: Site) -> Split | None:
    """Split a write of slices to places of one dimension along the others; it yields any rows."""
    rank, dims = _rank_and_dim(site)
    written = operands_of(site)[2:]
    terms = [_labels(rank, dims, 'written') if site.shape(x) else [] for x in written]
    split = labelled_split(
        site, [_labels(rank, dims, 'in'), ['index'], *terms], _labels(rank, dims, 'out'))
    return split or split_any_rows(site, dims[0])


def split_embedding(site: Site) -> Split | None:
    """Split a look-up of embeddings along the indices."""
    lines = trailing(len(site.output_shape) - 1)
    return labelled_split(site, [['words', 'features'], lines], [*lines, 'features'])


def split_take(site: Site) -> Split | None:
    """Split a look-up by flat index, or in a sorted row, along the places looked up."""
    lines = trailing(len(site.output_shape))
    terms = [
        lines if operand == site.call.argument(_LOOKED_UP[site.operator.target])
        else _labels(len(site.shape(operand)), range(len(site.shape(operand))), 'in')
        for operand in operands_of(site)]
    return labelled_split(site, terms, lines)


def split_one_hot(site: Site) -> Split | None:
    """Split an encoding of classes; without their count it depends on all rows."""
    lead = site.lead()
    return follow(site, Kind.ROW, lead[1]) if lead and site.call.argument('num_classes') > 0 \
        else None


def _indices(site: Site) -> dict[int, Operand] | None:
    """Return the indices by the dimension they choose from, or None if one is a mask."""
    chosen = {k: x for k, x in enumerate(site.call.argument('indices')) if x is not None}
    masked = any(type_of(site.graph, index)[1] in _MASKS for index in chosen.values())
    return None if masked else chosen


def _indexed(
        site: Site, chosen: dict[int, Operand]) -> tuple[list[Label], list[list[Label]],
                                                         list[Label]]:
    """Return the labels of what is indexed, of each index, and of what they choose."""
    target = _labels(len(site.shape(operands_of(site)[0])), chosen, 'in')
    lines = [trailing(len(site.shape(index))) for index in chosen.values()]
    first, last = min(chosen), max(chosen)
    kept = [k for k in range(len(target)) if k not in chosen]
    # indices side by side leave their result where they are, others in front
    front = first if last - first == len(chosen) - 1 else 0
    longest = max(lines, key=len)
    return target, lines, [*kept[:front], *longest, *kept[front:]]


def _labels(rank: int, dims: Collection[int], mark: str) -> list[Label]:
    """Label dimensions by their number, and those an operator works along by another mark."""
    return [f'{mark} {k}' if k in dims else k for k in range(rank)]


def _rank_and_dim(site: Site) -> tuple[int, tuple[int]]:
    rank = len(site.shape(operands_of(site)[0]))
    return rank, (normal_dim(site.call.argument('dim'), rank),)


def _chosen_rows(site: Site, chosen: dict[int, Operand]) -> Split | None:
    """Split a choice of rows by a constant index, which copies them."""
    lead = site.lead()
    index = chosen.get(lead[1]) if lead else None
    if len(chosen) > 1 or not isinstance(index, ParameterRef) or len(site.shape(index)) != 1:
        return None
    return chosen_rows(site, index)


_LOOKED_UP = {
    'aten.bucketize.Tensor': 'self',
    'aten.isin.Tensor_Tensor': 'elements',
    'aten.take.default': 'index',
}

RULES: dict[str, Rule] = {
    **rules(split_index, ('aten.index.Tensor', 'aten._unsafe_index.Tensor')),
    **rules(split_index_put, ('aten.index_put.default', 'aten._unsafe_index_put.default')),
    'aten.gather.default': split_gather,
    **rules(split_scatter, (
        'aten.scatter.reduce',
        'aten.scatter.src',
        'aten.scatter.value',
        'aten.scatter.value_reduce',
        'aten.scatter_add.default',
        'aten.scatter_reduce.two',
    )),
    **rules(split_index_write, (
        'aten.index_add.default',
        'aten.index_copy.default',
        'aten.index_fill.int_Scalar',
        'aten.index_fill.int_Tensor',
        'aten.index_reduce.default',
    )),
    'aten.embedding.default': split_embedding,
    'aten.one_hot.default': split_one_hot,
    **rules(split_take, _LOOKED_UP),
}
