# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Bring an operator graph into the plain form that the floors above expect."""
from __future__ import annotations

from intradp_ros.graph.batch_norm import fold_batch_norms
from intradp_ros.graph.constants import fold_constants
from intradp_ros.graph.convolutions import name_convolutions
from intradp_ros.graph.expansions import leave_out_expansions
from intradp_ros.graph.no_operations import convert_by_dtype, drop_no_operations, reshape_views
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.pieces import separate_pieces
from intradp_ros.graph.view_chains import shorten_view_chains

PASSES = (
    reshape_views, convert_by_dtype, name_convolutions, separate_pieces, drop_no_operations,
    fold_constants, fold_batch_norms, leave_out_expansions, shorten_view_chains)


def normalise(graph: OperatorGraph) -> OperatorGraph:
    """
    Apply all passes; the graph computes the same within float rounding.

    Afterwards there are no views that depend on strides, no operators that
    return an argument unchanged or several pieces of it, none that depend on
    parameters alone, no batch normalisation with fixed statistics, no chain of
    views that could be shorter, and nothing that is not read.
    """
    for simplify in PASSES:
        graph = simplify(graph)
    return graph
