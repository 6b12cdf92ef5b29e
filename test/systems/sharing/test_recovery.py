# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whenever the server falls silent, the robot finishes the same inference exactly."""
from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from synthetic import PRIME, random_split_graph, reference
import torch

from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.execution.recovery import finish_alone, held_pieces, missing_steps
from intradp_ros.runtime.transport.mailbox import InferenceAbandonedError, Mailbox
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.program import compile_program
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.schedule.tiling import missing_piece, tiling
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage


@given(st.integers(0, 10**6), st.lists(st.floats(0, 1), min_size=1, max_size=3),
       st.floats(0, 1), st.integers(1, 4), st.sampled_from([0.0, 0.4]))
@settings(max_examples=200)
def test_finishes_from_whatever_arrived(seed: int, shares: list[float], part: float,
                                        bands: int, folds: float) -> None:
    """Deliver the right rows of a part of the transfers, then fail."""
    split = random_split_graph(seed, 8, folds=folds)
    stops = sorted({max(1, round(8 * (i + 1) / len(shares))) for i in range(len(shares))} | {8})
    partition = Partition(tuple(RowStage(stop, shares[min(i, len(shares) - 1)], 1, bands)
                                for i, stop in enumerate(stops)))
    schedule = lower(split, partition)
    source = torch.randint(0, PRIME, (split.rows[0], 1),
                           generator=torch.Generator().manual_seed(seed))
    wanted = reference(split, source)
    box = Mailbox(lambda waited: 'server silent')
    incoming = schedule.between(SERVER, ROBOT)
    for transfer in incoming[:int(len(incoming) * part)]:
        box.deliver(transfer.id, piece(split, wanted, transfer.value, transfer.region))
    program = compile_program(split, schedule, ROBOT, {}, delivers=True)
    execution = Execution(program, Recorder(ROBOT), box, lambda transfer, tensor: None)
    try:
        got = execution.run({0: source})
    except InferenceAbandonedError:
        held = [(0, split.whole(0), source), *held_pieces(execution)]
        got = finish_alone(split, held, {})
    for value in split.graph.output_values:
        assert torch.equal(got[value], wanted[value])


def piece(split: SplitGraph, wanted: Mapping[int, torch.Tensor], value: int, region: Region,
          ) -> torch.Tensor:
    """Return rows of a value, or their record."""
    if value not in split.folded:
        return wanted[value][slice(*region)]
    adding = split.operators[split.graph.producer[value]]
    (source,) = adding.operator.inputs
    return adding.bind(region, {})([wanted[source][slice(*region)]])


def test_held_rows_are_not_computed_again() -> None:
    split = random_split_graph(1, 1)
    value = split.graph.output_values[0]
    rows = split.rows[value]
    steps = missing_steps(split, {0: [split.whole(0)], value: [Region(0, rows - 1)]})
    assert [s.region for s in steps] == [Region(rows - 1, rows)]
    assert missing_steps(split, {value: [split.whole(value)]}) == []


def test_a_mailbox_gives_up_when_asked() -> None:
    box = Mailbox(lambda waited: None)
    box.fail('cancelled')
    with pytest.raises(InferenceAbandonedError, match='cancelled'):
        box.take(0)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), max_size=7), st.integers(4, 12))
@settings(max_examples=200)
def test_one_piece_completes_records(found: list[tuple[int, int]], rows: int) -> None:
    pieces = [Region(start, start + count) for start, count in found]
    need = Region(0, rows)
    missing = missing_piece(pieces, need)
    chain = tiling([*pieces, missing], need)
    assert chain is not None
    joined = [[*pieces, missing][i] for i in chain]
    assert [row for region in joined for row in range(*region)] == list(range(rows))
    assert (tiling(pieces, need) is not None) == (not missing)


def test_held_records_are_not_computed_again() -> None:
    pieces = [Region(0, 3), Region(3, 5), Region(9, 12), Region(6, 7)]
    assert missing_piece(pieces, Region(0, 12)) == Region(5, 9)
    assert missing_piece(pieces[:2], Region(0, 5)) == Region(0, 0)
