# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the demo of serving reports of requests, and how live gateways choose in its baselines."""
from __future__ import annotations

import numpy as np
import pytest

from intradp_lab.cli.demo_serving import figures, recovered_ms
from intradp_lab.serving.choosers import chooser, NEAREST, OURS, ROUND_ROBIN
from intradp_lab.serving.robots_process import FATES, Requests
from intradp_lab.serving.scene import homes_of, make_models, make_requests, scene, SITES
from intradp_ros.systems.serving.site_kernels.dispatch import make_rows


def test_each_request_is_counted_once():
    none = np.zeros(6, int)
    requests = Requests(np.linspace(0, 10, 6), none, none, none, np.ones(6))
    ends = {'fate': np.array([0, 0, 1, 2, 3, len(FATES) - 1]), 'begun': requests.time,
            'wrong': np.array([0, 1, 0, 0, 0, 0]), 'heard': requests.time + 0.2,
            'doubled': np.array([0])}
    row = figures(requests, ends)
    assert sum(row[name] for name in FATES) == row['requests'] == 6
    assert row['lost'] == 1 and row['wrong'] == 1 and row['goodput'] == pytest.approx(0.2)
    assert row['p95_ms'] == pytest.approx(200)


def test_goodput_is_back_when_a_second_is_as_before():
    sent = np.arange(0, 20, 0.02)
    good = ~((sent >= 8.0) & (sent < 9.5))
    assert recovered_ms(sent, good, 8.0) == pytest.approx(1475, abs=51)
    short = ~((sent >= 8.1) & (sent < 8.4))
    assert recovered_ms(sent, short, 8.0) == pytest.approx(375, abs=51)
    assert recovered_ms(sent, sent < 8.0, 8.0) is None
    assert recovered_ms(sent, np.ones(len(sent), bool), 8.0) == 0


def test_baselines_choose_as_their_names_say():
    rows = make_rows(4, 1)
    rows.least[:, 0] = 0.01, 0.01, np.inf, 0.01
    visited = np.array([True, False, False, False])
    assert chooser(OURS) is None
    assert chooser(NEAREST)(rows, 0, 1.0, visited, 5, 0.0) == -1
    turn = chooser(ROUND_ROBIN)
    assert [turn(rows, 0, 1.0, visited, k, 0.0) for k in range(4)] == [1, 3, 1, 3]
    assert turn(rows, 0, 1.0, np.ones(4, bool), 5, 0.0) == -1


def test_most_robots_stand_at_the_first_site():
    homes = homes_of(100)
    assert {name: homes.count(name) for name in SITES} == {'dock': 60, 'hall': 25, 'yard': 15}
    requests = make_requests(50.0, 20.0, 3)
    assert 900 < len(requests.time) < 1100 and (np.diff(requests.time) >= 0).all()


@pytest.mark.slow
def test_sites_and_robots_meet_on_addresses_of_their_own(tmp_path):
    with scene(tmp_path, make_models(tmp_path, print), 300.0, 0.5) as found:
        assert all(len(state['links']) == len(SITES) - 1 for state in found.states().values())
