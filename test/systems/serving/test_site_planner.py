# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Plans of sites: what is placed, predicted, and said to bind; their files; a site by plan."""
from dataclasses import replace
import json
import time

import numpy as np
import pytest

from intradp_ros.systems.serving.local_site import LocalSite
from intradp_ros.systems.serving.placement_plan import (
    parse_placement,
    PlacementError,
    PlacementPlan,
    read_placement,
)
from intradp_ros.systems.serving.service import parse_services, Service
from intradp_ros.systems.serving.service_table import exact_table
from intradp_ros.systems.serving.site_planner import by_rows, forecast, OfferedSite, Sites
from intradp_ros.systems.serving.world import even_hops

FAST = tuple(0.01 * (0.5 + 0.5 * b) for b in range(1, 9))
LONG = tuple(4 * one for one in FAST)
MB = 1 << 20


def two_sites(asked, deadlines=(0.15, 0.6), nbytes=(10 * MB, 30 * MB), room=(100 * MB, 100 * MB),
              executors=1, hop=0.002):
    services = (Service('detector', 'm', deadline=deadlines[0], rate=10.0),
                Service('policy', 'm', deadline=deadlines[1]))
    tables = tuple(replace(exact_table(seconds), nbytes=size)
                   for seconds, size in zip((FAST, LONG), nbytes))
    return Sites(services, tuple(OfferedSite(name, executors, size, tables)
                                 for name, size in zip(('dock', 'hall'), room)),
                 np.array(asked, float), even_hops(2, hop), (0.0, 0.0))


def test_what_has_room_is_answered_and_nothing_binds():
    found = forecast(two_sites([[100, 0], [0, 20]]))
    assert found.report.share > 0.99 and found.binds == ''
    assert sorted(found.plan.sites) == ['dock', 'hall']
    assert {name for lanes in found.plan.sites.values() for names in lanes for name in names} == {
        'detector', 'policy'}


@pytest.mark.parametrize('case, binds', [
    ({'asked': [[400, 0], [400, 0]]}, 'compute'),
    ({'asked': [[0, 10], [0, 10]], 'room': (20 * MB, 20 * MB)}, 'memory'),
    ({'asked': [[130, 10], [130, 0]]}, 'sharing'),
    ({'asked': [[50, 10], [0, 0]], 'deadlines': (0.15, 0.03)}, 'deadline: no batch of policy'),
    ({'asked': [[300, 0], [0, 0]], 'hop': 0.2}, 'hops between sites'),
])
def test_what_binds_is_named(case, binds):
    found = forecast(two_sites(**case))
    assert found.binds.startswith(binds)
    assert found.report.share <= found.of_placement + 1e-9 <= found.of_all + 2e-9
    assert found.report.share < 0.99


def test_memory_is_kept():
    found = forecast(two_sites([[50, 10], [50, 10]], room=(35 * MB, 12 * MB),
                               deadlines=(0.5, 0.9)))
    assert found.plan.sites['hall'] == (('detector',),)
    assert found.plan.sites['dock'] == (('policy',),), 'though detectors alone gain more there'


def test_rows_run_in_the_next_size_that_there_is():
    table = by_rows((1, 2, 4), (0.1, 0.15, 0.2), (0.0, 0.01, 0.02), 7).at_speed(2.0)
    assert table.seconds == (0.05, 0.075, 0.1, 0.1) and table.nbytes == 7
    assert table.spread == (0.0, 0.005, 0.01, 0.01)


def test_nothing_asked_has_no_plan():
    with pytest.raises(ValueError, match='nothing is asked'):
        forecast(two_sites([[0, 0], [0, 0]]))


def test_a_written_plan_is_read(tmp_path):
    plan = PlacementPlan({'dock': (('a', 'b'), ()), 'hall': (('b',),)})
    plan.write(tmp_path / 'plan.json')
    assert read_placement(tmp_path / 'plan.json') == plan
    assert plan.lanes('dock', ['b', 'a']) == ((1, 0), ())
    with pytest.raises(PlacementError, match="no site 'yard'; it has dock, hall"):
        plan.lanes('yard', ['a', 'b'])
    with pytest.raises(PlacementError, match="places 'b' at hall"):
        plan.lanes('hall', ['a'])


@pytest.mark.parametrize('content, why', [
    ([], 'format'), ({'format': 'placement/2'}, 'format'),
    ({'format': 'placement/1', 'sites': []}, 'must map'),
    ({'format': 'placement/1', 'sites': {'a': 'b'}}, 'site a: write a list'),
    ({'format': 'placement/1', 'sites': {'a': ['b']}}, 'site a: an executor is a list'),
    ({'format': 'placement/1', 'sites': {'a': [['b', 'b']]}}, 'each once'),
    ({'format': 'placement/1', 'sites': {'a': [[1]]}}, 'site a'),
    ({'format': 'placement/1', 'sites': {'a': [[]] * 65}}, 'at most 64'),
])
def test_a_file_that_is_no_plan_is_refused(tmp_path, content, why):
    with pytest.raises(PlacementError, match=why):
        parse_placement(content)
    (tmp_path / 'p.json').write_text(json.dumps(content))
    with pytest.raises(PlacementError, match='p.json'):
        read_placement(tmp_path / 'p.json')


def test_files_that_cannot_be_read_name_themselves(tmp_path):
    (tmp_path / 'p.json').write_text('[' * 100_000)
    for name in ('p.json', 'none.json'):
        with pytest.raises(PlacementError, match=name):
            read_placement(tmp_path / name)


def test_a_site_runs_what_its_plan_says():
    services = parse_services("""
services:
  a: {model: emulated, deadline: 1 s, inputs: {x: uint8 4}, outputs: {y: float32 2},
      seconds: {1: 1 ms}}
  b: {model: emulated, deadline: 1 s, inputs: {x: uint8 4}, outputs: {y: float32 2},
      seconds: {1: 1 ms}}
""")
    site = LocalSite('dock', services, lanes=[(0,), (), (0, 1)], compiled=False)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            state = site.gateway.described()
            held = {name: [place['executor'] for place in row['batches']]
                    for name, row in state['services'].items()}
            if held == {'a': [0, 1], 'b': [1]}:
                break
            time.sleep(0.01)
        assert held == {'a': [0, 1], 'b': [1]}, 'an executor without services is none'
    finally:
        site.close()
    assert LocalSite('dock', services, lanes=[()], compiled=False).close() is None


def test_what_is_left_holds_spares_of_what_fewest_sites_have():
    found = forecast(two_sites([[10, 1], [0, 0]], deadlines=(0.5, 0.9), room=(100 * MB, 35 * MB)))
    assert [set(names) for names in found.plan.sites['dock']] == [{'detector', 'policy'}]
    assert len(found.plan.sites['hall'][0]) == 1, 'there is room for one of both'
