# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Distances and similarities of vectors."""
from __future__ import annotations

from dataclasses import replace

from intradp_ros.split.calls.aligned import operands_of
from intradp_ros.split.calls.labelled import labelled_split, trailing
from intradp_ros.split.calls.site import Rule, Site, Split

_BY_PRODUCT, _BY_DIFFERENCE = 1, 2
_FEW_VECTORS = 25


def split_all_distances(site: Site) -> Split | None:
    """Split the distances of each vector of one set to each of another, along either set."""
    ranks = [len(site.shape(operand)) - 2 for operand in operands_of(site)]
    terms = [
        [*trailing(rank), which, 'feature'] for rank, which in zip(ranks, ('first', 'second'))]
    return labelled_split(
        _with_settled_mode(site), terms, [*trailing(max(ranks)), 'first', 'second'])


def _with_settled_mode(site: Site) -> Site:
    """
    Fix the way to compute distances where ATen is left to choose it by the count of vectors.

    A region has fewer vectors than the whole, but must take the same way:
    the product of matrices is far less precise than differences.
    """
    if site.call.argument('compute_mode'):
        return site
    large = any(site.shape(operand)[-2] > _FEW_VECTORS for operand in operands_of(site))
    call = site.call.replace(compute_mode=_BY_PRODUCT if large else _BY_DIFFERENCE)
    return replace(site, operator=replace(site.operator, args=call.args, kwargs=call.kwargs))


def split_similarity(site: Site) -> Split | None:
    """Split the similarity of vectors that lie along one dimension, along any other one."""
    ranks = [len(site.shape(operand)) for operand in operands_of(site)]
    lines = trailing(max(ranks))
    vector = lines[site.call.argument('dim')]
    return labelled_split(
        site, [trailing(rank) for rank in ranks], [line for line in lines if line != vector])


def split_pairwise_distance(site: Site) -> Split | None:
    """Split the distance of vectors in the last dimension, along any other one."""
    ranks = [len(site.shape(operand)) for operand in operands_of(site)]
    lines = trailing(max(ranks))
    kept = [*lines[:-1], 'distance'] if site.call.argument('keepdim') else lines[:-1]
    return labelled_split(site, [trailing(rank) for rank in ranks], kept)


RULES: dict[str, Rule] = {
    'aten.cdist.default': split_all_distances,
    'aten._cdist_forward.default': split_all_distances,
    'aten.cosine_similarity.default': split_similarity,
    'aten.pairwise_distance.default': split_pairwise_distance,
}
