# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tuned graphs give the plain graph's results, whole and shared; profiles carry their tuning."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from intradp_ros.profiling.cache import cached_profile
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.profiling.profile import Profile
from intradp_ros.profiling.rounds import bind_whole, run_timed
from intradp_ros.profiling.tune import choose_tuning
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.split.calls.tuning import Tuning
from intradp_ros.split.calls.variants import variants_of


class Net(nn.Module):
    """Convolutions, a pool and a linear layer, with branches."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, 2, 1)
        self.wide = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.last = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.enter(x))
        y = F.max_pool2d(y + F.silu(self.wide(y)), 3, 2, 1)
        return self.last(y.permute(0, 2, 3, 1))


def model_and_source() -> tuple[SharedModel, torch.Tensor]:
    torch.manual_seed(0)
    source = torch.randn(1, 3, 48, 32)
    return share_module(Net().eval(), (source,)), source


def all_variants(model: SharedModel) -> Tuning:
    """Return the tuning that takes the last variant of every operator that has some."""
    graph = model.split.graph
    return Tuning(True, {op.name: variants_of(graph, op)[-1]
                         for op in graph.operators if variants_of(graph, op)})


def whole(model: SharedModel, source: torch.Tensor) -> list[torch.Tensor]:
    bound = bind_whole(model.split)
    with torch.inference_mode():
        values, _ = run_timed(model.split, bound, [source])
    return list(values.values())


def test_a_tuned_graph_computes_the_same() -> None:
    model, source = model_and_source()
    tuning = all_variants(model)
    assert len(tuning.variants) == 4
    before = source.clone()
    [wanted], [got] = whole(model, source), whole(model.tuned(tuning), source)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(source, before)


def test_variants_that_an_operator_has_not_are_left_out() -> None:
    model, source = model_and_source()
    names = [op.name for op in model.split.graph.operators]
    [wanted] = whole(model, source)
    [got] = whole(model.tuned(Tuning(False, dict.fromkeys(names, 'fastest'))), source)
    assert torch.equal(got, wanted)


def test_another_axis_keeps_the_tuning() -> None:
    model, source = model_and_source()
    lean = model.tuned(all_variants(model)).with_axis(3)
    assert (lean.split.axis, lean.tuning) == (3, all_variants(model))
    torch.testing.assert_close(whole(lean, source)[0], whole(model, source)[0],
                               rtol=1e-5, atol=1e-5)


def test_what_is_chosen_is_there() -> None:
    model, source = model_and_source()
    with torch.inference_mode():
        chosen = choose_tuning(model.split, [source])
    by_name = {op.name: op for op in model.split.graph.operators}
    for name, variant in chosen.variants.items():
        assert variant in variants_of(model.split.graph, by_name[name])


def test_profiles_keep_their_tuning_and_refuse_other_formats(tmp_path: Path) -> None:
    model, source = model_and_source()
    calls: list[tuple[int, int]] = []
    profile = measure_profile(
        model.split, [source], budget=0.1, progress=lambda *call: calls.append(call))
    assert len(profile.timings) == len(model.split.operators)
    assert calls[-1][0] == calls[-1][1]
    assert calls == sorted(calls)
    data = json.loads(profile.to_json())
    data['tuning'] = {'channels_last': True, 'variants': {'conv2d': 'packed'}}
    read = Profile.from_json(json.dumps(data))
    assert read.tuning == Tuning(True, {'conv2d': 'packed'})
    assert Profile.from_json(read.to_json()) == read
    for other in (1, 99, None):
        with pytest.raises(ValueError, match='format'):
            Profile.from_json(json.dumps({**data, 'format': other}))


def test_old_profiles_on_disk_are_measured_anew(tmp_path: Path) -> None:
    model, source = model_and_source()
    fresh = measure_profile(model.split, [source], budget=0.05)
    assert cached_profile(model.digest, 2, lambda: fresh, tmp_path) == fresh
    [path] = tmp_path.rglob('*.json')
    old = json.loads(path.read_text())
    del old['format']
    path.write_text(json.dumps(old))
    again = measure_profile(model.split, [source], budget=0.05)
    assert cached_profile(model.digest, 2, lambda: again, tmp_path) == again


class Crops(nn.Module):
    """Reads some rows of what it has, as networks do that crop what they skip."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.enter(x)
        return torch.cat([y[:, :, 5:], F.relu(y[:, :, :-5])], 1), y[:, :, 7]


def test_kernels_of_a_whole_graph_get_the_rows_that_they_are_made_for() -> None:
    torch.manual_seed(0)
    network, source = Crops().eval(), torch.randn(1, 3, 20, 12)
    model = share_module(network, (source,), 2)
    with torch.inference_mode():
        for got, wanted in zip(whole(model, source), network(source), strict=True):
            torch.testing.assert_close(got, wanted)
    profile = measure_profile(model.split, [source], budget=0.0)
    assert len(profile.timings) == len(model.split.operators)
