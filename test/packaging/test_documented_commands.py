# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Commands in documents, and in the examples of ``--help``, are such as the tools take.

They are parsed, not run: `test_tutorials.py` runs those of the tutorials that any
machine can.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import cache, partial
import importlib
from pathlib import Path
import re
import shlex
from typing import Any

from list_figures import commands_of
from make_targets import TARGETS
import pytest

from intradp_ros.cli import main

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *sorted((ROOT / 'doc').rglob('*.md'))]
#: Words before a command that change where or how it runs.
BEFORE = re.compile(r'^(?:(?:[A-Z_]+=\S+|nice|sudo)\s+|\S*\.venv/bin/)*')
OURS = re.compile(r'(?:(?:ros2 )?intradp|make|python3? \S+\.py|'
                  r'ros2 (?:launch|run) intradp_ros)(?: |$)')


def commands(text: str) -> Iterator[str]:
    """Yield the commands of a text, one a line, that are ours and not abbreviated."""
    text = re.sub(r"<<'END'\n.*?^END$", '', text, flags=re.DOTALL | re.MULTILINE)
    for line in text.replace('\\\n', ' ').splitlines():
        for command in re.split(r'&&|\|\|', line):
            command = BEFORE.sub('', re.sub(r' &$| >\s*\S+', '', command.strip()))
            if OURS.match(command) and ' ... ' not in command:
                yield command


def documented(document: Path) -> Iterator[str]:
    """Yield the commands of a document: of blocks of code, and those that regenerate figures."""
    text = document.read_text().replace('\\\n', ' ')
    for block in re.findall(r'^```(?:sh)?\n(.*?)^```', text, re.DOTALL | re.MULTILINE):
        yield from commands(block)
    yield from commands('\n'.join(re.findall(r'^    (\S.*)$', text, re.MULTILINE)))
    yield from commands('\n'.join(commands_of(text)))


def helped() -> Iterator[str]:
    """Yield the examples of the help of all commands."""
    for package in ('intradp_ros', 'intradp_lab'):
        for path in sorted((ROOT / package / 'cli').glob('*.py')):
            module = importlib.import_module(f'{package}.cli.{path.stem}')
            yield from commands(getattr(module, 'EPILOG', ''))


def wrong(command: str) -> str:
    """Return what is wrong with a command, '' if nothing is."""
    words = shlex.split(command, comments=True)
    if words[0] == 'make':
        return '' if all(w in TARGETS for w in words[1:] if '=' not in w) else 'no such target'
    if words[:2] in (['ros2', 'launch'], ['ros2', 'run']):
        return wrong_start(*words[1:2], *words[3:])
    if words[0].startswith('python'):
        return wrong_script(ROOT / words[1], words[2:])
    given = words[words.index('intradp') + 1:]
    try:
        given = main._spelled_out(given)
        parser_of(frozenset(given).intersection(main.COMMANDS)).parse_args(given)
    except SystemExit as end:
        return '' if end.code == 0 else 'the command line takes it not'
    except main._ArgumentError as error:
        return str(error)
    return ''


@cache
def parser_of(commands: frozenset[str]) -> argparse.ArgumentParser:
    """Return the parser for commands, which takes names of files that are not here."""
    parser = main._parser([*commands])
    take_absent_files(parser)
    return parser


def take_absent_files(parser: argparse.ArgumentParser) -> None:
    """Let a parser, and those of its subcommands, take names of files that are not here."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                take_absent_files(each)
        elif callable(action.type):
            action.type = partial(_absent_or_read, action.type)


def _absent_or_read(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except argparse.ArgumentTypeError as error:
        if re.search(r'\.[a-z]\w+$', text) and not Path(text).exists():
            return Path(text)
        raise error


def wrong_start(verb: str, name: str, *rest: str) -> str:
    """Return what is wrong with a launch or a run of a node."""
    if verb == 'run':
        return '' if [*ROOT.glob(f'intradp_ros/nodes/*/{name}.py')] else 'no such node'
    file = ROOT / 'launch' / name
    if not file.exists():
        return 'no such launch file'
    [launching] = ROOT.glob('intradp_ros/nodes/*/launching.py')
    known = file.read_text() + launching.read_text()
    return ''.join(f'no argument {w} ' for w in rest
                   if ':=' in w and f"'{w.partition(':=')[0]}'" not in known)


def wrong_script(script: Path, words: list[str]) -> str:
    """Return what is wrong with a call of a script."""
    if not script.exists():
        return 'no such script'
    return ''.join(f'no option {w} ' for w in words
                   if w.startswith('--') and f"'{w}'" not in script.read_text())


@pytest.fixture(autouse=True)
def _files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have the files that are read while a command line is parsed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'wifi.csv').write_text('t_seconds,Mbps\n0,20\n1,30\n')


@pytest.mark.parametrize('document', DOCUMENTS, ids=lambda path: path.name)
def test_commands_of_documents_can_be_given(document: Path) -> None:
    assert [(c, said) for c in documented(document) if (said := wrong(c))] == []


def test_examples_of_the_help_can_be_given() -> None:
    examples = list(helped())
    assert len(examples) > 20
    assert [(c, said) for c in examples if (said := wrong(c))] == []


def test_wrong_commands_are_found(tmp_path: Path) -> None:
    page = tmp_path / 'page.md'
    page.write_text("""
```
make demo && make nothing      # a comment
.venv/bin/intradp plan a:b --input 1x3x8x8 \\
    --no-such-option
nice python bench/heights.py --json a --nonsense
python bench/nothing.py
ros2 launch intradp_ros robot.launch.py params_file:=a nonsense:=b
ros2 run intradp_ros no_node
```

    intradp nothing

Or so. <!-- by: make demo; make nought; intradp bench transport --nonsense -->
""")
    found = [c.split('#')[0].strip() for c in documented(page) if wrong(c)]
    assert [re.sub(r'\s+', ' ', command) for command in found] == [
        'make nothing', 'intradp plan a:b --input 1x3x8x8 --no-such-option',
        'python bench/heights.py --json a --nonsense', 'python bench/nothing.py',
        'ros2 launch intradp_ros robot.launch.py params_file:=a nonsense:=b',
        'ros2 run intradp_ros no_node', 'intradp nothing', 'make nought',
        'intradp bench transport --nonsense']
