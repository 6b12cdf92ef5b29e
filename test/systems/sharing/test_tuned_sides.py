# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Sides that run by other kernels and layouts than each other share inferences all the same."""
from __future__ import annotations

from contextlib import suppress
from functools import cache
import threading

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from small_models import Mobile, Residuals, seeded, UNet
import torch

from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.execution.recovery import finish_alone, held_pieces
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.transport.mailbox import InferenceAbandonedError, Mailbox
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.program import compile_program
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.split.calls.tuning import Tuning
from intradp_ros.split.calls.variants import variants_of
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage

NETWORKS = {'unet': UNet, 'mobile': Mobile, 'residuals': Residuals}
TOLERANCE = 1e-5  # of the output's spread


@cache
def models(name: str) -> tuple[SharedModel, SharedModel, torch.Tensor]:
    """Return a network as captured and with a variant for each operator that has one."""
    network = seeded(NETWORKS[name], 48, 32)
    source = torch.randn(1, 3, 48, 32, generator=torch.Generator().manual_seed(7))
    plain = share_module(network, (source,), 2)
    graph = plain.split.graph
    variants = {op.name: variants_of(graph, op)[-1]
                for op in graph.operators if variants_of(graph, op)}
    assert variants
    return plain, plain.tuned(Tuning(True, variants)), source


class Sides:
    """Both programs of a partition; what one sends, the other gets in row-major order."""

    def __init__(self, robot: SharedModel, server: SharedModel, partition: Partition,
                 lost: int | None = None) -> None:
        self.schedule = lower(robot.split, partition)
        self.lost = lost
        waits = {ROBOT: 'lost' if lost is not None else None, SERVER: None}
        self.boxes = {side: Mailbox(lambda waited, reason=reason: reason if waited > 0.05 else (
            'stuck' if waited > 30 else None)) for side, reason in waits.items()}
        self.robot, self.server = (self._execution(side, model)
                                   for side, model in ((ROBOT, robot), (SERVER, server)))

    def _execution(self, side: str, model: SharedModel) -> Execution:
        program = compile_program(model.split, self.schedule, side, model.parameters,
                                  delivers=side == ROBOT)
        return Execution(program, Recorder(side), self.boxes[side], self._send)

    def serve(self) -> None:
        """Run the server's program, until it ends or nobody wants it any more."""
        with suppress(InferenceAbandonedError):
            self.server.run({})

    def _send(self, index: int, tensor: torch.Tensor) -> None:
        target = self.schedule.transfers[index].target
        if target == SERVER or self.lost is None or index < self.lost:
            self.boxes[target].deliver(index, tensor.clone(memory_format=torch.contiguous_format))


def assert_close(model: SharedModel, got: dict[int, torch.Tensor], source: torch.Tensor) -> None:
    wanted = run_graph(model.split.captured, [source])
    for value, whole in zip(model.split.graph.output_values, wanted):
        assert got[value].is_contiguous()
        spread = (whole.max() - whole.min()).item()
        assert (got[value] - whole).abs().max().item() <= TOLERANCE * spread


stages = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 4)), min_size=1, max_size=4)


def partition_of(model: SharedModel, drawn: list[tuple[float, int]]) -> Partition:
    count = len(model.split.operators)
    return Partition(tuple(RowStage(count * (k + 1) // len(drawn), share, bands, bands)
                           for k, (share, bands) in enumerate(drawn)))


@pytest.mark.parametrize('lean', [ROBOT, SERVER, 'both'])
@pytest.mark.parametrize('name', NETWORKS)
@given(drawn=stages)
@settings(max_examples=5)
def test_each_side_has_kernels_of_its_own(name: str, lean: str, drawn: list[tuple[float, int]],
                                          ) -> None:
    plain, tuned, source = models(name)
    robot, server = (tuned if lean in (side, 'both') else plain for side in (ROBOT, SERVER))
    sides = Sides(robot, server, partition_of(plain, drawn))
    before = source.clone()
    other = threading.Thread(target=sides.serve)
    other.start()
    try:
        got = sides.robot.run({plain.split.graph.inputs[0]: source})
    finally:
        other.join()
    assert_close(plain, got, source)
    assert torch.equal(source, before), 'the inputs are not written to'


@pytest.mark.parametrize('name', NETWORKS)
@given(drawn=stages, arriving=st.floats(0, 1))
@settings(max_examples=5)
def test_recovers_although_values_were_overwritten(
        name: str, drawn: list[tuple[float, int]], arriving: float) -> None:
    """Nothing arrives after some transfer; what the robot holds must be what it seems."""
    plain, tuned, source = models(name)
    partition = partition_of(plain, drawn)
    count = len(lower(plain.split, partition).transfers)
    sides = Sides(tuned, plain, partition, lost=int(arriving * count))
    value = plain.split.graph.inputs[0]
    other = threading.Thread(target=sides.serve)
    other.start()
    try:
        got = sides.robot.run({value: source})
    except InferenceAbandonedError:
        held = [(value, tuned.split.whole(value), source), *held_pieces(sides.robot)]
        got = finish_alone(tuned.split, held, tuned.parameters)
    finally:
        sides.boxes[SERVER].fail('over')
        other.join()
    assert_close(plain, got, source)
