# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The survey of architectures: its list, its processes, its table."""
from __future__ import annotations

import json
from pathlib import Path
import subprocess
import sys
from typing import Any

import pytest
from survey.architectures import Architecture, read_list
from survey.sources import build, SOURCES
from survey.table import markdown, summary
import torch

TOOLS = Path(__file__).resolve().parents[3] / 'tools'
SMALL = 'small | pytorchcv | erfnet.erfnet_cityscapes(in_size=(64, 64)) | 1x3x64x64'
WRONG = 'wrong | pytorchcv | squeezenet.no_such_network | 1x3x64x64'
ENDLESS = 'endless | pytorchcv | resnet.resnet152 | 1x3x1600x1600'


def survey(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, '-m', 'survey', *map(str, arguments)], cwd=TOOLS,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def list_file(tmp_path: Path) -> Path:
    pytest.importorskip('pytorchcv')
    path = tmp_path / 'list.txt'
    path.write_text(f'# a comment\n\n{SMALL}\n{WRONG}\n')
    return path


def test_list_is_long_enough_and_every_line_can_be_read() -> None:
    architectures = read_list()
    assert len(architectures) >= 120
    assert {a.source for a in architectures} == set(SOURCES)
    assert sum(a.in_tests for a in architectures) >= 15
    for architecture in architectures:
        assert architecture.call()[0]
        assert [x.shape for x in architecture.inputs(0)] == list(architecture.shapes)


def test_inputs_depend_on_the_seed_alone() -> None:
    architecture = Architecture('a', 'timm', 'b', ((1, 3, 20, 30), (1, 2, 6, 7, 8)))
    for a, b, other in zip(*(architecture.inputs(seed) for seed in (1, 1, 2))):
        assert torch.equal(a, b) and not torch.equal(a, other)


@pytest.mark.parametrize(('text', 'message'), [
    ('a | timm | b', 'columns'),
    ('a | timm | b | 1x3\na | timm | b | 1x3', 'more than once'),
    ('a | timm | b | three', 'shape'),
])
def test_malformed_lists_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / 'list.txt'
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_list(path)


def test_builders_take_literals_by_keyword_only() -> None:
    call = Architecture('a', 'monai', 'UNet(channels=(4, 8), act=None)', ()).call()
    assert call == ('UNet', {'channels': (4, 8), 'act': None})
    with pytest.raises(ValueError, match='keyword'):
        Architecture('a', 'monai', 'UNet(3)', ()).call()
    with pytest.raises(ValueError):
        Architecture('a', 'monai', 'UNet(a=exit())', ()).call()
    with pytest.raises(ValueError, match='no source'):
        build(Architecture('a', 'nowhere', 'b', ()))


def test_one_failure_leaves_the_others_alone(list_file: Path, tmp_path: Path) -> None:
    done = survey('--list', list_file, '--out', tmp_path)
    assert done.returncode == 0, done.stdout
    small, wrong = json.loads((tmp_path / 'zoo.json').read_text())['architectures']
    assert small['status'] == 'exact' and small['local_flops'] > 0.9
    assert wrong['status'] == 'failed' and 'no_such_network' in wrong['reason']
    table = (tmp_path / 'zoo.md').read_text()
    assert '1 of 2 captured' in table and '| small | pytorchcv | export |' in table


@pytest.mark.slow
def test_results_are_kept_and_lines_that_changed_run_again(
        list_file: Path, tmp_path: Path) -> None:
    survey('--list', list_file, '--out', tmp_path, '--only', 'sm*')
    kept = tmp_path / 'each' / 'small.json'
    record = json.loads(kept.read_text())
    kept.write_text(json.dumps({**record, 'status': 'exact', 'operators': -1}))
    arguments = ('--list', list_file, '--out', tmp_path, '--only', 'small', '--resume')
    survey(*arguments)
    assert json.loads(kept.read_text())['operators'] == -1
    list_file.write_text(SMALL.replace('64', '96'))
    survey(*arguments)
    assert json.loads(kept.read_text())['operators'] == record['operators']


@pytest.mark.slow
@pytest.mark.parametrize(('option', 'limit', 'reason'), [
    ('--timeout', '1', 'longer than 1 s'), ('--memory', '0.001', 'memory')])
def test_limits_end_one_network(
        list_file: Path, tmp_path: Path, option: str, limit: str, reason: str) -> None:
    list_file.write_text(ENDLESS)
    survey('--list', list_file, '--out', tmp_path, option, limit)
    [record] = json.loads((tmp_path / 'zoo.json').read_text())['architectures']
    assert record['status'] == 'failed' and reason in record['reason'].lower()


def captured(name: str, exact: bool, local: float, status: str) -> dict[str, Any]:
    return {
        'name': name, 'source': 'timm', 'status': status, 'method': 'export', 'exact': exact,
        'axis': 2, 'rows': 64, 'flops': 10**9, 'local_flops': local, 'local_bytes': local,
        'meet': 3, 'double_error': 1e-12, 'own_error': 1e-6, 'reacts': 0.1, 'seconds': {'a': 2.0}}


def test_summary_counts_what_is_exact_and_what_is_not() -> None:
    records = [
        captured('a', True, 1.0, 'exact'), captured('b', False, 0.5, 'NOT exact'),
        captured('c', True, 0.9, 'constant'),
        {**captured('e', False, 0.8, 'undecided'), 'undecided': True},
        {'name': 'd', 'source': 'timm', 'status': 'not captured', 'reason': 'a loop'}]
    total = summary(records)
    assert (total['captured_share'], total['exact_share']) == (0.8, pytest.approx(2 / 4))
    assert (total['not_exact'], total['undecided'], total['constant'], total['not_captured']) == (
        ['b'], ['e'], ['c'], ['d'])
    assert total['local_flops_mean'] == pytest.approx(0.8)
    table = markdown(records)
    assert '- d: a loop' in table and '| b | timm | export |' in table
