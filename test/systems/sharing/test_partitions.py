# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Any partition of a real network, run by both sides' programs, gives the unsplit result."""
from __future__ import annotations

from collections.abc import Callable
from functools import cache
import threading

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from small_models import Mobile, Residuals, seeded, UNet
import torch
from torch import nn

from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.program import compile_program
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.split.checks.calibrate import depends_on_input
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    'unet': UNet, 'mobile': Mobile, 'residuals': Residuals}
SIZES = {2: (48, 32), 3: (32, 48)}  # height and width, by split axis


@cache
def network(name: str, axis: int) -> tuple[SharedModel, torch.Tensor]:
    """Return a network in double precision, split along an axis, and an input."""
    height, width = SIZES[axis]
    model = seeded(NETWORKS[name], height, width).double()
    source = torch.randn(1, 3, height, width, dtype=torch.float64,
                         generator=torch.Generator().manual_seed(7))
    assert depends_on_input(model, (source,))
    return share_module(model, (source,), axis), source


def partitions(operators: int) -> st.SearchStrategy[Partition]:
    """Draw stages anywhere, with any share and number of bands."""
    share = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
    bands = st.integers(1, 5)

    def stages(stops: set[int]) -> st.SearchStrategy[Partition]:
        return st.tuples(*[st.builds(RowStage, st.just(stop), share, bands, bands)
                           for stop in sorted(stops | {operators})]).map(Partition)
    return st.sets(st.integers(1, operators), max_size=5).flatmap(stages)


def run_both(model: SharedModel, partition: Partition, source: torch.Tensor,
             ) -> dict[int, torch.Tensor]:
    """Run the programs of both sides, each in its thread; return what the robot delivers."""
    schedule = lower(model.split, partition)
    boxes = {side: Mailbox(lambda waited: 'stuck' if waited > 30 else None)
             for side in (ROBOT, SERVER)}

    def execution(side: str) -> Execution:
        program = compile_program(model.split, schedule, side, model.parameters,
                                  delivers=side == ROBOT)
        return Execution(program, Recorder(side), boxes[side], lambda index, tensor: boxes[
            schedule.transfers[index].target].deliver(index, tensor))

    robot, server = execution(ROBOT), execution(SERVER)
    other = threading.Thread(target=server.run, args=({},))
    other.start()
    try:
        return robot.run({model.split.graph.inputs[0]: source})
    finally:
        other.join()


@pytest.mark.parametrize('axis', SIZES)
@pytest.mark.parametrize('name', NETWORKS)
@given(data=st.data())
@settings(max_examples=20)
def test_any_partition_equals_the_unsplit_network(name: str, axis: int, data: st.DataObject,
                                                  ) -> None:
    """Shares, stages and bands as they come; errors relative to the spread of the output."""
    model, source = network(name, axis)
    partition = data.draw(partitions(len(model.split.operators)))
    got = run_both(model, partition, source)
    wanted = run_graph(model.split.graph, [source])
    for value, whole in zip(model.split.graph.output_values, wanted):
        spread = (whole.max() - whole.min()).item()
        assert (got[value] - whole).abs().max().item() <= 1e-9 * spread
