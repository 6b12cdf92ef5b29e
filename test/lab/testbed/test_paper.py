# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The paper's evaluation: books, tables, outcomes, and a small run of all of it."""
from __future__ import annotations

from dataclasses import replace
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from small_models import unet
import torch

from intradp_lab.cli.bench import spelled_out
from intradp_lab.testbed import paper, preparation
from intradp_lab.testbed.evaluation_results import Case, FLOAT32, load_results, Results, SENSOR
from intradp_lab.testbed.intra_dp import intra_dp_book
from intradp_lab.testbed.operator_costs import profile_from_costs, shipped_costs
from intradp_lab.testbed.outcomes import energy_outcomes, outcomes
from intradp_lab.testbed.paper import Evaluation, finished, PAPER, PLANS, smoke
from intradp_lab.testbed.paper_tables import tables
from intradp_lab.testbed.preparation import prepared
from intradp_lab.testbed.systems import BOOK
from intradp_ros.cli.main import main
from intradp_ros.runtime.models.model import share_module
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import SIDES
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.make_book import PlanningProblem
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    SHARED,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


def case(inputs: str = FLOAT32, bound: float = 40.0, **means: float) -> Case:
    rows = {name.replace('_', '-'): {'mean_ms': ms, 'std_ms': 1.0, 'energy_j': 0.5}
            for name, ms in means.items()}
    return Case('vgg19-bn', 'VGG19_BN', False, inputs, '1x3x224x224', 'indoors', 8.0,
                {'robot': 'a', 'server': 'b'}, True, {'robot': 97.0, 'server': 10.0},
                {'mean_mbps': 90.0}, rows, ((10.0, 80.0), (100.0, 30.0)), bound, 'folder')


def test_what_is_won_is_reported_and_what_is_lost_is_reported_with_the_bound() -> None:
    published_case = case(FLOAT32, local=97.0, offload=100.0, dsccs=90.0, shared=80.0)
    ours = case(SENSOR, local=97.0, offload=60.0, dsccs=60.0, shared=50.0)
    found = {(o['target'], o['inputs']): o for o in outcomes([published_case, ours])}
    published = found['baselines with float32 inputs', SENSOR]
    assert published['other'] == 'dsccs' and published['gain'] == pytest.approx(4 / 9)
    assert published['met'] and 'bound' not in published['text']
    close = found['local and offload close, same inputs', SENSOR]
    assert close['met'] and close['wanted'] == 0.1
    slow = outcomes([case(SENSOR, bound=59.0, local=97.0, offload=60.0, shared=70.0)])
    assert {o['target']: o['met'] for o in slow} == {
        'never slower with the same inputs': False, 'local and offload close, same inputs': False}
    assert '17% more than offload' in slow[0]['text']
    assert 'cannot be reached' in slow[1]['text'] and '59.0 ms' in slow[1]['text']


def test_our_system_with_the_solver_of_the_paper_is_none_of_the_others() -> None:
    found = case(SENSOR, local=97.0, offload=60.0, shared_de=52.0, shared=50.0, shared_energy=58.0)
    assert {o['other'] for o in outcomes([found])} == {'offload'}
    [energy] = energy_outcomes([found])
    assert energy['other'] in ('local', 'offload')
    assert energy_outcomes([case(SENSOR, shared_de=52.0, shared=50.0, shared_energy=58.0)]) == ()


def test_far_apart_or_dense_networks_have_targets_of_their_own() -> None:
    far = case(SENSOR, local=300.0, offload=60.0, shared=60.5)
    assert [o['met'] for o in outcomes([far])] == [True]
    dense = outcomes([replace(far, dense=True)])
    assert [(o['wanted'], o['met']) for o in dense] == [(-0.02, True), (0.3, False)]
    assert 'times that' in dense[1]['text']


def test_energy_is_held_against_the_most_frugal_other_system() -> None:
    found = case(SENSOR, local=97.0, offload=60.0, shared=50.0, shared_energy=70.0)
    joules = {'local': 1.2, 'offload': 0.4, 'shared': 0.7, 'shared-energy': 0.38}
    rows = {name: {**row, 'energy_j': joules[name]} for name, row in found.systems.items()}
    [row] = energy_outcomes([replace(found, systems=rows), case(SENSOR, local=1.0, shared=1.0)])
    assert row['other'] == 'offload' and row['gain'] == pytest.approx(0.05) and row['met']
    rows['shared-energy']['energy_j'] = 0.44
    [row] = energy_outcomes([replace(found, systems=rows)])
    assert not row['met'] and '10% more than offload' in row['text']
    rows['offload']['mean_ms'] = 2600.0
    [row] = energy_outcomes([replace(found, systems=rows)])
    assert row['other'] == 'local' and row['met']
    assert 'offload takes 0.40 J, but 2600 ms, past the deadline of 1000 ms' in row['text']


def test_tables_have_what_the_paper_prints_and_what_was_logged_beside() -> None:
    rows = tables([case(FLOAT32, intra_dp=70.0, shared=60.0), case(SENSOR, intra_dp=50.0)])
    six = {(row['system'], row['inputs']): row for row in rows['6']}
    assert six['intra-dp', FLOAT32]['mean_ms'] == {'here': 70.0, 'printed': 47.6, 'logged': 63}
    assert six['intra-dp', SENSOR]['mean_ms'] == {'here': 50.0, 'printed': None, 'logged': None}
    assert six['shared', FLOAT32]['mean_ms']['printed'] is None
    assert rows['7'][0]['energy_j'] == {'here': 0.5, 'printed': 0.31, 'logged': None}
    assert rows['4'] == rows['5'] == []


def test_results_go_through_files(tmp_path: Path) -> None:
    found = [case(local=97.0, shared=80.0)]
    results = Results(tuple(found), tables(found), outcomes(found), {'torch': '2'},
                      ({'workload': 'vgg19-bn', 'met': True},))
    results.save(tmp_path / PAPER)
    again = load_results(tmp_path / PAPER)
    assert again.cases == results.cases and again.energy == results.energy
    assert list(again.outcomes) == list(results.outcomes)
    assert again.case('vgg19-bn', FLOAT32, 'indoors') == found[0]
    assert again.case('vgg19-bn', SENSOR, 'indoors') is None
    (tmp_path / PAPER).write_text('{"cases": [{}]}')
    with pytest.raises(ValueError, match='no results of'):
        load_results(tmp_path / PAPER)


def test_intra_dp_as_published_has_a_schedule_for_every_bandwidth() -> None:
    model = share_module(unet(), (torch.zeros(1, 3, 64, 96),))
    profiles = {side: profile_from_costs(model.split, model.digest, side, costs, seconds)
                for (side, costs), seconds in zip(shipped_costs().items(), (0.1, 0.005))}
    assert set(profiles) == set(SIDES)
    setting = PlanningProblem(CostModel.from_profiles(model.split, profiles), 1e-3)
    book = intra_dp_book(setting, model.digest, (5.0, 20.0, 80.0), budget=200)
    assert book.strategies == (LOCAL, SHARED) and book.grid == (5.0, 20.0, 80.0)
    for mbps in (3.0, 9.0, 11.0, 500.0):
        entry = book.entries[book.choose(mbps)]
        assert entry.strategy == SHARED and entry.low <= mbps <= entry.high
    assert book.entries[book.choose(2.0)].strategy == LOCAL
    assert all(e.predicted <= 0.1 + 1e-9 for e in book.entries)
    assert {bands for bands, _ in finest(book)} == {1}
    finer = intra_dp_book(setting, model.digest, (5.0, 20.0, 80.0), budget=200, bands=True)
    assert max(finest(finer))[0] > 1
    assert min(s for _, s in finest(finer)) <= min(s for _, s in finest(book))


def finest(book: ScheduleBook) -> list[tuple[int, float]]:
    """Return the most bands of a stage, and the seconds, of each shared schedule."""
    return [(max(max(s.robot_bands, s.server_bands) for s in e.partition.stages), e.predicted)
            for e in book.entries if e.strategy == SHARED]


def test_bench_with_a_model_is_short_for_bench_model() -> None:
    assert spelled_out(['net:make', '--link', '20']) == ['model', 'net:make', '--link', '20']
    assert spelled_out(['paper', '--smoke']) == ['paper', '--smoke']
    assert spelled_out([]) == [] and spelled_out(['--help']) == ['--help']


@pytest.mark.parametrize('words', [['--seconds', '0'], ['--check', '-1']])
def test_times_that_cannot_be_are_refused(
        words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['bench', 'paper', *words]) == 2
    assert words[0] in capsys.readouterr().err


def assert_of_old(evaluation: Evaluation, folder: Path, module: ModuleType,
                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Other code neither plans nor measures the same."""
    with monkeypatch.context() as patched:
        patched.setattr(module, 'code_digest', lambda *packages: 'another release')
        assert finished(evaluation, folder, *evaluation.cases[0]) is None
        kept = prepared(*evaluation.wanted[0], folder / PLANS, evaluation.planning)
        assert (kept is None) is (module is preparation)


@pytest.mark.slow
@needs_root
def test_the_smoke_run_makes_all_results_and_does_not_run_twice(
        tmp_path: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    words = ['bench', 'paper', '--smoke', '--seconds', '1', '--check', '0.1', '--json', '--out',
             str(tmp_path)]
    assert main(words) == 0
    results = load_results(tmp_path / PAPER)
    [found] = results.cases
    assert set(found.systems) == {'local', 'offload', 'intra-dp', 'shared', 'shared-energy'}
    assert all(row['frames'] >= 3 for row in found.systems.values())
    assert found.systems['offload']['bytes_up'] == 3 * 192 * 256
    assert 0 < found.bound_ms < found.systems['shared']['mean_ms']
    report: dict[str, Any] = json.loads((tmp_path / found.folder / 'report.json').read_text())
    exact = {name: row['exact'] for name, row in report['exactness']['systems'].items()}
    assert set(exact.values()) <= {True, None}  # None: too short a run to check any
    assert True in exact.values()
    kept = (tmp_path / found.folder / 'seen.json').stat().st_mtime_ns
    assert main(words) == 0
    assert (tmp_path / found.folder / 'seen.json').stat().st_mtime_ns == kept
    shown = json.loads(capsys.readouterr().out.split('\n}\n')[0] + '\n}')
    assert shown['cases'] == 1 and {row['workload'] for row in shown['outcomes']} == {'smoke'}
    same: Evaluation = replace(smoke(1.0), check=0.1)
    assert finished(same, tmp_path, *same.cases[0]) == found
    other = replace(same, seconds=1.5)
    assert finished(other, tmp_path, *other.cases[0]) is None
    assert_of_old(same, tmp_path, paper, monkeypatch)
    assert prepared(*same.wanted[0], tmp_path / PLANS, same.planning) is not None
    assert_of_old(same, tmp_path, preparation, monkeypatch)
    assert prepared(*same.wanted[0], tmp_path / PLANS, same.planning) is not None
    book = tmp_path / PLANS / 'smoke-sensor' / BOOK
    book.write_text(book.read_text() + '\n')
    assert finished(same, tmp_path, *same.cases[0]) is None
