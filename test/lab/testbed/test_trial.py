# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from intradp_lab.testbed.figures import figures, prediction_errors
from intradp_lab.testbed.representative_timeline import Typical
from intradp_lab.testbed.trial import load_seen, Phase, save_seen, Seen, Trial
from intradp_ros.runtime.transport.timeline import Event

SEEN = Seen('shared', at=[0.0, 0.1, 0.3, 0.4], latency=[0.1, 0.2, 0.1, 0.4],
            predicted=[0.1, 0.1, 0.08, 0.1], rate=[20.0] * 4, schedule=[3, 3, 4, 3],
            shared=[True, True, True, False], recovered=[False, False, False, True],
            compute=[0.05] * 4, waiting=[0.05, 0.15, 0.05, 0.15], bytes_up=[100] * 4,
            bytes_down=[50] * 4, energy=[1.0, 2.0, 1.0, 4.0],
            transmission=[0.04, 0.1, None, 0.1], typical=1,
            timeline=[['robot', 'compute', 'conv', 0.0, 0.2]])


def test_figures_of_a_system() -> None:
    row = figures(SEEN)
    assert row['mean_ms'] == pytest.approx(200.0) and row['median_ms'] == pytest.approx(150.0)
    assert row['p95_ms'] == pytest.approx(400.0)
    assert row['waiting_share'] == pytest.approx(0.5)
    assert (row['shared'], row['recovered'], row['switches']) == (3, 1, 2)
    assert row['energy_j'] == pytest.approx(2.0)
    assert row['power_w'] == pytest.approx(10.0)


def test_transmission_is_of_the_inferences_that_both_sides_reported() -> None:
    row = figures(SEEN)
    assert row['transmission_ms'] == pytest.approx(80.0)
    assert row['transmission_share'] == pytest.approx(0.24 / 0.7)
    silent = figures(replace(SEEN, transmission=[None] * 4))
    assert silent['transmission_ms'] is None and silent['transmission_share'] is None


@pytest.mark.parametrize('latencies, number', [
    ([0.5], 0), ([3.0, 1.0, 2.0], 2), ([9.0] * 20 + [1.0] * 25, 44)])
def test_the_typical_inference_is_nearest_to_the_median(
        latencies: list[float], number: int) -> None:
    typical = Typical()
    for index, latency in enumerate(latencies):
        typical.add(latency, [Event('robot', 'compute', str(index), 0.0, latency)])
    found, events = typical.nearest()
    assert latencies[found] == latencies[number]
    assert events == [['robot', 'compute', str(found), 0.0, latencies[found]]]


def test_without_an_inference_none_is_typical() -> None:
    with pytest.raises(ValueError, match='no inference'):
        Typical().nearest()


def test_prediction_errors_leave_out_what_the_robot_had_to_finish() -> None:
    assert prediction_errors(SEEN) == pytest.approx([0.0, 0.5, 0.2])
    assert figures(SEEN)['error_median'] == pytest.approx(0.2)


def test_trials_and_what_was_seen_go_through_files(tmp_path: Path) -> None:
    trial = Trial('model.graph', 2, {'robot': 'r', 'server': 's'},
                  (Phase('local', 'book.json', 'local', 2.0),), 'seen.json')
    trial.save(tmp_path / 'trial.json')
    assert Trial.load(tmp_path / 'trial.json') == trial
    save_seen([SEEN], tmp_path / 'seen.json')
    assert load_seen(tmp_path / 'seen.json') == [SEEN]
