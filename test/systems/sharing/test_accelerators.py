# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Sessions whose sides compute on an accelerator."""
from __future__ import annotations

import imagined_accelerator
from imagined_accelerator import ACCELERATORS, NAME, needed
import pytest
from sharing import assert_equal, ENDLESS, hand_made_book, sharing_pair, SHORT, SOURCE
import torch

from intradp_ros.profiling.measure import measure_profile
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.memory_channel import MemoryChannel
from intradp_ros.schedule.schedule import SERVER
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.split.calls.variants import CHANNELS_LAST, variants_of
from intradp_ros.split.kernel_device import HOST
from intradp_ros.systems.sharing.book.program_cache import ProgramCache
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
)


@pytest.mark.parametrize('device', ACCELERATORS)
@pytest.mark.parametrize('robot_too', [False, True])
def test_inferences_are_exact(model: SharedModel, wanted: torch.Tensor, device: str,
                              robot_too: bool) -> None:
    """Results are in the host's memory, wherever they were computed."""
    there = model.on(open_device(device))
    assert there.digest == model.digest
    with sharing_pair(there if robot_too else model, server=there, patience=ENDLESS) as pair:
        for strategy in ('shared', 'offload', 'cut', LOCAL):
            outcome = pair.robot.infer((SOURCE,), strategy=strategy)
            assert outcome.stats.shared == (strategy != LOCAL)
            assert outcome.outputs.device.type == 'cpu'
            assert_equal(outcome.outputs, wanted)


@pytest.mark.parametrize('device', ACCELERATORS)
def test_a_robot_finishes_alone_on_its_accelerator(
        model: SharedModel, wanted: torch.Tensor, device: str) -> None:
    """From rows that it computed there, and from what came, which is in the host's memory."""
    there = model.on(open_device(device))
    with sharing_pair(there, server=model, patience=SHORT) as pair:
        assert pair.robot.infer((SOURCE,)).stats.shared
        assert isinstance(pair.robot_channel, MemoryChannel)
        pair.robot_channel.cut()
        outcome = pair.robot.infer((SOURCE,))
        assert outcome.stats.recovered
        assert_equal(outcome.outputs, wanted)


@needed
def test_kernels_run_ahead(model: SharedModel) -> None:
    """
    The host waits for the device before it sends, waits for rows, and at the end.

    Once more where the rows were not there yet: before it waits, and when they have come.
    """
    there = model.on(open_device(NAME))
    with sharing_pair(there, server=model, patience=ENDLESS) as pair:
        for strategy, waits in ((LOCAL, {1}), ('offload', {3, 4})):
            imagined_accelerator.waits.clear()
            pair.robot.infer((SOURCE,), strategy=strategy)
            assert len(imagined_accelerator.waits) in waits


@pytest.mark.parametrize('device', ACCELERATORS)
def test_a_profile_is_of_the_device(model: SharedModel, device: str) -> None:
    """It names it, has none of the processor's kernels, and tunes that device's model."""
    there = model.on(open_device(device))
    profile = measure_profile(there.split, (SOURCE,), budget=0.0)
    assert profile.device.startswith(there.split.device.hardware)
    assert profile.digest == model.digest
    found = {v for op in there.split.operators
             for v in variants_of(there.split.graph, op.operator)}
    assert found == {CHANNELS_LAST}  # and not pre-packed
    assert set(profile.tuning.variants.values()) <= found
    assert 0 < profile.whole_seconds <= sum(t.seconds[-1] for t in profile.timings) * 10
    again = Profile.from_json(profile.to_json())
    with sharing_pair(there.tuned(again.tuning), server=there, patience=ENDLESS) as pair:
        assert pair.robot.infer((SOURCE,)).stats.shared


@needed
def test_a_model_stays_where_it_is(model: SharedModel) -> None:
    """With another axis too; and there and back again."""
    there = model.on(open_device(NAME))
    assert there.on(open_device(NAME)) is there and model.on(HOST) is model
    other = there.with_axis(3)
    assert other.split.axis == 3 and other.split.device is there.split.device
    assert {t.device.type for t in other.parameters.values()} == {NAME}
    back = there.on(HOST)
    assert {t.device.type for t in back.parameters.values()} == {'cpu'}


@needed
def test_programs_have_run_before_they_are_needed(model: SharedModel) -> None:
    """Without sending anything; those that are compiled again have."""
    there = model.on(open_device(NAME))
    cache, book = ProgramCache(there, SERVER), hand_made_book(model)
    imagined_accelerator.kernels.clear()
    cache.prepare(book)
    first = len(imagined_accelerator.kernels)
    assert first > len(model.split.operators)
    cache.prepare(book)
    assert len(imagined_accelerator.kernels) == first
