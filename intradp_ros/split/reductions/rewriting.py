# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Take reductions over the rows of a split graph apart, where that saves bytes."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from intradp_ros.graph.operator_graph import Operator, OperatorGraph, Value
from intradp_ros.graph.rewrite import live_operators
from intradp_ros.split.calls.site import Site
from intradp_ros.split.local_operator import Kind, SplitGraph
from intradp_ros.split.reductions import REDUCTIONS
from intradp_ros.split.reductions.draft import Draft


def fold_reductions(split: SplitGraph) -> OperatorGraph | None:
    """
    Return the graph with records and totals in place of global reductions, None if it has none.

    Values keep their ids; those that are new follow.
    """
    graph = split.graph
    values: list[Value] = list(graph.values)
    operators: list[Operator] = []
    for local in split.operators:
        draft = _folded(split, local.operator, len(values)) if local.kind is Kind.GLOBAL else None
        values += draft.values if draft else ()
        operators += draft.operators if draft else (local.operator,)
    if len(values) == len(graph.values):
        return None
    live = live_operators(_numbered(operators), graph.outputs)
    return replace(graph, values=tuple(values), operators=tuple(_numbered(live)))


def _folded(split: SplitGraph, operator: Operator, first: int) -> Draft | None:
    """Return what stands for an operator, None if that is itself."""
    reduction = REDUCTIONS.get(operator.target)
    if reduction is None:
        return None
    draft = reduction(Draft(Site(split.graph, operator, split.dims, split.rows), first))
    return draft if draft and _saves(split, draft) else None


def _saves(split: SplitGraph, draft: Draft) -> bool:
    """
    Return whether a record of each side is less than what the records are made of.

    An operator that needs all rows but yields any keeps what follows local,
    so that more must be saved there.
    """
    parted = split.dims[draft.result.id] is not None
    made, *_ = draft.operators
    records = sum(draft.values[v - draft.first].nbytes for v in made.outputs if v is not None)
    folded = {v for v in made.inputs if split.dims[v] is not None}
    return (4 if parted else 2) * records < sum(split.graph.values[v].nbytes for v in folded)


def _numbered(operators: Iterable[Operator]) -> list[Operator]:
    return [replace(operator, id=k) for k, operator in enumerate(operators)]
