# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Einstein sums: local along every label that the result keeps."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from intradp_ros.split.calls.aligned import operands_of
from intradp_ros.split.calls.labelled import Label, labelled_split, trailing
from intradp_ros.split.calls.site import Rule, Site, Split
from intradp_ros.split.rules.downstream_softmax import softmax_dim

_ELLIPSIS = '...'


def split_einsum(site: Site) -> Split | None:
    """
    Split an Einstein sum along a label of its result; one that is summed over is global.

    Of several labels it is not one that a softmax works along.
    """
    ranks = [len(site.shape(operand)) for operand in operands_of(site)]
    terms, result = read_equation(site.call.argument('equation'), ranks)
    worked = softmax_dim(site)
    return labelled_split(site, terms, result, avoid=None if worked is None else result[worked])


def read_equation(
        equation: str, ranks: Sequence[int]) -> tuple[list[list[Label]], list[Label]]:
    """
    Return the labels of the operands, whose dimensions `ranks` counts, and of the result.

    The dimensions that an ellipsis stands for are labelled by their place
    from the right.  Without an arrow the result has the ellipsis, and every
    letter that comes once, in the order of the alphabet.
    """
    left, arrow, right = equation.replace(' ', '').partition('->')
    inputs = left.split(',')
    spans = [
        rank - len(term) + len(_ELLIPSIS) if _ELLIPSIS in term else 0
        for term, rank in zip(inputs, ranks)]
    terms = [_labels(term, span) for term, span in zip(inputs, spans)]
    if not arrow:
        counts = Counter(left)
        right = _ELLIPSIS + ''.join(
            sorted(x for x in counts if x.isalpha() and counts[x] == 1))
    return terms, _labels(right, max(spans))


def _labels(term: str, span: int) -> list[Label]:
    before, ellipsis, after = term.partition(_ELLIPSIS)
    return [*before, *(trailing(span) if ellipsis else []), *after]


RULES: dict[str, Rule] = {'aten.einsum.default': split_einsum}
