# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Every partition leads to programs that compute exactly the unsplit result."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
import threading

from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import PRIME, random_split_graph, reference
import torch

from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.joins import joins_of
from intradp_ros.schedule.program import compile_program, Gather, KernelCall, Program
from intradp_ros.schedule.schedule import Compute, Receive, ROBOT, Schedule, Send, SERVER, Step
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Pace, Partition, RowStage


@st.composite
def split_and_partition(draw: st.DrawFn) -> tuple[SplitGraph, Partition]:
    """Draw a graph and any partition of it."""
    split = random_split_graph(draw(st.integers(0, 10**6)), draw(st.integers(1, 10)),
                               folds=draw(st.sampled_from([0.0, 0.4])))
    count = len(split.operators)
    stops = sorted(draw(st.sets(st.integers(1, count), max_size=4)) | {count})
    share = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
    bands = st.integers(1, 4)
    pace = st.builds(Pace, st.sampled_from([1.0, 0.5, 3.0]), st.booleans(), st.booleans())
    return split, Partition(tuple(
        RowStage(stop, draw(share), draw(bands), draw(bands), draw(pace), draw(pace))
        for stop in stops))


def run_both(split: SplitGraph, schedule: Schedule, source: torch.Tensor,
             ) -> dict[int, torch.Tensor]:
    """Run both programs, each in its thread; return what the robot delivers."""
    boxes = {side: Mailbox(lambda waited: 'stuck' if waited > 10 else None)
             for side in (ROBOT, SERVER)}
    other = {ROBOT: SERVER, SERVER: ROBOT}
    results: dict[str, object] = {}

    def run(side: str) -> None:
        program = compile_program(split, schedule, side, {}, delivers=side == ROBOT)
        execution = Execution(program, Recorder(side), boxes[side], boxes[other[side]].deliver)
        results[side] = execution.run({0: source} if side == ROBOT else {})

    server = threading.Thread(target=run, args=(SERVER,))
    server.start()
    run(ROBOT)
    server.join()
    return results[ROBOT]


@given(split_and_partition(), st.integers(0, 2**31))
@settings(max_examples=150)
def test_any_partition_is_exact(case: tuple[SplitGraph, Partition], seed: int) -> None:
    split, partition = case
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(0, PRIME, (split.rows[0], 1), generator=generator)
    wanted = reference(split, source)
    got = run_both(split, lower(split, partition), source)
    assert set(got) == set(split.graph.output_values)
    for value, tensor in got.items():
        assert torch.equal(tensor, wanted[value])


@given(split_and_partition())
@settings(max_examples=150)
def test_every_transfer_is_sent_once_and_awaited_once(case: tuple[SplitGraph, Partition]) -> None:
    split, partition = case
    schedule = lower(split, partition)
    for transfer in schedule.transfers:
        assert transfer.region, 'no empty transfer'
        assert schedule.programs[transfer.source].count(Send(transfer.id)) == 1
        assert schedule.programs[transfer.target].count(Receive(transfer.id)) == 1
    sent = [(t.value, t.target, row) for t in schedule.transfers for row in range(*t.region)]
    assert len(sent) == len(set(sent)), 'no row crosses the link twice'


@given(split_and_partition())
@settings(max_examples=150)
def test_no_side_computes_a_row_twice(case: tuple[SplitGraph, Partition]) -> None:
    split, partition = case
    for program in lower(split, partition).programs.values():
        rows = Counter((s.operator, row) for s in program if isinstance(s, Compute)
                       for row in range(*s.region))
        assert max(rows.values(), default=1) == 1


@given(split_and_partition())
@settings(max_examples=150)
def test_records_cross_as_they_were_computed(case: tuple[SplitGraph, Partition]) -> None:
    """No record is cut, and no row of a folded value is in two records that one side holds."""
    split, partition = case
    schedule = lower(split, partition)
    for value in split.folded:
        producer = split.graph.producer[value]
        held = {side: [s.region for s in program
                       if isinstance(s, Compute) and s.operator == producer]
                for side, program in schedule.programs.items()}
        crossing = [t for t in schedule.transfers if t.value == value]
        for transfer in crossing:
            assert transfer.region in held[transfer.source]
        for side, regions in held.items():
            regions = regions + [t.region for t in crossing if t.target == side]
            rows = Counter(row for region in regions for row in range(*region))
            assert max(rows.values(), default=1) == 1


@given(st.integers(0, 10**6), st.data())
@settings(max_examples=100)
def test_sides_that_meet_often_never_wait_for_each_other(seed: int, data: st.DataObject) -> None:
    split = random_split_graph(seed, 24, folds=0.5)
    pace = st.builds(Pace, st.sampled_from([1.0, 3.0]), st.booleans(), st.booleans())
    bands, share = st.integers(1, 5), st.floats(0, 1)
    stops = sorted(data.draw(st.sets(st.integers(1, 24), max_size=2)) | {24})
    partition = Partition(tuple(
        RowStage(stop, data.draw(share), data.draw(bands), data.draw(bands), data.draw(pace),
                 data.draw(pace)) for stop in stops))
    assert all(not left for left in played(lower(split, partition)).values())


def played(schedule: Schedule) -> dict[str, list[Step]]:
    """Return what is left of the programs when no side can go on."""
    left = {side: list(program) for side, program in schedule.programs.items()}
    sent: set[int] = set()
    going = True
    while going:
        going = False
        for steps in left.values():
            while steps and not (isinstance(steps[0], Receive) and steps[0].transfer not in sent):
                step = steps.pop(0)
                sent |= {step.transfer} if isinstance(step, Send) else set()
                going = True
    return left


def test_both_sides_share_a_reduction_within_a_stage() -> None:
    split = next(s for s in (random_split_graph(seed, 4, folds=0.9) for seed in range(99))
                 if len(s.folded) == 1)
    (value,) = split.folded
    adding, rows = split.graph.producer[value], split.rows[value]
    schedule = lower(split, Partition((RowStage(4, 0.5),)))
    folded = [s.region for program in schedule.programs.values() for s in program
              if isinstance(s, Compute) and s.operator == adding]
    assert sorted(folded) == [Region(0, rows // 2), Region(rows // 2, rows)]
    assert {t.region for t in schedule.transfers if t.value == value} <= set(folded)


def test_a_share_of_one_needs_no_server() -> None:
    split = random_split_graph(3)
    schedule = lower(split, Partition((RowStage(len(split.operators), 1.0),)))
    assert not schedule.transfers
    assert not schedule.programs[SERVER]


def test_a_share_of_zero_sends_the_input_and_returns_the_outputs() -> None:
    split = random_split_graph(3)
    schedule = lower(split, Partition((RowStage(len(split.operators), 0.0),)))
    assert {t.value for t in schedule.between(ROBOT, SERVER)} == {0}
    assert {t.value for t in schedule.between(SERVER, ROBOT)} == set(split.graph.output_values)
    assert not [s for s in schedule.programs[ROBOT] if isinstance(s, Compute)]


@given(split_and_partition())
@settings(max_examples=100, deadline=None)
def test_what_operators_read_of_several_pieces_is_counted(
        case: tuple[SplitGraph, Partition]) -> None:
    """
    It is what the program puts together.

    Rows that other rows of the value were put together after are there for
    the program, and count again.
    """
    split, partition = case
    schedule = lower(split, partition)
    for side in ROBOT, SERVER:
        joins = joins_of(split, schedule, side, has_inputs=side == ROBOT)
        times, counted = map(sum, zip(*joins)) if joins else (0, 0)
        program = compile_program(split, schedule, side, {}, delivers=side == ROBOT)
        joined = list(joined_for_operators(program))
        needed = [split.nbytes(value, rows) for value, rows in joined
                  if value not in split.folded]
        if len({value for value, _ in joined}) == len(joined):
            assert (times, counted) == (len(needed), sum(needed))
        else:
            assert times >= len(needed) and counted >= sum(needed)


def joined_for_operators(program: Program) -> Iterator[tuple[int, int]]:
    """Yield values and rows that a program puts together since an operator reads them."""
    read = {slot for i in program.instructions if isinstance(i, KernelCall)
            for slot in i.arguments}
    values = {piece.slot: piece.value for piece in program.pieces}
    for i in program.instructions:
        if isinstance(i, Gather) and i.result in read and len(i.cuts) > 1:
            yield values[i.cuts[0][0]], sum(rows for *_, rows in i.cuts)
