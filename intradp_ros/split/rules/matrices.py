# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Matrix products: rows of the left operand, columns of the right one, or batches."""
from __future__ import annotations

from intradp_ros.split.calls.aligned import operands_of
from intradp_ros.split.calls.labelled import Label, labelled_split, Term, trailing
from intradp_ros.split.calls.site import Rule, rules, Site, Split
from intradp_ros.split.rules.downstream_softmax import softmax_dim


def split_linear(site: Site) -> Split | None:
    """
    Split a linear layer by its rows.

    Where the rows are its input features (a layer that mixes tokens), it
    needs all of them, and yields any of its output features.
    """
    operands = operands_of(site)
    lines = trailing(len(site.shape(operands[0])) - 1)
    outputs: list[Label] = ['out'] if len(site.shape(operands[1])) > 1 else []
    terms = [[*lines, 'in'], [*outputs, 'in'], outputs][:len(operands)]
    return labelled_split(site, terms, [*lines, *outputs], outputs[0] if outputs else None)


def split_product(site: Site) -> Split | None:
    """
    Split a product of two matrices, vectors or batches, perhaps with something added first.

    The first operand that is split along a dimension of the result leads; the
    others are cut where they line up with it, and needed whole otherwise.  It
    is not one that a softmax works along if there is another.
    """
    *added, left, right = operands_of(site)
    terms, result = product_terms(len(site.shape(left)), len(site.shape(right)))
    added_terms = [result[len(result) - len(site.shape(x)):] for x in added]
    worked = softmax_dim(site)
    return labelled_split(site, [*added_terms, *terms], result,
                          avoid=None if worked is None else result[worked])


def product_terms(left: int, right: int) -> tuple[list[Term], list[Label]]:
    """Return the labels of both factors, by their count of dimensions, and of their product."""
    batches = trailing(max(left, right, 2) - 2)
    rows: list[Label] = ['rows'] if left > 1 else []
    columns: list[Label] = ['columns'] if right > 1 else []
    lefts = [*batches[len(batches) - max(0, left - 2):], *rows, 'in']
    rights = [*batches[len(batches) - max(0, right - 2):], 'in', *columns]
    return [lefts, rights], [*batches, *rows, *columns]


def split_outer(site: Site) -> Split | None:
    """Split the product of every element of one vector with every one of another."""
    return labelled_split(site, [['rows'], ['columns']], ['rows', 'columns'])


RULES: dict[str, Rule] = {
    'aten.linear.default': split_linear,
    'aten.outer.default': split_outer,
    **rules(split_product, (
        'aten.addmm.default',
        'aten.addmv.default',
        'aten.baddbmm.default',
        'aten.bmm.default',
        'aten.matmul.default',
        'aten.mm.default',
        'aten.mv.default',
    )),
}
