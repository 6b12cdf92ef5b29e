# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators described by labels of their dimensions, as in Einstein's notation for products."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod

from intradp_ros.split.calls.aligned import aligned_split, operands_of
from intradp_ros.split.calls.site import Site, Split
from intradp_ros.split.local_operator import Kind

Label = int | str
Term = Sequence[Label]


def labelled_split(
        site: Site, terms: Sequence[Term], result: Term, free: Label | None = None,
        avoid: Label | None = None) -> Split | None:
    """
    Split an operator along a label that one of its split operands shares with the result.

    `terms` has the labels of each operand, in the order in which the
    arguments name them; `result` those of all outputs.  Every operand that
    has a label of the result must line up with the result along it, or have
    size 1 there; an operand that lacks the label is needed whole.  Labels
    that are not in the result are those worked along.

    Of several operands that are split along different labels the largest one
    leads, but one that is split along `avoid` only if all are.  If all are
    split along labels worked along, the operator is global; its output is cut
    along `free`, or stays unsplit where that is None.  Return None in that
    case, or if there is an operand without labels.
    """
    operands = operands_of(site)
    if len(operands) != len(terms):
        return None
    split = [
        (term[dim] != avoid, prod(site.shape(x)), -k, term[dim])
        for k, (x, term) in enumerate(zip(operands, terms))
        if (dim := site.split_dim(x)) is not None]
    kept = [entry for entry in split if entry[-1] in result]
    if kept:
        return split_label(site, terms, result, max(kept)[-1])
    return split_label(site, terms, result, free, Kind.GLOBAL) if split and free else None


def split_label(
        site: Site, terms: Sequence[Term], result: Term, label: Label,
        kind: Kind = Kind.ROW) -> Split | None:
    """Split an operator along a label of the result, whatever its operands are split along."""
    if any(list(term).count(label) > 1 for term in terms):
        return None  # a diagonal
    places = [list(term).index(label) if label in term else -1 for term in terms]
    return aligned_split(site, kind, list(result).index(label), places)


def trailing(count: int) -> list[Label]:
    """Return labels for `count` dimensions that are broadcast from the right."""
    return list(range(-count, 0))
