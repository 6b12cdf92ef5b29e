# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Graphs that arrive from outside are split within bounds, or refused."""
from __future__ import annotations

from intradp_ros.core.limits import MAX_ROWS
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.split_graph import split_graph


def split_received(graph: OperatorGraph, axis: int | None = None) -> SplitGraph:
    """
    Split a graph that another process sent, as `split_graph` does.

    Raises
    ------
    ValueError
        Whatever is wrong with the graph; also if its values have more than
        `MAX_ROWS` rows together.

    """
    try:
        return split_graph(graph, axis, most_rows=MAX_ROWS)
    except ValueError:
        raise
    except Exception as error:  # rules compute with arguments that may be of any type
        raise ValueError(f'a graph that cannot be split: {error!r}') from error
