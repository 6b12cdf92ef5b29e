# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a child process of the package is started with: command line, cores, environment."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import io
import os
from pathlib import Path
import resource
import shutil
import sys
from typing import BinaryIO, cast, TYPE_CHECKING

from intradp_ros.core.child_end import ChildWatch
from intradp_ros.core.control_groups import entering, memory_group

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# The ROS wheels restart the interpreter with their library path unless this variable is set;
# a child must not inherit it, or it runs with the library path of another environment.
_BOOTSTRAP_GUARD = '_ROS_WHEELS_BOOTSTRAP_COMPLETE'
# Like ``python -m``, but the working directory is not searched: in a checkout of this package it
# would hide the installed one, which has the messages.
_RUN_MODULE = ('import runpy, sys; sys.path[:] = [path for path in sys.path if path]; '
               'runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)')


@dataclass(frozen=True, slots=True)
class Command:
    """
    What to run and how.

    :param name: names the process in messages, and its log file.
    :param arguments: the command line.
    :param prefix: words before it, such as `ShapedLink.exec_prefix` returns.
    :param cores: the CPU cores it may use; empty for all.
    :param environment: variables on top of this process's own.
    :param groups: control groups that it belongs to, such as `LimitedDevices.of` returns.
    """

    name: str
    arguments: Sequence[str]
    prefix: Sequence[str] = ()
    cores: Sequence[int] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    groups: Sequence[Path] = ()

    def line(self) -> list[str]:
        """Return the whole command line."""
        pinned = ['taskset', '--cpu-list', ','.join(map(str, self.cores))] if self.cores else []
        # The kernel ends the child with its parent, even if that is killed.
        tied = ['setpriv', '--pdeathsig', 'KILL'] if shutil.which('setpriv') else []
        return [*tied, *pinned, *entering(self.groups), *self.prefix, *self.arguments]

    def variables(self) -> dict[str, str]:
        """Return the whole environment."""
        inherited = {key: value for key, value in os.environ.items() if key != _BOOTSTRAP_GUARD}
        return {**inherited, 'PYTHONUNBUFFERED': '1', 'RCUTILS_COLORIZED_OUTPUT': '0',
                **self.environment}

    def watch(self) -> ChildWatch:
        """Return what says later how the process ended; made before it starts."""
        return ChildWatch(memory_group(self.groups))


#: The message where the working directory does not exist.
NO_DIRECTORY = 'the working directory is not there any more: change to one that is'


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error, of torch too, says that there is no memory left."""
    return isinstance(error, MemoryError) or any(
        text in str(error) for text in ("can't allocate memory", 'out of memory'))


def limit_memory(more: int) -> None:
    """Limit this process to the memory that it has and `more` bytes."""
    most = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def working_directory() -> str:
    """Return the working directory, '' if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ''


def search_working_directory() -> None:
    """Let modules of the working directory be found, behind all others."""
    if (folder := working_directory()) and folder not in sys.path:
        sys.path.append(folder)


class OutputError(OSError):
    """Standard output takes no more, as on a full disk."""


class _Standard(io.FileIO):
    """Standard output or error; what it does not take is dropped unless it is a result."""

    def __init__(self, number: int, results: bool) -> None:
        super().__init__(number, 'w', closefd=False)
        self._results = results

    def write(self, data: ReadableBuffer) -> int | None:  # type: ignore[override]
        """Write what the disk takes."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            if self._results:
                raise OutputError(error.errno, error.strerror, 'standard output') from None
            return memoryview(data).nbytes


def open_standard_streams(results: bool = False) -> None:
    """
    See that there is standard input, output and error, and that all text can be printed.

    Of those that are closed the next file that is opened would take the place.  What cannot be
    written is dropped; of `results` on standard output it is an OutputError.
    """
    for number, name in enumerate(('stdin', 'stdout', 'stderr')):
        own = f'__{name}__'
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            opened = os.fdopen(number, 'w' if number else 'r', closefd=False)
            setattr(sys, name, opened)
            setattr(sys, own, opened)
        stream = getattr(sys, name)
        if number and stream is getattr(sys, own):
            raw = _Standard(number, results and number == 1)
            setattr(sys, name, io.TextIOWrapper(
                cast(BinaryIO, raw) if stream.write_through else io.BufferedWriter(raw),
                stream.encoding, 'backslashreplace', line_buffering=stream.line_buffering,
                write_through=stream.write_through))


def module_arguments(module: str, *words: str) -> list[str]:
    """Return the command line of a Python module of the installed package."""
    return [sys.executable, '-c', _RUN_MODULE, module, *words]
