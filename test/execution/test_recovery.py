# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whenever the server falls silent, the robot finishes the same inference exactly."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from synthetic import PRIME, random_split_graph, reference
import torch

from intradp_ros.execution.interpreter import Execution
from intradp_ros.execution.mailbox import InferenceAbandonedError, Mailbox
from intradp_ros.execution.program import compile_program
from intradp_ros.execution.recovery import finish_alone, held_pieces, missing_steps
from intradp_ros.execution.timeline import Recorder
from intradp_ros.operators.region import Region
from intradp_ros.planning.lowering import lower
from intradp_ros.planning.partition import Partition, Stage
from intradp_ros.planning.schedule import ROBOT, SERVER


@given(st.integers(0, 10**6), st.lists(st.floats(0, 1), min_size=1, max_size=3),
       st.floats(0, 1), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_finishes_from_whatever_arrived(seed: int, shares: list[float], part: float,
                                        bands: int) -> None:
    """Deliver the right rows of a part of the transfers, then fail."""
    split = random_split_graph(seed, 8)
    stops = sorted({max(1, round(8 * (i + 1) / len(shares))) for i in range(len(shares))} | {8})
    partition = Partition(tuple(Stage(stop, shares[min(i, len(shares) - 1)], 1, bands)
                                for i, stop in enumerate(stops)))
    schedule = lower(split, partition)
    source = torch.randint(0, PRIME, (split.rows[0], 1),
                           generator=torch.Generator().manual_seed(seed))
    wanted = reference(split, source)
    box = Mailbox(lambda waited: 'server silent')
    incoming = schedule.between(SERVER, ROBOT)
    for transfer in incoming[:int(len(incoming) * part)]:
        box.deliver(transfer.id, wanted[transfer.value][slice(*transfer.region)])
    program = compile_program(split, schedule, ROBOT, {}, delivers=True)
    execution = Execution(program, Recorder(ROBOT), box, lambda transfer, tensor: None)
    try:
        got = execution.run({0: source})
    except InferenceAbandonedError:
        held = [(0, split.whole(0), source), *held_pieces(execution)]
        got = finish_alone(split, held, {})
    for value in split.graph.output_values:
        assert torch.equal(got[value], wanted[value])


def test_held_rows_are_not_computed_again() -> None:
    split = random_split_graph(1, 1)
    value = split.graph.output_values[0]
    rows = split.rows[value]
    steps = missing_steps(split, {0: [split.whole(0)], value: [Region(0, rows - 1)]})
    assert [s.region for s in steps] == [Region(rows - 1, rows)]
    assert missing_steps(split, {value: [split.whole(value)]}) == []


def test_a_mailbox_gives_up_when_told() -> None:
    box = Mailbox(lambda waited: None)
    box.fail('cancelled')
    with pytest.raises(InferenceAbandonedError, match='cancelled'):
        box.take(0)
