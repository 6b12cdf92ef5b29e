# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The command line as a whole: help, version, errors, and stdout that holds nothing but JSON."""
from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import types

from dispositions import heeded
import pytest

from intradp_ros import __version__
from intradp_ros.cli import inspect_model
from intradp_ros.cli.main import _parser, COMMANDS, main

HERE = Path(__file__).parent
SHAPE = '1x3x24x16'


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, in the directory of the example models."""
    return subprocess.run([sys.executable, '-m', 'intradp_ros.cli.main', *arguments], cwd=HERE,
                          capture_output=True, text=True, timeout=120)


def test_version(capsys):
    with pytest.raises(SystemExit) as ending:
        main(['--version'])
    assert (ending.value.code, capsys.readouterr().out) == (0, f'intradp {__version__}\n')


def test_help_names_all_commands_and_does_not_wait_for_torch():
    program = ('import sys; from intradp_ros.cli.main import main\n'
               'try: main(["--help"])\n'
               'finally: assert "torch" not in sys.modules')
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f'\n    {name}' in done.stdout for name in COMMANDS)


def actions(parser):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from actions(inner)
        else:
            yield action


@pytest.mark.parametrize('command', COMMANDS)
def test_every_argument_says_what_it_is(command, capsys):
    assert all(action.help for action in actions(_parser([command])))


def test_defaults_are_shown_where_the_help_does_not_name_them(capsys):
    with pytest.raises(SystemExit):
        main(['bench', 'transport', '--help'])
    text = capsys.readouterr().out
    assert '(default udp large_data tcp)' in text and text.count('Mbit/s (default') == 1


@pytest.mark.parametrize('arguments, said', [
    (['sreve', 'plan'], 'did you mean serve?'), (['serve', 'plna'], 'did you mean plan?'),
    (['serve', 'up', '--fleat', 'x'], 'unrecognized argument: --fleat; did you mean --fleet?'),
    (['status', '--jsn'], 'did you mean --json?'), (['status', '--jsn=1'], 'mean --json?'),
    (['key', '--zzz', 'x'], 'unrecognized argument: --zzz\n')])
def test_misspelt_words_are_answered_with_those_that_are_known(arguments, said, capsys):
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    assert ending.value.code == 2 and said in capsys.readouterr().err


#: Commands that are about no model of the user's.
NO_MODEL = ('call', 'demo', 'demo-pipeline', 'doctor', 'key', 'node', 'serve', 'status', 'trace',
            'train', 'view')


@pytest.mark.parametrize('command', [name for name in COMMANDS if not name.startswith('demo')])
def test_help_of_a_command_explains_and_gives_examples(command, capsys):
    with pytest.raises(SystemExit) as ending:
        main([command, '--help'])
    text = capsys.readouterr().out
    assert ending.value.code == 0
    assert ('MODEL is one of' in text) == (command not in NO_MODEL)
    assert command == 'demo' or 'examples:' in text and f'intradp {command} ' in text


def test_a_model_of_the_working_directory_that_prints_does_not_spoil_the_json():
    done = process('inspect', 'example_models:talkative', '--input', SHAPE, '--json')
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)['model'] == 'example_models:talkative'
    assert 'a model may print' in done.stderr


def test_an_error_is_one_line_without_a_traceback():
    done = process('inspect', 'example_models:failing', '--input', SHAPE)
    assert (done.returncode, done.stdout) == (2, '')
    assert done.stderr == ("intradp inspect: cannot load 'example_models:failing' (wanted "
                           'package.module:factory): RuntimeError: the weights are not here\n')


MODEL = ['example_models:dense', '--input', SHAPE]


@pytest.mark.parametrize('arguments, says', [
    (['inspect', 'no.such.package:model', '--input', SHAPE],
     "No module named 'no': start where no lies, or install it (pip install no, say)"),
    (['inspect', 'example_models:nothing', '--input', SHAPE], "no attribute 'nothing'"),
    (['inspect', 'example_models:not_a_module', '--input', SHAPE], 'returned a int'),
    (['inspect', 'no_such.graph'], 'names no model: there is no such file'),
    (['inspect', '/dev/null'], 'names no model: it is no regular file'),
    (['inspect', '/dev'], 'names no model: it is a folder'),
    (['inspect', 'example_models.py'], 'not an archive'),
    (['inspect', 'example_models:dense'], 'needs an input'),
    (['inspect', 'example_models:dense', '--input', 'no.jpg'], 'neither a shape'),
    (['inspect', 'example_models:dense', '--input', 'example_models.py'], 'not an image'),
    (['inspect', 'example_models:dense', '--input', '1x4x24x16'], 'cannot be captured'),
    (['inspect', *MODEL, '--axis', '7'], 'split axis 7'),
    (['inspect', *MODEL, '--dtype', 'float23'], "'float23' is not a dtype"),
    (['inspect', *MODEL, '--threads', '0'], '--threads: must be 1 to 256'),
    (['inspect', *MODEL, '--device', 'gpu'], "--device: no device 'gpu' to compute on ("),
    (['verify', *MODEL, '--parts', '1'], '--parts: must be 2 to 65536'),
    (['profile', *MODEL, '-o', '/dev/full'], '/dev/full'),
    (['plan', *MODEL, '--robot-profile', 'no.json'], "'no.json': no such file"),
    (['plan', *MODEL, '--robot-slowdown', '2', '--grid', '9:3:4'], 'LOW must be above 0'),
    (['plan', *MODEL, '--robot-slowdown', '2', '--grid', '9'], 'write LOW:HIGH:POINTS'),
    (['inspect', *MODEL, '--size', '3'], 'not a height x width'),
    (['plan', *MODEL, '--robot-slowdown', '2', '--picture', 'book.xyz'], 'must end in .png'),
    (['profile', *MODEL, '-o', '/dev/null/profile.json'], 'is a file, not a folder'),
    (['model', 'show', 'no.graph'], "'no.graph': no such file"),
    (['plan', *MODEL, '--robot-profile', 'example_models.py'], 'not a file that'),
    (['plan', *MODEL, '--robot-slowdown', '0'], '--robot-slowdown: must be above 0'),
    (['plan', *MODEL, '--robot-slowdown', '2', '--timeline', 't.png'], '--timeline needs --show'),
    (['run', *MODEL, '--mbps', '-1'], '--mbps: must be 0.001 to'),
    (['run', *MODEL, '--delay', 'nan'], '--delay: must be 0 to 100000'),
    (['plan', *MODEL, '--robot-slowdown', '2', '--overhead', 'inf'],
     '--overhead: must be 0 to 100000'),
    (['run', *MODEL, '--frames', '0'], '--frames: must be 1 to 1000000'),
])
def test_what_cannot_be_done_is_said_in_one_line(intradp, monkeypatch, arguments, says):
    monkeypatch.chdir(HERE)
    result = intradp(*arguments)
    assert (result.status, result.out) == (2, '')
    [line] = result.err.strip().splitlines()
    assert re.match(f'intradp {arguments[0]}( [a-z]+)?: ', line) and says in line


@pytest.mark.parametrize('error', [
    MemoryError('Unable to allocate 7 TiB'),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes")])
def test_too_little_memory_is_said_in_one_line(intradp, monkeypatch, error):
    def full(*_: object) -> object:
        raise error
    monkeypatch.chdir(HERE)
    monkeypatch.setattr(inspect_model, 'load_subject', full)
    result = intradp('inspect', *MODEL)
    assert result.status == 2 and len(result.err.splitlines()) == 1
    assert result.err.startswith('intradp inspect: out of memory: take a smaller')


@pytest.mark.parametrize('arguments', [
    [], ['no-such-command'], ['inspect'], ['plan', *MODEL],
    ['run', *MODEL, '--mode', 'magic'], ['inspect', *MODEL, '--no-such-option'],
    ['plan', *MODEL, '--robot-slowdown'],
])
def test_wrong_arguments_end_with_the_usage_and_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    assert ending.value.code == 2
    assert 'usage: intradp' in capsys.readouterr().err


@pytest.mark.parametrize(('number', 'status', 'said'), [
    (signal.SIGINT, 130, 'interrupted'), (signal.SIGTERM, 143, 'ended by SIGTERM'),
    (signal.SIGHUP, 129, 'ended by SIGHUP')])
def test_a_signal_ends_a_command_in_order(tmp_path, number, status, said):
    (tmp_path / 'sleeper.py').write_text(
        'import time\n\n\ndef make():\n    print("begun", flush=True)\n    time.sleep(600)\n')
    with heeded(number):
        started = subprocess.Popen(
            [sys.executable, '-m', 'intradp_ros.cli.main', 'inspect', 'sleeper:make', '--input',
             SHAPE], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with started as command:
        while command.stdout.readline() != 'begun\n':
            assert command.poll() is None
        command.send_signal(number)
        _, errors = command.communicate(timeout=120)
    assert command.returncode == status
    assert errors.strip().splitlines()[-1] == f'intradp inspect: {said}'
    assert 'Traceback' not in errors


@pytest.mark.parametrize('caught', ['BaseException as error: raise ImportError from error',
                                    'BaseException: pass'])
def test_a_signal_that_an_import_takes_for_a_failure_ends_the_command(
        monkeypatch, tmp_path, capsys, caught):
    """NumPy's and SciPy's make a RecursionError of it, or go on."""
    (tmp_path / 'interrupted.py').write_text(
        f'import os, signal\ntry: os.kill(os.getpid(), signal.SIGINT)\nexcept {caught}\n')
    monkeypatch.syspath_prepend(tmp_path)
    module = types.ModuleType('intradp_ros.cli.key')
    exec('def add_arguments(parser): import interrupted\n\n\nrun = print', module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with heeded(signal.SIGINT):
        assert main(['key']) == 130
    assert capsys.readouterr() == ('', 'intradp: interrupted\n')
    sys.modules.pop('interrupted', None)


def test_an_interrupt_of_the_first_imports_is_one_line() -> None:
    program = ('import os, signal, sys\nclass Finder:\n'
               '    def find_spec(self, name, *_):\n'
               '        if name == "intradp_ros.cli.main": os.kill(os.getpid(), signal.SIGINT)\n'
               'sys.meta_path.insert(0, Finder())\n'
               'from intradp_ros.cli.__main__ import main\nsys.exit(main())')
    with heeded(signal.SIGINT):
        ended = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, 'intradp: interrupted\n')


def test_a_package_that_is_not_installed_is_named() -> None:
    program = ('import sys; sys.modules["rich"] = None; from intradp_ros.cli.main import main; '
               'sys.exit(main(["doctor"]))')
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert done.returncode == 2 and 'Traceback' not in done.stderr
    assert 'rich' in done.stderr and 'requirements.txt' in done.stderr


def test_a_signal_while_python_ends_leaves_no_traceback(tmp_path) -> None:
    (tmp_path / 'again.py').write_text(
        'import atexit, os, signal\n\n\ndef make():\n'
        '    atexit.register(os.kill, os.getpid(), signal.SIGINT)\n    raise KeyboardInterrupt\n')
    with heeded(signal.SIGINT):
        ended = subprocess.run(
            [sys.executable, '-m', 'intradp_ros.cli.main', 'inspect', 'again:make', '--input',
             SHAPE], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, 'intradp inspect: interrupted\n')


def test_no_garbage_is_collected_while_python_ends() -> None:
    """After the imports of a language model that took seconds, also at Ctrl-C."""
    program = ('import gc, sys\ngc.disable()\n'
               'class Garbage:\n    def __del__(self): print("collected")\n'
               'garbage = Garbage()\ngarbage.cycle = garbage\ndel garbage\n'
               'from intradp_ros.cli.main import main\nmain()')
    ended = subprocess.run([sys.executable, '-c', program, '--version'], capture_output=True,
                           text=True, check=True)
    assert ended.stdout == f'intradp {__version__}\n'


def test_a_working_directory_that_was_removed_is_named(intradp, tmp_path, monkeypatch) -> None:
    (tmp_path / 'gone').mkdir()
    monkeypatch.chdir(tmp_path / 'gone')
    (tmp_path / 'gone').rmdir()
    result = intradp('key', tmp_path / 'key')
    assert (result.status, result.out) == (2, '') and not (tmp_path / 'key').exists()
    assert 'the working directory is not there any more' in result.err


def test_output_that_nobody_reads_ends_a_command_quietly(tmp_path, monkeypatch, capsys) -> None:
    there, here = os.pipe()
    os.close(there)
    with os.fdopen(here, 'w') as output:
        monkeypatch.setattr(sys, 'stdout', output)
        assert main(['key', str(tmp_path / 'key')]) == 128 + signal.SIGPIPE
    with open('/dev/full', 'w') as output:
        monkeypatch.setattr(sys, 'stdout', output)
        assert main(['key', str(tmp_path / 'other')]) == 2
    assert capsys.readouterr().err == 'intradp: standard output: No space left on device\n'


def test_streams_that_take_nothing_are_named_or_do_without(tmp_path) -> None:
    """Results are wanted: a full disk ends a command at once. What is said on the way is not."""
    def status(words: str, *streams: str) -> tuple[int, str]:
        done = subprocess.run(['sh', '-c', ' '.join((f'exec "$0" -m intradp_ros.cli.main {words}',
                                                     *streams)), sys.executable],
                              cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stderr
    full = 2, 'intradp: standard output: No space left on device\n'
    assert status('key one', '>/dev/full') == full and not (tmp_path / 'one').exists()
    assert status('key no/folder', '2>/dev/full') == (2, '')
    assert status('key one', '1</dev/null')[1].startswith('intradp: standard output: Bad file')
    program = ('import sys; from intradp_ros.core.processes import open_standard_streams; '
               'open_standard_streams()\nfor _ in range(9):\n print("text" * 9999); '
               'print(1, file=sys.stderr)\nsys.exit(5)')
    for unbuffered in ('', '1'):
        assert subprocess.run(
            ['sh', '-c', f'exec {sys.executable} -c "$0" >/dev/full 2>&1', program],
            env={**os.environ, 'PYTHONUNBUFFERED': unbuffered}).returncode == 5


def test_closed_standard_streams_are_opened(tmp_path) -> None:
    """Else a file of the command would be its standard output."""
    program = ('import os, sys; from intradp_ros.core.processes import open_standard_streams; '
               'open_standard_streams(); print(chr(0x4e2d)); sys.exit(open(os.devnull).fileno())')
    ended = subprocess.run(['sh', '-c', f'exec {sys.executable} -c "$0" <&- >&- 2>&-', program],
                           env={**os.environ, 'PYTHONIOENCODING': 'latin-1'})
    assert ended.returncode == 3
