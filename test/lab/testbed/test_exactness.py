# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What ran on emulated devices is run again on real values; what is wrong is found."""
from __future__ import annotations

from pathlib import Path

import pytest
from sharing import hand_made_book
from small_models import seeded, UNet
import torch

from intradp_lab.report.statements import OURS
from intradp_lab.testbed.checking_channel import Arrived, arrived_path
from intradp_lab.testbed.exactness import (
    compare,
    Comparer,
    exactness,
    in_order,
    schedules_run,
    summary,
)
from intradp_lab.testbed.rescale_weights import LEAST_REACTION, reaction, rescale_weights
from intradp_lab.testbed.trial import Phase, Seen, Trial
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.serialise import save_graph
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.systems.sharing.partition.partition import local
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    OFFLOAD,
    SHARED,
)

PICTURE = torch.randn(1, 3, 48, 64, generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope='module')
def model() -> SharedModel:
    return share_module(seeded(UNet, 48, 64), (PICTURE,))


def seen(system: str, schedules: list[int], shared: list[bool], recovered: list[bool]) -> Seen:
    frames = [0.1] * len(schedules)
    return Seen(system, at=frames, latency=frames, schedule=schedules, shared=shared,
                recovered=recovered)


def test_a_trial_is_checked_from_its_files(model: SharedModel, tmp_path: Path) -> None:
    book = hand_made_book(model)
    book.save(tmp_path / 'book.json')
    save_graph(model.split.captured, tmp_path / 'model.graph')
    phases = tuple(Phase(name, str(tmp_path / 'book.json'), name, 1.0)
                   for name in (LOCAL, SHARED))
    trial = Trial(str(tmp_path / 'model.graph'), model.split.axis, {}, phases,
                  str(tmp_path / 'seen.json'))
    for side in ('robot', 'server'):
        Arrived(5, 700, 0).save(arrived_path(tmp_path / 'seen.json', side))
    halves = book.choose(100.0, SHARED)
    ran = [seen(LOCAL, [0] * 3, [False] * 3, [False] * 3),
           seen(SHARED, [halves, halves, 0, halves], [True, True, False, False],
                [False, False, False, True])]
    found = exactness(trial, ran)
    alone, shared = found['systems'][LOCAL], found['systems'][SHARED]
    assert (alone['frames'], alone['schedules'], alone['frames_checked']) == (3, 1, 3)
    assert (shared['frames'], shared['recovered'], shared['schedules'], shared['checked'],
            shared['frames_checked']) == (4, 1, 2, 2, 3)
    assert alone['exact'] and shared['exact'] and 0.0 < shared['difference'] < 1e-5
    assert found['arrived']['server'] == {'chunks': 5, 'nbytes': 700, 'wrong': 0}


def test_a_model_that_computes_something_else_is_found_out(model: SharedModel) -> None:
    comparer = Comparer(model)
    comparer.wanted = [tensor * 1.01 for tensor in comparer.wanted]
    book = hand_made_book(model)
    ran = schedules_run(seen(OFFLOAD, [book.choose(100.0, OFFLOAD)], [True], [False]), book,
                        len(model.split.operators))
    row = summary(seen(OFFLOAD, [0], [True], [False]), ran, compare(list(ran), comparer, 10.0))
    assert row.exact is False and row.difference is not None and row.difference > 1e-4


def test_the_schedule_that_ran_most_is_checked_whatever_the_budget(model: SharedModel) -> None:
    book = hand_made_book(model)
    halves, offloaded = (book.choose(100.0, name) for name in (SHARED, OFFLOAD))
    ran = schedules_run(seen(SHARED, [offloaded, halves, halves], [True] * 3, [False] * 3), book,
                        len(model.split.operators))
    asked = []
    clock = iter(range(100))
    found = compare(in_order({OURS: ran}), lambda p: asked.append(p), 0.0, lambda: next(clock))
    assert asked == list(found) == [book.entries[halves].partition]
    row = summary(seen(SHARED, [0] * 3, [True] * 3, [False] * 3), ran, found)
    assert (row.schedules, row.checked, row.frames_checked) == (2, 1, 2)


def test_what_was_not_checked_is_not_called_exact(model: SharedModel) -> None:
    ran = schedules_run(seen(LOCAL, [0], [False], [False]), hand_made_book(model), 3)
    row = summary(seen(LOCAL, [0], [False], [False]), ran, {})
    assert list(ran) == [local(3)] and row.exact is None and row.difference is None


def test_each_system_is_checked_before_any_is_checked_twice(model: SharedModel) -> None:
    book = hand_made_book(model)
    halves, offloaded = (book.choose(100.0, name) for name in (SHARED, OFFLOAD))
    several = schedules_run(seen(SHARED, [halves] * 9 + [0] * 8, [True] * 9 + [False] * 8,
                                 [False] * 17), book, len(model.split.operators))
    one = schedules_run(seen(OFFLOAD, [offloaded], [True], [False]), book,
                        len(model.split.operators))
    wanted = [book.entries[halves].partition, book.entries[offloaded].partition]
    assert in_order({OURS: several, OFFLOAD: one})[:2] == wanted
    assert in_order({OFFLOAD: several, OURS: one})[:2] == wanted[::-1]


class Dead(torch.nn.Module):
    """A network whose last layer lets nothing through but its bias."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(),
            torch.nn.ConvTranspose2d(4, 2, 2, stride=2), torch.nn.Flatten(2),
            torch.nn.Linear(4 * 48 * 64, 5))
        torch.nn.init.normal_(self.layers[-1].weight, std=1e-9)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return self.layers(picture)


def test_a_network_whose_output_is_constant_is_checked_with_other_weights() -> None:
    dead = share_module(Dead(), (PICTURE,))
    inputs, other = (PICTURE,), (-PICTURE,)

    def moves(graph: OperatorGraph) -> float:
        return reaction(run_graph(graph, inputs), run_graph(graph, other))

    assert moves(dead.split.captured) < 1e-5
    assert moves(rescale_weights(dead.split.captured, inputs)) > LEAST_REACTION
    comparer = Comparer(dead)
    assert comparer.adjusted and comparer.reaction > LEAST_REACTION
    halves = hand_made_book(dead).entries[-1].partition
    error = comparer(halves)
    assert error is not None and error.exact


def test_weights_that_are_alive_are_left_alone(model: SharedModel) -> None:
    comparer = Comparer(model)
    assert comparer.model is model and not comparer.adjusted


class Classes(torch.nn.Module):
    """A network that names the best of several classes with nearly equal scores."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layer = torch.nn.Conv2d(3, 6, 3, padding=1)
        with torch.no_grad():
            self.layer.weight.copy_(self.layer.weight[:1] + 1e-7 * self.layer.weight)
            self.layer.bias.zero_()

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return self.layer(picture).argmax(1).to(torch.uint8)


def test_classes_are_compared_in_double_precision() -> None:
    """In single precision, rounding would decide between them."""
    model = share_module(Classes(), (PICTURE,))
    comparer = Comparer(model)
    assert comparer.inputs[0].dtype == torch.float64 and comparer.reaction > LEAST_REACTION
    halves = hand_made_book(model).entries[-1].partition
    error = comparer(halves)
    assert error is not None and error.exact and error.dtype == torch.uint8
