# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Long work is reported: on a terminal as it goes, elsewhere as lines."""
from __future__ import annotations

from io import StringIO
import subprocess
import sys
import time

import pytest
from rich.console import Console

from intradp_ros.cli.output import Output


def opened(stream: StringIO, *, terminal: bool) -> Output:
    """Return an output whose progress goes to a stream."""
    return Output(Console(file=StringIO()), Console(file=stream, force_terminal=terminal), None)


def test_steps_are_lines_where_nobody_looks() -> None:
    stream = StringIO()
    with opened(stream, terminal=False).steps() as describe:
        describe('1/2 hed: local')
        describe('2/2 hed: shared')
    assert stream.getvalue() == '1/2 hed: local\n2/2 hed: shared\n'


def test_what_serves_does_so_though_nobody_can_be_told() -> None:
    """Its standard output is a file, say, on a disk that is full."""
    program = ('import os; from intradp_ros.core.processes import open_standard_streams; '
               'from intradp_ros.cli.output import output\nopen_standard_streams(results=True)\n'
               'with output(False) as out:\n out.announce("here")\n os._exit(5)')
    with open('/dev/full', 'w') as full:
        assert subprocess.run([sys.executable, '-c', program], stdout=full).returncode == 5


def test_progress_is_a_line_now_and_then_where_nobody_looks(
        monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, 'monotonic', lambda: now)
    stream = StringIO()
    with opened(stream, terminal=False).progress('planning') as advance:
        for done in range(24):
            now += 2.0
            advance(done + 1, 24)
    assert stream.getvalue() == ''.join(f'planning: {done} of 24\n' for done in (5, 10, 15, 20))


def test_a_terminal_shows_what_goes_on() -> None:
    stream = StringIO()
    with opened(stream, terminal=True).steps() as describe:
        describe('1/2 hed: local')
    assert '\x1b' in stream.getvalue()
