# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Robot and server share only what both make the same schedules of."""
from __future__ import annotations

from dataclasses import replace

import pytest
from sharing import assert_equal, ENDLESS, FixedRate, hand_made_book, sharing_pair, SOURCE
import torch
from torch import nn, Tensor
import torch.nn.functional as F
from waiting import wait_for

from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.schedule.schedule import Schedule
from intradp_ros.split import split_graph
from intradp_ros.split.calls.tuning import Tuning
from intradp_ros.split.calls.variants import CHANNELS_LAST
from intradp_ros.split.regions.region import Region
from intradp_ros.systems.sharing.book.program_cache import fingerprint
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage
from intradp_ros.systems.sharing.session.pair import in_process_pair


class TwoHeads(nn.Module):
    """Has a reduction to take apart, and operators that run in another order than written."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(nn.Conv2d(n, 8, 3, padding=1) for n in (3, 8, 8))
        self.heads = nn.ModuleList(nn.Conv2d(8, 2, 1) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return two upsampled maps."""
        x = F.relu(self.convs[1](F.relu(self.convs[0](x))))
        first = F.interpolate(self.heads[0](x * x.mean((2, 3), keepdim=True)), scale_factor=2.0)
        return first, F.interpolate(self.heads[1](F.relu(self.convs[2](x))), scale_factor=2.0)


@pytest.fixture(scope='module')
def model() -> SharedModel:
    return share_module(TwoHeads().eval(), (SOURCE,))


def schedule_of(model: SharedModel) -> Schedule:
    count = len(model.split.operators)
    return lower(model.split, Partition((RowStage(count // 2, 0.5, 2, 3),
                                         RowStage(count, 0.4, 2, 2))))


@pytest.fixture(params=['fold_reductions', 'in_running_order'])
def other_release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SharedModel:
    """Return the same model as a release has it that cannot yet do one thing."""
    without = {'fold_reductions': lambda split: None, 'in_running_order': lambda graph: graph}
    with monkeypatch.context() as patched:
        patched.setattr(split_graph, request.param, without[request.param])
        return share_module(TwoHeads().eval(), (SOURCE,))


def test_it_is_the_same_wherever_it_is_made(model: SharedModel) -> None:
    """Kernels and layout are a side's own affair."""
    again = share_module(TwoHeads().eval(), (SOURCE,))
    names = (op.name for op in again.split.graph.operators)
    tuned = again.tuned(Tuning(True, dict.fromkeys(names, CHANNELS_LAST)))
    wanted = fingerprint(model.split, [schedule_of(model)])
    assert len(wanted) == 64
    assert fingerprint(tuned.split, [schedule_of(tuned)]) == wanted


def test_every_transfer_counts(model: SharedModel) -> None:
    schedule = schedule_of(model)
    seen = {fingerprint(model.split, []), fingerprint(model.split, [schedule]),
            fingerprint(model.split, [schedule, schedule])}
    changed = 0
    for k, transfer in enumerate(schedule.transfers):
        for other in (replace(transfer, region=Region(transfer.region.start,
                                                      transfer.region.stop + 1)),
                      replace(transfer, value=transfer.value + 1),
                      replace(transfer, source=transfer.target, target=transfer.source),
                      replace(transfer, encoding='zstd')):
            transfers = (*schedule.transfers[:k], other, *schedule.transfers[k + 1:])
            seen.add(fingerprint(model.split, [replace(schedule, transfers=transfers)]))
            changed += 1
    assert changed > 4 and len(seen) == 3 + changed


def test_another_release_makes_others(model: SharedModel, other_release: SharedModel) -> None:
    assert other_release.digest == model.digest
    assert fingerprint(other_release.split, []) != fingerprint(model.split, [])


def test_a_server_of_another_release_is_not_shared_with(
        model: SharedModel, other_release: SharedModel) -> None:
    """Each would wait for what the other never sends, or take rows for others."""
    said: list[str] = []
    with in_process_pair(model, FixedRate(100.0), server_model=other_release, patience=ENDLESS,
                         log=said.append) as pair:
        pair.robot.use_book(hand_made_book(model))
        wait_for(lambda: bool(pair.robot.connection.refusal))
        outcome = pair.robot.infer((SOURCE,))
        assert not outcome.stats.shared and not pair.robot.connection.wait_ready(0.0)
        with torch.no_grad():
            assert_equal(outcome.outputs, TwoHeads().eval()(SOURCE))
    assert sum('the server refuses: bad schedule table' in text for text in said) == 1


def test_a_server_of_the_same_release_is(model: SharedModel) -> None:
    with sharing_pair(model) as pair:
        assert pair.robot.infer((SOURCE,)).stats.shared
