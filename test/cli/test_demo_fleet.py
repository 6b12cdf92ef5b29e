# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp demo-fleet`: plans that run as predicted, nothing lost, foreign files left alone."""
from __future__ import annotations

from dataclasses import replace
import json
import math
from pathlib import Path

import cv2
import pytest
import torch

from intradp_lab.cli.fleet_report import (
    FailedRun,
    fleet_report,
    Measured,
    PlanRun,
    said,
    well,
)
from intradp_lab.fleet.asking import SeenAnswer
from intradp_lab.fleet.fleet_figures import without_pipeline
from intradp_lab.fleet.fleet_scene import fleet_scene, FleetScene, TARGET, video_inputs
from intradp_lab.fleet.killed_device import KilledDevice
from intradp_lab.fleet.streamed_plan import (
    difference,
    play,
    real_answers,
    unsplit_results,
)
from intradp_lab.zoo.mobilenet_v2 import mobilenet_v2
from intradp_lab.zoo.wheel_files import MissingWheelError
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.report.view.standing_page import write_page
from intradp_ros.runtime.models.model import share_module
from intradp_ros.systems.fleet.planner import OURS, plan_fleet, stage_plan

FRAMES = 6


@pytest.fixture(scope='module')
def inputs() -> list[tuple[torch.Tensor, ...]]:
    try:
        mobilenet_v2()
        return video_inputs(FRAMES)
    except MissingWheelError as error:
        pytest.skip(str(error))


@pytest.fixture(scope='module')
def scene(inputs) -> FleetScene:
    prepare_process(1)
    model = share_module(mobilenet_v2(), inputs[0])
    return fleet_scene(model, measure_profile(model.split, inputs[0]), 20.0)


@pytest.fixture(scope='module')
def ran(scene: FleetScene, inputs) -> PlanRun:
    plan = plan_fleet(scene.costs).best
    stages = stage_plan(scene.costs, plan.placement)
    return PlanRun(plan, stages, play(scene, stages, inputs,
                                      unsplit_results(mobilenet_v2(), inputs), 1, 4),
                   scene.bound(plan.placement))


def report_of(scene: FleetScene, run: PlanRun) -> dict:
    return fleet_report(Measured(scene, {OURS: run}, {'kept': run}))


def test_our_plan_needs_several_devices_and_every_result_is_the_unsplit_models(scene, ran) -> None:
    assert len(ran.stages.devices) > 1 and ran.played.difference <= 1e-4
    report = report_of(scene, ran)
    assert well(report) and report['lost'] == 0
    assert report['systems'][OURS]['latency_ms'] >= 0.99 * report['bound_ms']
    assert ran.bound <= (1 + 1e-9) * ran.played.predicted.latency
    assert ran.played.measured.latency >= 0.99 * ran.bound


def test_a_lost_a_wrong_and_no_number_are_not_well(scene, ran) -> None:
    for played in (replace(ran.played, lost=1), replace(ran.played, difference=math.inf),
                   replace(ran.played, frames=0)):
        report = report_of(scene, replace(ran, played=played))
        assert not well(report) and 'Infinity' not in json.dumps(report)


def test_another_models_results_and_no_numbers_are_seen(scene, ran, inputs) -> None:
    wrong = unsplit_results(mobilenet_v2(), [*inputs[1:], inputs[0]])
    answers = real_answers(scene, ran.stages, inputs)
    numbers = [[torch.full_like(x, math.nan) for x in results] for results in wrong]
    for wanted in (wrong, numbers):
        assert math.isinf(difference(answers, wanted))


def test_late_and_lost_frames_miss_the_target(ran) -> None:
    played = replace(ran.played, stream=(0.1, 2 * TARGET.latency, math.inf, 0.2))
    assert played.missed_seconds == 2 / TARGET.rate


def test_half_the_air_takes_longer_and_its_bound_is_higher(scene, ran) -> None:
    crowded = scene.with_air(0.5)
    assert crowded.topology.medium('air').bytes_per_second == 0.5 * 20e6 / 8
    assert crowded.bound(ran.plan.placement) > ran.bound


def test_what_a_kill_costs_is_counted_from_the_last_frame_before_it() -> None:
    seen = [SeenAnswer(n, 0.25 * n, 0.1, not 4 <= n < 8, True, '', 1, 0.0) for n in range(1, 13)]
    assert without_pipeline(seen, 0.98, 3.0) == 1.25
    assert without_pipeline(seen[:6], 0.98, 3.0) == 2.25
    assert without_pipeline([], 1.0, 3.0) == 2.0


def test_a_kill_that_costs_a_frame_or_a_result_is_not_well(scene, ran) -> None:
    good = SeenAnswer(1, 0.0, 0.1, True, True, '', 1, 0.0)
    for answer, fine in ((good, True), (replace(good, answered=False), False),
                         (replace(good, difference=math.inf), False)):
        killed = KilledDevice('box', (good, answer), 1.0, 'DDS', 0.0)
        report = fleet_report(Measured(scene, {OURS: ran}, {'kept': ran}, killed))
        assert well(report) == fine and report['killed']['recovered_ms'] == 1000.0


def test_a_rival_that_fails_or_loses_frames_is_a_row(scene, ran, tmp_path: Path) -> None:
    """What is measured stays, and all is well as long as ours is."""
    failed = FailedRun(ran.plan, ran.stages, 'no answer within 600 s')
    lossy = replace(ran, played=replace(ran.played, lost=2))
    report = fleet_report(Measured(scene, {OURS: ran, 'equal split': failed, 'Asteroid': lossy},
                                   {'kept': ran}))
    assert well(report) and report['lost'] == 0 and report['frames'] == 2 * ran.played.frames
    row = report['systems']['equal split']
    assert row['failed'] == 'no answer within 600 s' and row['fps'] is None and row['stages']
    assert report['systems']['Asteroid']['lost'] == 2
    texts = said(report)['remarks']
    assert 'equal split: no answer within 600 s' in texts
    assert 'Asteroid: 2 frames without an answer' in texts
    for systems, burst, killed in (
            ({OURS: failed}, {'kept': ran}, None), ({OURS: ran}, {'kept': failed}, None),
            ({OURS: ran}, {'kept': ran}, 'the asker was killed: out of memory at 300 MB')):
        report = fleet_report(Measured(scene, systems, burst, killed))
        assert not well(report)
        (tmp_path / 'report.json').write_text(json.dumps(report | {'said': said(report)}))
        write_page(tmp_path)
    assert 'out of memory at 300 MB' in (tmp_path / 'page.html').read_text()


@pytest.mark.slow
def test_the_whole_demo(intradp, inputs, tmp_path: Path) -> None:
    out = tmp_path / 'out'
    result = intradp('demo-fleet', '--out', out, '--frames', '12')
    report = json.loads((out / 'report.json').read_text())
    assert result.status == 0
    assert {OURS, 'one device', 'equal split', 'by memory (exo)', 'contention-free'} <= \
        set(report['systems'])
    assert report['lost'] == 0 and report['max_rel_diff'] <= 1e-4
    for row in report['systems'].values():
        assert row['latency_ms'] >= 0.95 * row['bound_ms'] and row['fps'] > 0
    assert cv2.imread(str(out / 'gantt.png')).std() > 5
    killed = report['killed']
    assert killed['frames'] > 20 and killed['lost'] == 0 and killed['max_rel_diff'] <= 1e-4
    assert 0 < killed['recovered_ms'] < 30e3
    assert 'modelled' in (out / 'page.html').read_text()


def test_a_folder_with_other_files_is_left_alone(intradp, tmp_path: Path) -> None:
    (tmp_path / 'report.json').write_text('mine')
    result = intradp('demo-fleet', '--out', tmp_path)
    assert result.status == 2 and 'holds files that are not of demo-fleet' in result.err
    assert (tmp_path / 'report.json').read_text() == 'mine'
