# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The order in which a graph's operators run: what shrinks early, what grows late.

Any topological order gives the same result.  But what a model's author wrote
first need not come first: a head that makes little of much should run while
the trunk's rows are fresh, so that its rows can be on the link while the trunk
goes on; an upsampling for the output should wait, so that the small values in
front of it can be sent instead.  It also frees memory early.
"""
from __future__ import annotations

from dataclasses import replace

from intradp_ros.graph.operator_graph import OperatorGraph


class _Sizes:
    """Who reads from whom, and how many bytes operators make and read."""

    def __init__(self, graph: OperatorGraph) -> None:
        values, operators = graph.values, graph.operators
        producer, consumers = graph.producer, graph.consumers
        own = [[v for v in op.outputs if v is not None] for op in operators]
        self.makers = [{producer[v] for v in op.inputs if v in producer} for op in operators]
        self.readers = [sorted({r for v in made for r in consumers[v]}) for made in own]
        self.made = [sum(values[v].nbytes for v in made) for made in own]
        self.read = [sum(values[v].nbytes for v in set(op.inputs)) for op in operators]
        self.largest = [max((values[v].nbytes for v in op.inputs), default=0)
                        for op in operators]
        self.least = self.made.copy()
        for index in reversed(range(len(operators))):
            self._look_ahead(index)

    def _look_ahead(self, index: int) -> None:
        """Find the least bytes in the run of operators that only read each other and shrink."""
        if len(self.readers[index]) == 1:
            reader, = self.readers[index]
            if len(self.makers[reader]) == 1 and self.made[reader] <= self.made[index]:
                self.least[index] = self.least[reader]

    def urgency(self, index: int) -> tuple[float, float, int]:
        """Return a key: first what leads to little, then the rest by growth, then as captured."""
        if self.made[index] <= self.largest[index] and self.least[index] < self.largest[index]:
            return 0.0, self.least[index], index
        return 1.0, max(1.0, self.made[index] / max(1, self.read[index])), index


def in_running_order(graph: OperatorGraph) -> OperatorGraph:
    """Return the graph with its operators in the order in which they should run."""
    sizes = _Sizes(graph)
    missing = [len(makers) for makers in sizes.makers]
    ready = {index for index, count in enumerate(missing) if count == 0}
    order: list[int] = []
    while ready:
        index = min(ready, key=sizes.urgency)
        ready.remove(index)
        order.append(index)
        for reader in sizes.readers[index]:
            missing[reader] -= 1
            if missing[reader] == 0:
                ready.add(reader)
    if order == list(range(len(missing))):
        return graph
    return replace(graph, operators=tuple(
        replace(graph.operators[index], id=k) for k, index in enumerate(order)))
