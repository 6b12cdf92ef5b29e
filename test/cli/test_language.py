# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp language` on a small model, and `intradp demo-language` as a whole."""
from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from dispositions import files_of_at_most
from language_models import plan_of, tiny_model
import pytest

from intradp_lab.cli.demo_language import LOSSLESS
from intradp_lab.emulation.network import available
from intradp_ros.cli.language_run import add_arguments, local_language
from intradp_ros.cli.main import main
from intradp_ros.cli.output import output
from intradp_ros.systems.language.segment_plan import parse_plan


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp('model')
    os.environ['XDG_CACHE_HOME'] = str(path / 'cache')
    _, _, model = tiny_model(path / 'blobs', hidden_size=128, intermediate_size=320, head_dim=32)
    model.save_pretrained(path / 'saved')
    yield str(path / 'saved')
    del os.environ['XDG_CACHE_HOME']


def test_a_plan_says_who_holds_what_and_what_physics_allows(folder, capsys, tmp_path):
    assert main(['language', 'plan', folder, '--devices', '2', '--memory', '2', '--tokens', '64',
                 '--json', '-o', str(tmp_path / 'plan.json'),
                 '--timeline', str(tmp_path / 'p.png')]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found['ms_per_token'] >= found['limit_ms'] > 0 and found['binds']
    assert sum(row['blocks'] for row in found['devices'].values()) == 8
    for row in found['devices'].values():
        assert row['memory']['total'] <= row['memory']['allowed'] == 2e6
    assert json.loads((tmp_path / 'plan.json').read_text()) == found['plan']
    (tmp_path / 'p.png').rename(tmp_path / 'large.png')
    with files_of_at_most(9000):
        assert main(['language', 'plan', folder, '-o', str(tmp_path / 'new.json'),
                     '--timeline', str(tmp_path / 'p.png')]) == 2
    assert 'p.png: File too large' in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {'plan.json', 'large.png'}


@pytest.mark.parametrize('words, reason', [
    (['plan', '{}', '--memory', '0.01'], 'MB short'),
    (['plan', '{}', '--source', 'nobody'], 'no such device'),
    (['plan', '{}', '--devices', '9'], '--devices: must be 1 to 8'),
    (['plan', '/nowhere'], 'does not exist'),
    (['plan', '{}', '--tokens', '1'], '--tokens: must be 16 to'),
    (['plan', '{}', '--fleet', '/nowhere.yaml'], 'nowhere'),
    (['run', '/no/model', 'x', '--fleet', '/nowhere.yaml'], 'nowhere'),  # before it is read
    (['run', '/no/model', 'x', '--schema', '{{"type": "junk"}}'], 'Invalid type: junk'),
    (['run', '{}', 'hello'], 'no tokenizer')])
def test_what_cannot_be_is_said_with_the_reason(folder, capsys, words, reason):
    assert main(['language', *(word.format(folder) for word in words)]) == 2
    assert reason in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_names_what_names_another(folder, capsys, monkeypatch):
    monkeypatch.setenv('INTRADP_CACHE', f'{folder}/config.json/cache')
    assert main(['language', 'run', folder, 'hello']) == 2
    assert 'Not a directory (INTRADP_CACHE names another folder)' in capsys.readouterr().err


def test_a_plan_of_a_file_is_what_runs(folder, capsys, tmp_path):
    file = tmp_path / 'plan.json'
    two = (folder, '--devices', '2', '--tokens', '64')
    assert main(['language', 'plan', *two, '--memory', '2', '-o', str(file)]) == 0
    plan = parse_plan(json.loads(file.read_text()))
    assert len(plan.slots) == 2  # with enough memory, one device would have all
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args([folder, 'x', *two[1:], '--plan', str(file)])
    with output(False) as out, local_language(args, out) as (local, _):
        running = plan_of(local)
        assert running.slots == plan.slots and running.steps == plan.steps
    for words, reason in ((('--devices', '1'), 'it needs device2'),
                          (('--source', 'device2'), 'requests come to device1'),
                          (('--memory', '0.05'), 'MB, and has')):
        assert main(['language', 'run', folder, 'x', *two[1:], '--plan', str(file), *words]) == 2
        assert reason in capsys.readouterr().err
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, 'model': 'of another'}))
    assert main(['language', 'run', folder, 'x', *two[1:], '--plan', str(file)]) == 2
    assert 'another model' in capsys.readouterr().err


@pytest.mark.slow
def test_the_demo_answers_with_the_tokens_of_one_process(tmp_path: Path):
    if why := available():
        pytest.skip(why)
    assert main(['demo-language', '--tokens', '16', '--out', str(tmp_path / 'out')]) == 0
    report = json.loads((tmp_path / 'out' / 'report.json').read_text())
    assert report['identical'] and report['max_logit_diff'] < LOSSLESS
    assert report['killed']['lost'] == 0 and report['killed']['identical']
    systems = report['systems']
    assert systems['language']['ms_per_token'] < systems['plain pipeline']['ms_per_token']
    for row in systems.values():
        assert all(peak < row['limit_mb'][name] for name, peak in row['peak_mb'].items())
    assert (tmp_path / 'out' / 'page.html').exists()
