# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Every argument of every command is looked at before work begins.

All options of all commands are found in the parsers: one that is in no table below fails the
test, so that a new option must say which values it refuses.
"""
from __future__ import annotations

import argparse
from collections.abc import Iterator
import importlib
import json
from pathlib import Path
import subprocess
from types import ModuleType
from typing import Any

import pytest

from intradp_ros.cli.main import _parser, COMMANDS, main
from intradp_ros.cli.output_paths import result_file, result_folder, result_picture

CONFIG = Path(__file__).parents[2] / 'config'
JUNK = '{junk}'  # a file with other things in it
ENDLESS = '/dev/zero'
FLEET = str(CONFIG / 'fleet.yaml')
MODEL = ('example_models:dense', '--input', '1x3x24x16')

#: Words with which each command would begin to work.
WORDS: dict[str, tuple[str, ...]] = {
    'model add': ('timm:resnet18',), 'model show': ('{archive}',), 'inspect': MODEL,
    'verify': MODEL, 'profile': MODEL, 'plan': (*MODEL, '--robot-slowdown', '2', '--show', '9'),
    'run': MODEL,
    'bench model': (*MODEL, '--link', '20', '--transport', 'in-process', '--robot-profile',
                    '{profile}', '--server-profile', '{profile}'),
    'fleet ask': ('tell',), 'call': ('/node/load_weights',),
    'fleet plan': (*MODEL, '--fleet', FLEET),
    'fleet run': (*MODEL, '--fleet', FLEET, '--stages', 'robot1,box'), 'fleet show': (FLEET,),
    'language plan': ('smollm2',), 'language run': ('smollm2', 'hello'),
    'language serve': ('smollm2', '--port', '0'),
    'train plan': ('no_such_task.py:task',), 'train run': ('no_such_task.py:task',),
    'train send': ('task',), 'train show': ('{archive}',),
    'train export': ('{archive}', '-o', 'weights.pt'), 'trace': ('-o', 'trace.json')}

#: Values that an option refuses, of a command or wherever it stands.
BAD: dict[str, tuple[str, ...]] = {
    '--input': ('1x0', 'no.jpg'), '--size': ('3', '0x4'), '--dtype': ('float23',),
    'service': ('load_weights', '/node/none'), 'fields': ('{', '3'), '--axis': ('-1', '9', 'x'),
    '--threads': ('-1', 'two', '99999999'), '--device': ('gpu',),
    '--parts': ('1', 'x'), '--seeds': ('0',), '--top': ('-1',),
    '--fleet': ('no.yaml', '/', JUNK), 'fleet': ('no.yaml', '/', JUNK, ENDLESS),
    '--source': ('moon',),
    '--stages': ('robot1@@', 'moon', ''), '--plan': ('no.json', '/', JUNK, ENDLESS),
    '--profile': ('no.json', '/', JUNK), '--robot-profile': ('no.json', JUNK),
    '--server-profile': ('no.json', JUNK, ENDLESS), '--recording': ('no.json', JUNK),
    '--robot-slowdown': ('0', 'inf', 'x'), '--grid': ('9', '9:3:4', '0:1:2', '1:2:99999'),
    '--delay': ('-1', 'nan', 'x'), '--overhead': ('-1', 'inf'), '--down-ratio': ('0', 'nan'),
    '--deadline': ('-1', 'nan'), '--joule': ('-1', 'inf'), '--show': ('0', '-3', 'nan'),
    '--mbps': ('0', '1e-300', 'nan'), '--frames': ('0', '-1', 'x'),
    '--link': ('no.csv', '0', JUNK, ENDLESS),
    '--jitter': ('-1', 'nan'), '--loss': ('1', '-0.1'), '--outages': ('-1', 'x'),
    '--seconds': ('0', '-1', 'nan'), '--check': ('-1', 'nan'), '--mbit': ('0', '-2'),
    '--chunk-bytes': ('0',), '--repeat': ('0',), '--minutes': ('0', 'nan'),
    '--qoe': ('comfort=max',), '--key-file': ('no.key', JUNK, ENDLESS),
    '--energy-limit': ('box', 'moon=1'),
    '--layer-batch': ('0',), '--samples': ('0', '1000'), '--batches': ('0', '1000000'),
    '--small': ('-1', '2'), '--keep': ('0', '1001'), '--alone': ('0', '1000000'),
    '--inflight': ('-1',), '--tokens': ('1', '0'), '--devices': ('0', '9'), '--memory': ('-1',),
    '--head': ('moon',), '--max-tokens': ('0',), '--drafts': ('-1', '16'),
    '--temperature': ('-1', '11', 'nan'),
    '--top-p': ('-0.1', '1.1'), '--schema': ('{', '[]'), '--port': ('99999', '-1', 'http'),
    '--keys': ('no.keys', JUNK, ENDLESS), '--rate': ('0', '-1', 'nan'),
    '--images': ('here', 'here=0.4'),
    '--save-every': ('-1',), '--slow-down': ('0', '-1', 'nan'), '--timeout': ('0', 'nan'),
    'archive': ('no.graph', '/', JUNK, ENDLESS),
    'checkpoint': ('no.safetensors', '/', JUNK, ENDLESS),
    '--mean': ('1,2',), '--std': ('1,2',), '--best': ('0',), '--classes': ('-1',),
    '--weights': ('no.safetensors', '/', ENDLESS), '--picture': ('no.jpg', '/', ENDLESS),
    '--labels': ('no.txt', ENDLESS), '--score-threshold': ('-0.1', '1.1'),
    '--air': ('0', 'nan', '2000'),
    '--disk': ('1', 'nan'), '--fps': ('0', 'nan'), '--kill': ('0', '5', '1000'),
    '--namespace': ('robot', '/a b', '/1'), '--address': ('256.1.1.1',),
    '--seed': ('-1', '99999999999999999999'),
    'model add --input': ('1x0',), 'model': ('no.graph', ENDLESS),
    'language plan model': ('no.gguf', ENDLESS), 'language run model': ('no.gguf',),
    'language serve model': ('no.gguf',), 'key file': ('{archive}', '/no/such/folder/key'),
    'model add source': ('no.onnx', ENDLESS), 'recording': ('no/folder', '/'),
    '--api-keys': ('no.keys', JUNK, ENDLESS), '--key': ('no.key', '/'),
    '--gateway': ('box', 'box:99999'), 'trace robot': ('robot', '/a b')}

#: Options that take whatever is given, and names that only another machine knows.
ANY = {'--name', 'prompt', 'task', '--nodes', '--without', '--coordinator'}
#: Commands whose arguments are not looked at first yet.
UNSEEN = ('serve ', 'node', 'bench serving', 'demo-serving')
#: Work, each replaced by what fails the test.
WORK = {
    'intradp_ros.cli.subject': ('load_factory',),
    'intradp_ros.cli.model_archive': ('capture_ladder',),
    'intradp_ros.systems.language.measure': ('measure_blocks',),
    'intradp_ros.systems.training.plan.prepared': ('capture', 'measure_layers'),
    'intradp_lab.cli.bench_paper': ('prepare_all',), 'intradp_lab.cli.bench_fleet': ('measure',),
    'intradp_lab.cli.bench_soak': ('run_soak',), 'intradp_lab.cli.bench_transport': ('run_job',),
    'intradp_lab.cli.demo': ('emulated_pair',), 'intradp_lab.cli.demo_pipeline': ('_archives',),
    'intradp_lab.cli.demo_fleet': ('video_inputs',),
    'intradp_lab.cli.demo_language': ('run_scene',), 'intradp_lab.cli.demo_training': ('capture',)}


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every command, and verb of one, with its parser."""
    def below(path: str, parser: argparse.ArgumentParser,
              ) -> Iterator[tuple[str, argparse.ArgumentParser]]:
        verbs = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        if not verbs:
            yield path, parser
        for action in verbs:
            for name, verb in action.choices.items():
                yield from below(f'{path} {name}', verb)

    for name in COMMANDS:
        (action,) = (a for a in _parser([name])._actions
                     if isinstance(a, argparse._SubParsersAction))
        yield from below(name, action.choices[name])


def cases() -> Iterator[tuple[str, str, str]]:
    """Yield a command, an argument of it, and a value that it refuses."""
    for path, parser in commands():
        if path.startswith(UNSEEN):
            continue
        for action in parser._actions:
            if action.nargs == 0 or action.choices:  # flags; argparse looks at choices
                continue
            name = action.option_strings[-1] if action.option_strings else action.dest
            names = [f'{path} {name}', *action.option_strings, action.dest]
            if action.type in (result_file, result_folder, result_picture):
                end = '.png' if action.type is result_picture else ''
                values = (f'/dev/null/below{end}', f'/proc/no/folder{end}',
                          *(() if end else ('/dev/full',)))
            elif found := next((each for each in names if each in BAD), None):
                values = BAD[found]
            else:
                assert any(each in ANY for each in names), f'{path}: which {name} is refused?'
                continue
            yield from ((path, name, value) for value in values)


@pytest.fixture(scope='module')
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    import torch

    from intradp_ros.graph.capture import capture
    from intradp_ros.graph.serialise import save_graph
    from intradp_ros.profiling.measure import measure_profile
    from intradp_ros.runtime.models.model import share_graph
    folder = tmp_path_factory.mktemp('files')
    graph = capture(torch.nn.Conv2d(3, 2, 3), torch.zeros(1, 3, 8, 8))
    save_graph(graph, folder / 'm.graph')
    split = share_graph(graph).split
    (folder / 'profile.json').write_text(
        measure_profile(split, (torch.zeros(1, 3, 8, 8),)).to_json())
    (folder / 'junk').write_text('three years of work\n')
    return {'{junk}': str(folder / 'junk'), '{archive}': str(folder / 'm.graph'),
            '{profile}': str(folder / 'profile.json')}


@pytest.mark.parametrize(('path', 'name', 'value'), list(cases()))
def test_a_bad_argument_is_refused_before_work(
        path: str, name: str, value: str, files: dict[str, str], tmp_path: Path,
        example_models: ModuleType, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError('work began')

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('INTRADP_CACHE', str(tmp_path / 'cache'))
    for module, functions in WORK.items():
        for function in functions:
            monkeypatch.setattr(importlib.import_module(module), function, work)
    monkeypatch.setattr(subprocess, 'Popen', work)
    given = [files.get(word, word) for word in WORDS.get(path, ())]
    value = files.get(value, value)
    if not name.startswith('-'):
        given = [value, *given[1:]]
    elif name in given:
        given[given.index(name) + 1] = value
    else:
        if other := {'fleet run --plan': '--stages', 'plan --robot-profile': '--robot-slowdown'
                     }.get(f'{path} {name}'):
            place = given.index(other)
            del given[place:place + 2]
        given += [f'{name}={value}'] if value.startswith('-') and name[:2] == '--' \
            else [name, value]
    status = main([*path.split(), *given])
    said = capsys.readouterr()
    assert (status, said.out) == (2, ''), said.err
    assert len(said.err.strip().splitlines()) == 1 and 'Traceback' not in said.err


@pytest.mark.parametrize('words', [
    ('fleet', 'run', *MODEL, '--fleet', FLEET, '--plan', '{plan}'),
    ('train', 'run', 'no_such_task.py:task', '--resume', '-o', '{junk}'),
    ('bench', 'model', *MODEL, '--link', '20', '--transport', 'in-process')])
def test_what_does_not_belong_together_is_refused_before_work(
        words: tuple[str, ...], files: dict[str, str], tmp_path: Path, example_models: ModuleType,
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan of other devices, a checkpoint that is none, a profile that is not given."""
    plan = tmp_path / 'plan.json'
    plan.write_text(json.dumps({
        'digest': 'd', 'source': 'moon', 'samples': 1, 'stages': [
            {'operators': [0, 1], 'members': [{'device': 'moon', 'samples': 1}]}]}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.import_module('intradp_ros.cli.subject'), 'load_factory', None)
    assert main([{'{plan}': str(plan), **files}.get(word, word) for word in words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_every_number_has_a_least_and_a_most() -> None:
    """Numbers decide about loops, memory, threads and processes: none may be without a bound."""
    unbounded, seen = [], 0
    for path, parser in commands():
        for action in parser._actions:
            name = action.option_strings[-1] if action.option_strings else action.dest
            if action.type and any(isinstance(taken(action.type, text), (int, float))
                                   for text in ('1', '20', '0.5')):
                seen += 1
                unbounded += [f'{path} {name} {text}' for text in (
                    'nan', 'inf', '-inf', '1e300', '-1e300', '9' * 40, '-' + '9' * 40)
                    if taken(action.type, text) is not None]
    assert seen > 60 and unbounded == []


def taken(read: Any, text: str) -> Any:
    """Return what an argument's type makes of a text, None if it refuses it."""
    try:
        return read(text)
    except (argparse.ArgumentTypeError, ValueError, TypeError):
        return None


@pytest.mark.parametrize(('path', 'former', 'name'), [
    ('plan', '--plot', '--picture'), ('fleet plan', '--gantt', '--timeline'),
    ('language plan', '--picture', '--timeline'), ('language run', '--head', '--source'),
    ('train plan', '--picture', '--timeline')])
def test_options_that_were_renamed_are_still_taken(path: str, former: str, name: str) -> None:
    parser = dict(commands())[path]
    old, new = (next(a for a in parser._actions if each in a.option_strings)
                for each in (former, name))
    assert (old.dest, old.type) == (new.dest, new.type)
    words = parser.format_help()
    assert f'{name} ' in words and f'{former} ' not in words
    text = 'x.png' if new.type is result_picture else 'box'
    required = {'plan': ['--robot-slowdown', '2'], 'fleet plan': ['--fleet', FLEET]}.get(path, [])
    given = ['model', *required]
    assert getattr(parser.parse_args([*given, former, text]), new.dest) \
        == getattr(parser.parse_args([*given, name, text]), new.dest) is not None
    assert getattr(parser.parse_args(given), new.dest) is None
