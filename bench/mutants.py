# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How many small changes of the code the tests notice (mutation testing).

A copy of the installed package is changed at one place at a time (by the operators of cosmic-ray:
another comparison, another number, `and` for `or`, a loop that does not run, no decorator), and
the tests of its room run, those with the name of the module first, until one fails.  What no test
fails for is printed as a difference, to be looked at: a gap, or a change that means the same.  So
is what was noticed only by a test that ran on, and by one that passes when it runs again (next to
other work, both may happen without the change).  Places are drawn by a seed, without those in
annotations.  Compiled kernels run as Python, since numba would take some from its cache.  The
score until then is reported after each change, since the first places are a sample, too.
"""
from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
import difflib
import importlib
import importlib.util
import json
import math
import os
from pathlib import Path
from random import Random
import shutil
import signal
import sys
import tempfile
import time

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
import pytest

from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically

#: Room: what is changed, and the tests that should notice, the quickest first.
AREAS: dict[str, tuple[list[str], list[str]]] = {
    'wire': (['wire/*.py', 'wire/codecs/*.py'], ['test/wire']),
    'execution': (
        ['runtime/*.py', 'systems/sharing/session/*.py'],
        [*(f'test/systems/sharing/test_{name}.py' for name in (
            'patience', 'rehearsal', 'strange_books', 'watch', 'experience', 'pair', 'editions',
            'several_robots', 'sessions', 'stream', 'pauses', 'recovery')),
         *(f'test/runtime/test_{name}.py' for name in (
             'example_picture', 'link_rate', 'memory', 'memory_network', 'model', 'processor',
             'local_catch_up_memory', 'straggler_mitigation', 'worker_thread'))]),
    'planning': (
        ['systems/sharing/judge/*.py', 'systems/sharing/judge/kernels/*.py',
         'systems/sharing/partition/*.py'],
        [*(f'test/systems/sharing/test_{name}.py' for name in (
            'partition', 'judge', 'event_simulation', 'catch_up_play', 'lowering', 'simulator',
            'encoding_choice', 'records', 'bounds')),
         '--deselect=test/systems/sharing/test_simulator.py'  # minutes, as Python
         '::test_a_book_is_never_worse_than_the_baselines']),
}
#: Operators of cosmic-ray that change names at random: most of what they make cannot run.
_WITHOUT = ('core/VariableReplacer', 'core/VariableInserter')
#: Loaded once, before each change runs in a copy of this process.
_WARM = ('hypothesis', 'numba', 'numpy', 'scipy.optimize', 'torch', 'torch.export', 'yaml')
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Place:
    """A place of the code, and the operators that change it, each with its count of the place."""

    path: Path
    line: int
    changes: tuple[tuple[str, int], ...]


def annotation_lines(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return where annotations begin and end: nothing runs there."""
    found: list[ast.expr] = []
    for node in ast.walk(ast.parse(source)):
        found += [part for part in (getattr(node, 'annotation', None),
                                    getattr(node, 'returns', None)) if part]
    return [((n.lineno, n.col_offset), (n.end_lineno or 0, n.end_col_offset or 0)) for n in found]


def places(path: Path) -> Iterator[Place]:
    """Yield the places of a module that can be changed."""
    source = path.read_text()
    annotations, tree = annotation_lines(source), get_ast(source)
    found: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in operator_names():
        if name in _WITHOUT:
            continue
        operator, count = get_operator(name)(), 0
        for node in ast_nodes(tree):
            for begin, _ in operator.mutation_positions(node):
                if not any(first <= begin < last for first, last in annotations):
                    found.setdefault(begin, []).append((name, count))
                count += 1
    for (line, _), changes in sorted(found.items()):
        yield Place(path, line, tuple(changes))


class Watch:
    """A plugin of pytest that ends a process whose test runs on, and says which test it was in."""

    def __init__(self, noted: Path, limit: float) -> None:
        self.noted, self.limit = noted, limit

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin a test: unlike a handler in Python, the default one ends loops in C as well."""
        signal.setitimer(signal.ITIMER_REAL, self.limit)
        self.noted.write_text(nodeid)


def outcome(copy: Path, tests: list[str], limit: float) -> tuple[str, str]:
    """Run tests against a copy of the package, in a copy of this process; say the last test."""
    noted = copy / 'test'
    noted.write_text('')
    child = os.fork()
    if not child:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit)
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        sys.path.insert(0, str(copy))
        os.environ['PYTHONPATH'] = str(copy)
        os._exit(int(pytest.main(['-x', '-q', '-p', 'no:cacheprovider', *tests],
                                 plugins=[Watch(noted, limit)])) != 0)
    try:
        _, status = os.waitpid(child, 0)
    finally:  # and what the tests started
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        return 'timed out', noted.read_text()
    return 'noticed' if status else 'survived', noted.read_text()


def score(records: list[dict[str, object]]) -> str:
    """Say how many changes were noticed, and Wilson's interval of 95 % for all places."""
    counts, n, z = Counter(str(record['outcome']) for record in records), len(records), 1.96
    noticed = n - counts['survived']
    middle = (noticed + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * (noticed * counts['survived'] / n + z * z / 4) ** 0.5
    return (f'{noticed} of {n} changes noticed ({noticed / n:.0%}; of all places '
            f'{middle - half:.0%} to {middle + half:.0%}), {counts["timed out"]} of them by '
            f'running on, {counts["noticed once"]} not again')


def run(area: str, count: int, seed: int, limit: float,
        package: Path) -> Iterator[dict[str, object]]:
    """Change an area at `count` places, one at a time; yield what became of each."""
    globs, tests = AREAS[area]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(package, copy / package.name,
                        ignore=shutil.ignore_patterns('__pycache__'))
        paths = sorted(path for glob in globs for path in (copy / package.name).glob(glob))
        everywhere = [place for path in paths for place in places(path)]
        begin = time.monotonic()
        first, test = outcome(copy, tests, limit)
        if first != 'survived':
            raise SystemExit(f'{area}: unchanged, the tests end with "{first}" ({test})')
        took = time.monotonic() - begin
        print(f'{area}: {len(everywhere)} places in {len(paths)} modules; the tests take '
              f'{took:.0f} s', flush=True)
        random = Random(seed)
        for place in random.sample(everywhere, min(count, len(everywhere))):
            name, occurrence = random.choice(place.changes)
            source = place.path.read_text()
            changed = mutate_code(source, get_operator(name)(), occurrence)
            if changed is None or changed == source:
                continue
            place.path.write_text(changed)
            result, test = outcome(
                copy, sorted(tests, key=lambda test: place.path.stem not in test), limit)
            if result == 'noticed' and test and outcome(copy, [test], limit)[0] == 'survived':
                result = 'noticed once'
            place.path.write_text(source)
            noted = str(place.path.relative_to(copy))
            difference = [line for line in difflib.unified_diff(
                source.splitlines(), changed.splitlines(), lineterm='', n=0)
                if line[0] in '+-' and line[:3] not in ('+++', '---')]
            if result != 'noticed':
                print(f'{result}: {noted}:{place.line} ({name})', *difference,
                      *([test] if result != 'survived' else []), sep='\n    ')
            yield {'place': f'{noted}:{place.line}', 'operator': name, 'outcome': result,
                   'test': test, 'difference': difference}


def main() -> None:
    """Print survivors and scores."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument('areas', nargs='*', default=list(AREAS), metavar='AREA',
                        help=f'of {", ".join(AREAS)}')
    parser.add_argument('--count', type=int, default=60, help='places in each area')
    parser.add_argument('--minutes', type=float, default=math.inf,
                        help='stop in an area after so long, with the places until then')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--limit', type=float, default=120, metavar='SECONDS',
                        help='a test that takes longer runs on (next to other work, the slowest '
                             'took 13)')
    parser.add_argument('--json', type=result_file)
    args = parser.parse_args()
    os.chdir(_ROOT)
    os.environ['NUMBA_DISABLE_JIT'] = '1'
    spec = importlib.util.find_spec('intradp_ros')
    assert spec and spec.origin
    for name in _WARM:
        importlib.import_module(name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('stopped'))  # without a copy left behind
    everything: dict[str, list[dict[str, object]]] = {}
    for area in args.areas:
        records = everything[area] = []
        begin = time.monotonic()
        for record in run(area, args.count, args.seed, args.limit, Path(spec.origin).parent):
            records.append(record)
            print(f'{area}: {score(records)}', flush=True)
            if args.json:
                write_atomically(args.json, json.dumps(everything, indent=1))
            if time.monotonic() - begin > 60 * args.minutes:
                break


if __name__ == '__main__':
    main()
