# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from statistics import fmean

import pytest
import torch
from torch import nn

from intradp_lab.emulation.trace import LinkTrace, read_trace
from intradp_lab.testbed.operator_costs import (
    GROUPED,
    KINDS,
    profile_from_costs,
    shipped_costs,
    work_of,
)
from intradp_lab.testbed.package_data import package_data
from intradp_lab.testbed.recorded import read_recording
from intradp_lab.testbed.traces import (
    mean_over,
    shipped_trace,
    spread,
    TRACES,
    typical_stretch,
    write_trace,
)
from intradp_lab.testbed.workloads import Camera, WORKLOADS
from intradp_ros.runtime.models.model import share_module


@pytest.mark.parametrize('workload', [w for w in WORKLOADS.values() if w.recording],
                         ids=lambda w: w.key)
def test_recordings_add_up_to_what_the_whole_took(workload) -> None:
    path = package_data('devices', f'{workload.recording}.json')
    recording = read_recording(path)
    for side, least in (('robot', 0.02), ('server', 0.001)):
        assert sum(op.seconds[side] for op in recording.operators) > least
    assert (recording.operators[0].shape[-1] == workload.shape[-1]
            or workload.key == 'scene-completion')


@pytest.mark.parametrize('name', TRACES)
def test_a_short_stretch_of_a_link_is_like_all_of_it(name: str) -> None:
    trace = shipped_trace(name)
    stretch = typical_stretch(trace, 10.0)
    assert stretch.duration == pytest.approx(10.0)
    assert spread(stretch)[0] == pytest.approx(spread(trace)[0], rel=0.1)
    assert spread(stretch)[1] > 0.5 * spread(trace)[1]
    assert set(stretch.mbps) <= set(trace.mbps)


def test_the_stretch_that_is_like_all_is_found_wherever_it_is() -> None:
    times = tuple(float(t) for t in range(40))
    trace = LinkTrace(times, (10.0,) * 18 + (10.0, 90.0) * 2 + (90.0,) * 18)
    found = typical_stretch(trace, 4.0)
    assert sorted(set(found.mbps)) == [10.0, 90.0]
    assert fmean(found.mbps) == pytest.approx(50.0)
    assert typical_stretch(trace, 100.0).mbps == trace.resampled().mbps


def test_stretches_go_through_files(tmp_path) -> None:
    trace = LinkTrace((0.0, 0.1, 0.2), (8.0, 0.5, 120.25))
    write_trace(trace, tmp_path / 'trace.csv')
    assert read_trace(tmp_path / 'trace.csv') == trace


def test_the_mean_over_a_trace_is_that_of_inferences() -> None:
    points = [(10.0, 100.0), (100.0, 10.0)]
    assert mean_over(LinkTrace((0.0,), (10.0,)), points) == pytest.approx(100.0)
    # Ten inferences in the first second, a hundred in the other one.
    assert mean_over(LinkTrace((0.0, 1.0), (10.0, 100.0)), points) == pytest.approx(2000 / 110)


def test_costs_of_operators_make_a_profile() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(),
                            nn.Conv2d(8, 8, 3, padding=1, groups=8)).eval()
    model = share_module(network, (torch.zeros(1, 3, 16, 16),))
    works = [work_of(model.split, op) for op in model.split.operators]
    assert works[-1].kind == GROUPED and works[0].flops == 2 * 27 * 8 * 256
    for side, costs in shipped_costs().items():
        assert set(costs.kinds) == set(KINDS)
        profile = profile_from_costs(model.split, model.digest, side, costs)
        assert profile.whole_seconds == pytest.approx(
            sum(costs.kinds[work.kind].seconds(work) for work in works))
        scaled = profile_from_costs(model.split, model.digest, side, costs, 0.5)
        assert sum(t.seconds[-1] for t in scaled.timings) == pytest.approx(0.5)


def test_a_camera_scales_the_bytes_of_a_picture() -> None:
    picture = torch.randint(0, 256, (1, 3, 4, 4), dtype=torch.uint8)
    mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
    torch.testing.assert_close(Camera(nn.Identity())(picture), (picture / 255 - mean) / deviation)
