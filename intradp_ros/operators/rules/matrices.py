# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Matrix products: rows of the left operand, columns of the right one, or batches."""
from __future__ import annotations

from intradp_ros.operators.aligned import aligned_split
from intradp_ros.operators.local_operator import Kind
from intradp_ros.operators.site import follow, Operand, Rule, rules, Site, Split

_ROWS, _COLUMNS = -2, -1


def split_linear(site: Site) -> Split | None:
    """Split a linear layer by rows: the features (last dimension) must be whole."""
    lead = site.lead()
    if lead is None or lead[1] == len(site.shape(lead[0])) - 1:
        return None
    return follow(site, Kind.ROW, lead[1])


def split_product(site: Site, operands: int) -> Split | None:
    """
    Split a product of two matrices or batches of them, perhaps with a third one added.

    The first factor that is split along a dimension of the result leads; the
    others are cut where they line up with it, and needed whole otherwise.
    """
    *added, left, right = site.operator.args[:operands]
    if len({left, right, *added}) < operands:
        return None
    if min(len(site.shape(left)), len(site.shape(right))) < 2:
        return None
    for factor, contracted in ((left, _COLUMNS), (right, _ROWS)):
        dim = site.split_dim(factor)
        if dim is not None and dim - len(site.shape(factor)) != contracted:
            return _led_by(site, dim - len(site.shape(factor)), left, right)
    return None


def _led_by(site: Site, from_right: int, left: Operand, right: Operand) -> Split | None:
    """Split along a dimension of the result, counted from the last one backwards."""
    absent = {_COLUMNS: left, _ROWS: right}.get(from_right)

    def place(operand: Operand) -> int:
        return -1 if operand == absent else len(site.shape(operand)) + from_right

    return aligned_split(site, Kind.ROW, len(site.output_shape) + from_right, place)


def split_binary_product(site: Site) -> Split | None:
    """Split ``left @ right``."""
    return split_product(site, 2)


def split_added_product(site: Site) -> Split | None:
    """Split ``added + left @ right``."""
    return split_product(site, 3)


RULES: dict[str, Rule] = {
    'aten.linear.default': split_linear,
    **rules(split_binary_product, (
        'aten.bmm.default', 'aten.matmul.default', 'aten.mm.default')),
    **rules(split_added_product, ('aten.addmm.default', 'aten.baddbmm.default')),
}
