# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Rows that are late: the robot works on by itself, what comes counts, and the result is exact."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sharing import with_wrapped_kernels
from synthetic import PRIME, random_split_graph, reference
import torch

from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.execution.local_catch_up import owed, PARTS, stride
from intradp_ros.runtime.execution.straggler_mitigation import StragglerMitigation
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.program import compile_program
from intradp_ros.schedule.schedule import ROBOT, SERVER, Transfer
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage


class Server:
    """Rows as they would come from a server, when chance says so."""

    def __init__(self, split: SplitGraph, source: torch.Tensor, transfers: list[Transfer],
                 seed: int, loss: float) -> None:
        self.split, self.rows = split, reference(split, source)
        self.random = Random(seed)
        self.waiting = [t for t in transfers if self.random.random() >= loss]
        self.box = Mailbox(lambda waited: None, lambda: self.catch_up.changed())
        self.catch_up: StragglerMitigation

    def late(self, waited: float) -> str | None:
        """Deliver something now and then, in any order, while the robot waits."""
        awaited = self.catch_up.execution.awaited
        self.sometimes()
        arrived = awaited in self.box.left()
        return None if arrived or self.random.random() < 0.2 else 'late'

    def sometimes(self) -> None:
        if self.waiting and self.random.random() < 0.3:
            transfer = self.waiting.pop(self.random.randrange(len(self.waiting)))
            self.box.deliver(transfer.id, self.piece(transfer))

    def piece(self, transfer: Transfer) -> torch.Tensor:
        value, region = transfer.value, transfer.region
        if value not in self.split.folded:
            return self.rows[value][slice(*region)].clone()
        adding = self.split.operators[self.split.graph.producer[value]]
        (source,) = adding.operator.inputs
        return adding.bind(region, {})([self.rows[source][slice(*region)]])


def busy(split: SplitGraph, deliver: Callable[[], None]) -> SplitGraph:
    """Return the graph with kernels during which rows may come."""
    def wrap(kernel: Any) -> Any:
        def run(tensors: Sequence[torch.Tensor]) -> Any:
            deliver()
            return kernel(tensors)
        return run

    return with_wrapped_kernels(split, wrap)


SEEN: set[str] = set()


@given(st.integers(0, 10**6), st.lists(st.floats(0, 1), min_size=1, max_size=3),
       st.integers(1, 8), st.sampled_from([0.0, 0.4]), st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=300)
def test_whoever_is_first_the_result_is_exact(seed: int, shares: list[float], bands: int,
                                              folds: float, loss: float) -> None:
    """Transfers come in any order, late or never, while it waits and while it computes."""
    split = random_split_graph(seed, 8, folds=folds)
    stops = sorted({max(1, round(8 * (i + 1) / len(shares))) for i in range(len(shares))} | {8})
    schedule = lower(split, Partition(tuple(
        RowStage(stop, shares[min(i, len(shares) - 1)], 1, bands) for i,
        stop in enumerate(stops))))
    source = torch.randint(0, PRIME, (split.rows[0], 1),
                           generator=torch.Generator().manual_seed(seed))
    server = Server(split, source, list(schedule.between(SERVER, ROBOT)), seed, loss)
    there = busy(split, server.sometimes)
    execution = Execution(compile_program(there, schedule, ROBOT, {}, delivers=True),
                          Recorder(ROBOT), server.box, lambda transfer, tensor: None)
    server.catch_up = StragglerMitigation(there, execution, schedule, server.late)
    got = server.catch_up.run({0: source})
    for value in split.graph.output_values:
        assert torch.equal(got[value], server.rows[value])
    assert not (server.catch_up.reason and server.catch_up.met)
    SEEN.add('own' if server.catch_up.reason else 'met' if server.catch_up.met else 'by plan')
    if server.catch_up.events and not (server.catch_up.reason or server.catch_up.met):
        SEEN.add('overtaken')


def test_all_of_that_happened() -> None:
    assert {'own', 'met', 'by plan', 'overtaken'} == SEEN


def test_both_meet_in_the_middle_and_nothing_is_computed_twice() -> None:
    """A server that sends its rows one by one is met by a robot that begins with the last ones."""
    split = random_split_graph(5, 4, rows=400)
    schedule = lower(split, Partition((RowStage(4, 0.25, 1, 12),)))
    source = torch.randint(0, PRIME, (split.rows[0], 1),
                           generator=torch.Generator().manual_seed(5))
    rows, asked = reference(split, source), []
    server = Server(split, source, [], 5, 1.0)
    coming = list(owed(schedule, SERVER))
    assert len(coming) == 12

    def late(waited: float) -> str | None:
        return 'late'

    def one_more() -> None:
        """Another transfer comes with every operator that the robot computes by itself."""
        asked.append(1)
        if server.catch_up.events or len(asked) > 4:
            transfer = coming.pop(0)
            server.box.deliver(transfer.id, server.piece(transfer))

    there = busy(split, one_more)
    execution = Execution(compile_program(there, schedule, ROBOT, {}, delivers=True),
                          Recorder(ROBOT), server.box, lambda transfer, tensor: None)
    server.catch_up = StragglerMitigation(there, execution, schedule, late)
    got = server.catch_up.run({0: source})
    assert all(torch.equal(got[v], rows[v]) for v in split.graph.output_values)
    assert server.catch_up.met and not server.catch_up.reason
    assert len(coming) > 12 // 2 - PARTS and len(server.catch_up.events) > 1
    assert len(server.catch_up.held({})) > len(server.box.left())
    server.catch_up.forget()
    assert len(server.catch_up.held({})) == len(server.box.left())


def test_what_would_come_last_is_computed_first() -> None:
    split = random_split_graph(5, 4, rows=400)
    coming = owed(lower(split, Partition((RowStage(4, 0.25, 1, 12),))), SERVER)
    assert stride(coming) == coming[-12 // PARTS:] and stride(coming[:2]) == coming[1:2]
