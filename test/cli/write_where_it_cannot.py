# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Runs commands that write where nothing can be: ``write_where_it_cannot.py FOLDER NAME...``.

FOLDER is a small disk.  Each command first writes to a good folder; then to the disk while it is
full, while it becomes full once the command has looked, and while it may only be read; and then to
the good one, with its caches on the full disk.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, ExitStack, redirect_stderr, redirect_stdout
from importlib import import_module
import io
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
from unittest.mock import patch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from intradp_lab.soak.small_disk import filled  # noqa: E402
from intradp_ros.cli import output_paths  # noqa: E402
from intradp_ros.cli.main import main  # noqa: E402
from intradp_ros.core import plain_file  # noqa: E402

#: Words of each command, of which those with a + name what is written.
COMMANDS: Mapping[str, str] = {
    'key': 'key +fleet.key',
    'fleet plan': 'fleet plan $graph.txt --fleet $fleet.yaml -o +plan.json --timeline +gantt.png '
                  '--loads +loads.svg',
    'fleet show': 'fleet show $fleet.yaml --picture +fleet.svg',
    'profile': 'profile small_models:dense --input 1x3x64x96 --dtype uint8 -o +profile.json',
    'model add': 'model add small_models:dense --input 1x3x64x96 --out +model.graph',
    'serve plan': 'serve plan --fleet $fleet.yaml --services $services.yaml --asked detector=20 '
                  '-o +placement.json',
}


def ran(words: list[str]) -> tuple[int, str]:
    """Return the status of a command, and what it said on standard error."""
    said, out = io.StringIO(), io.StringIO()
    with redirect_stderr(said), redirect_stdout(out):
        try:
            status = main(words)
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, said.getvalue()


def clear(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink() if path.is_file() else shutil.rmtree(path)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(
        folder.rglob('*')) if path.is_file()}


@contextmanager
def full(disk: Path) -> Iterator[None]:
    with filled(disk):
        yield


@contextmanager
def filling(disk: Path) -> Iterator[None]:
    """Fill the disk as soon as a command has seen that it can be written to."""
    with ExitStack() as until_end:
        look: Callable[[str], None] = plain_file.check_folder
        count = 0

        def looked(folder: str) -> None:
            nonlocal count
            look(folder)
            count += 1
            if count == last:
                until_end.enter_context(filled(disk))
        last = max(1, len([word for word in WORDS if word.startswith('+')]))
        with patch.object(output_paths, 'check_folder', looked):
            yield


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    subprocess.run(['mount', '-o', 'remount,ro', str(disk)], check=True)
    try:
        yield
    finally:
        subprocess.run(['mount', '-o', 'remount,rw', str(disk)], check=True)


WORDS: list[str] = []


def check(name: str, disk: Path, good: Path) -> None:
    """Run a command everywhere."""
    WORDS[:] = COMMANDS[name].split()

    def words(folder: Path) -> list[str]:
        return [word.replace('$', f'{good}/') if word.startswith('$') else
                f'{folder}/{word[1:]}' if word.startswith('+') else word for word in WORDS]
    written = [word[1:] for word in WORDS if word.startswith('+')]
    whole = good / 'out'
    status, said = ran(words(whole) if name != 'key' else words(good))
    assert status == 0, (name, said)
    for kind in (full, filling, read_only):
        for former in (False, True)[:1 if name == 'key' else 2]:
            clear(disk)
            for file in written if former else ():
                (disk / file).write_text('former')
            before = tree(disk)
            with kind(disk):
                if name == 'key' and kind is filling:
                    continue
                status, said = ran(words(disk))
                left = {file: data for file, data in tree(disk).items() if file != 'filler'}
            where = f'{name}, {kind.__name__}, former={former}'
            assert status == 2, (where, status, said)
            assert 'Traceback' not in said, (where, said)
            assert str(disk) in said.replace('\n', ''), (where, said)
            assert 'No space left' in said or 'Read-only' in said, (where, said)
            assert left == before, (where, left.keys() ^ before.keys(), said)
    clear(disk)
    with filled(disk), patch.dict(os.environ, INTRADP_CACHE=str(disk / 'cache')):
        status, said = ran(words(whole)) if name != 'key' else (0, '')
        assert status == 0 and 'Traceback' not in said, (name, 'cache', said)
        left = [path for path in disk.rglob('*') if path.is_file() and path.name != 'filler']
        assert not left, (name, left)
    print(name, 'whole', flush=True)


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        os.environ['INTRADP_CACHE'] = str(place / 'cache')
        test_fleet_plan, test_serve_plan, test_train = (
            import_module(name) for name in ('test_fleet_plan', 'test_serve_plan', 'test_train'))
        (place / 'fleet.yaml').write_text(test_serve_plan.FLEET)
        (place / 'services.yaml').write_text(test_serve_plan.SERVICES[
            :test_serve_plan.SERVICES.index('  edges:')] + test_serve_plan.SERVICES[
            test_serve_plan.SERVICES.index('  detector:'):])
        (place / 'graph.txt').write_text(test_fleet_plan.layers())
        for command in sys.argv[2:]:
            check(command, Path(sys.argv[1]), place)
