# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a command prints: tables for people or JSON for programs, progress on stderr."""
from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
import sys
import time
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from intradp_ros.cli.command_errors import printable
from intradp_ros.core.processes import OutputError
from intradp_ros.report.result_tables import json_text

WIDE = 160  # columns where the output is not a terminal and nothing has to fit
LINE_EVERY = 10.0  # seconds between two lines of progress there

Advance = Callable[[int, int], None]


@dataclass(frozen=True)
class Output:
    """Where results go: `stream` takes JSON; None means tables on the console."""

    console: Console
    progress_console: Console
    stream: TextIO | None

    def show(self, *items: RenderableType) -> None:
        """Print tables and text, unless JSON is wanted."""
        if self.stream is None:
            for item in items:
                self.console.print(printable(item) if isinstance(item, str) else item,
                                   highlight=False)

    def announce(self, text: str) -> None:
        """Say where something serves; it does so where that cannot be said, as on a full disk."""
        with suppress(OutputError):
            self.show(text)

    def warn(self, text: str) -> None:
        """Print a warning on stderr, JSON or not."""
        self.progress_console.print(f'[yellow]warning: {plain(text)}[/yellow]', highlight=False,
                                    soft_wrap=True)

    def written(self, *files: Path | None) -> None:
        """Say which files were written, of those that were asked for."""
        if names := [plain(file) for file in files if file]:
            self.show(f'written: {", ".join(names)}')

    def result(self, data: Mapping[str, Any]) -> None:
        """Print the result as JSON if that is wanted."""
        if self.stream is not None:
            self.stream.write(json_text(data))
            self.stream.flush()

    @contextmanager
    def status(self, text: str) -> Iterator[None]:
        """Say what is going on while it lasts."""
        with self.progress_console.status(plain(text)):
            yield

    @contextmanager
    def steps(self) -> Iterator[Callable[[str], None]]:
        """
        Say what is going on; what is yielded takes the text of each step, shown as it is.

        Where nobody looks (a file, say), each step is a line.
        """
        if not self.progress_console.is_terminal:
            yield lambda text: self.progress_console.print(plain(text), highlight=False,
                                                           soft_wrap=True)
            return
        with self.progress_console.status('') as status:
            yield lambda text: status.update(plain(text))

    @contextmanager
    def progress(self, text: str) -> Iterator[Advance]:
        """
        Show a bar; what is yielded takes the count of steps done, and of all.

        Where nobody looks there is a line now and then.
        """
        if not self.progress_console.is_terminal:
            yield self._lines(text)
            return
        bar = Progress(TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(),
                       TimeElapsedColumn(), console=self.progress_console, transient=True)
        with bar:
            task = bar.add_task(plain(text), total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    def _lines(self, text: str) -> Advance:
        last = time.monotonic()

        def advance(done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last >= LINE_EVERY:
                last = time.monotonic()
                self.progress_console.print(f'{plain(text)}: {done} of {total}', highlight=False)

        return advance


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json``."""
    parser.add_argument('--json', action='store_true',
                        help='print the result as JSON, and nothing else, on stdout')


@contextmanager
def output(as_json: bool) -> Iterator[Output]:
    """Open the output of a command; whatever a model prints does not get into the JSON."""
    progress = Console(stderr=True)
    if not as_json:
        width = None if sys.stdout.isatty() else WIDE
        yield Output(Console(width=width), progress, None)
        return
    stream = sys.stdout
    with redirect_stdout(sys.stderr):
        yield Output(progress, progress, stream)


def table(title: str, *columns: str, left: int = 1) -> Table:
    """Return an empty table; its first `left` columns hold text, the others numbers."""
    result = _Table(title=escape(printable(title)), title_justify='left', box=SIMPLE_HEAD,
                    pad_edge=False, collapse_padding=True)
    for index, column in enumerate(columns):
        result.add_column(escape(printable(column)), justify='left' if index < left else 'right',
                          overflow='fold' if index < left else 'ellipsis')
    return result


class _Table(Table):
    """A table whose cells hold no control characters, wherever their text comes from."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row, as `Table.add_row`."""
        super().add_row(*(printable(cell) if isinstance(cell, str) else cell
                          for cell in cells), **options)


def plain(text: object) -> str:
    """Return a text from a file or the network as rich shows it literally, on one line."""
    return escape(printable(str(text)).replace('\n', '\\n'))


def size(count: float) -> str:
    """Return a count of bytes with a decimal unit."""
    return _scaled(count, 'B')


def amount(count: float) -> str:
    """Return a count with a decimal prefix: ``8.2 G``."""
    return _scaled(count, '').strip()


def _scaled(count: float, unit: str) -> str:
    for prefix, factor in (('T', 1e12), ('G', 1e9), ('M', 1e6), ('k', 1e3)):
        if count >= factor:
            return f'{count / factor:.3g} {prefix}{unit}'
    return f'{count:.0f} {unit}'


def milliseconds(seconds: float) -> str:
    """Return seconds as milliseconds, with as many digits as mean something."""
    value = 1e3 * seconds
    return f'{value:.0f}' if value >= 100 else f'{value:.3g}'


def percent(part: float) -> str:
    """Return a share as percent."""
    return f'{part:.1%}'
