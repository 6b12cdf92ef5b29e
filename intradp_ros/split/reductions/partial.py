# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The split of the first half of a reduction: any rows give one record."""
from __future__ import annotations

from collections.abc import Sequence

from intradp_ros.split.calls.site import Rule, Site, Split, unchanged
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import RowMap

RECORD_DIM = 0
"""Records are joined along this dimension, in which each has length 1."""


def split_partial(site: Site) -> Split | None:
    """Split an operator that folds the rows of its first argument to one record."""
    lead = site.lead()
    if lead is None:
        return None
    rows = site.rows[lead[0].value]
    maps = site.maps(RowMap.identity(rows), rows)
    return Split(Kind.ROW, RECORD_DIM, rows, maps, unchanged(site), folded=True)


def partials(targets: Sequence[str]) -> dict[str, Rule]:
    """Return the rule for operators that fold the rows of their first argument alone."""
    return dict.fromkeys(targets, split_partial)
