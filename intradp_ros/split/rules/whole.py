# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Global operators: all inputs are needed whole, and the output is not split."""
from __future__ import annotations

from intradp_ros.split.calls.site import Site, Split, unchanged
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.regions.region import RowMap


def split_whole(site: Site) -> Split:
    """Run the operator as a whole or not at all: always right, never parallel."""
    maps = tuple(RowMap.whole(1, site.rows[value]) for value in site.operator.inputs)
    return Split(Kind.GLOBAL, None, 1, maps, unchanged(site))
