# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a model asks of the world around it: files, other processes, entropy, clocks.

No graph asks for any of it.  Python reports to its audit hooks what is about
to be done to files, sockets and processes; what PyTorch's compilers and
Python's imports do does not count.  A draw from the system's entropy leaves no
trace in any generator, and whether a clock decides anything shows only when it
is another time: so both are replaced while a model is tried.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import datetime
import os
import random
import sys
import threading
import time
from types import FrameType
from typing import Any

from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.held_state import HeldState

Space = dict[str, Any]


class Surroundings:
    """
    Watches one thread while it runs a model.

    `touched` says what file, process or host the model asked for first, and
    why that is none of a graph's; `drawn` whether it asked for entropy.  With
    `stops`, what would change anything outside of this process is not done,
    but raises CaptureError.
    """

    def __init__(self, stops: bool) -> None:
        self.stops, self.touched, self.drawn = stops, '', False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch this thread for a while."""
        _begin_to_listen()
        before = getattr(_HERE, 'watch', None)
        _HERE.watch = self
        try:
            with _put([(vars(os), 'urandom', self._entropy), (vars(random), '_urandom',
                                                              self._entropy)]):
                yield
        finally:
            _HERE.watch = before

    def _entropy(self, size: int) -> bytes:
        if getattr(_HERE, 'watch', None) is self and not _in_the_background(sys._getframe(1)):
            self.drawn = True
        return _URANDOM(size)

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Take note of an event."""
        said = _EVENTS[event](args)
        if not said or _in_the_background(sys._getframe(2)):
            return
        what, changes = said
        advice = 'do it where the model is called' if changes else \
            'pass what it reads as an input of the model'
        self.touched = self.touched or f'the model {what} when called, and a graph does not: ' \
                                       f'{advice}'
        if changes and self.stops:
            raise CaptureError(self.touched)


@contextmanager
def other_time(held: HeldState) -> Iterator[None]:
    """Let it be more than a day later for this thread, where code asks modules or its globals."""
    spaces = [vars(time), vars(datetime), *(space for space, _ in held.names)]
    others = {id(clock): _later(clock, seconds) for clock, seconds in _CLOCKS.items()}
    others |= {id(datetime.datetime): _LaterDateTime, id(datetime.date): _LaterDate}
    done: set[int] = set()
    changes: list[tuple[Space, str, Any]] = []
    for space in spaces:
        if id(space) not in done:
            done.add(id(space))
            changes += [(space, name, others[id(item)]) for name, item in space.items()
                        if id(item) in others]
    _HERE.ahead = True
    try:
        with _put(changes):
            yield
    finally:
        _HERE.ahead = False


ASKING = frozenset(('time', 'time_ns', 'monotonic', 'monotonic_ns', 'perf_counter',
                    'perf_counter_ns', 'process_time', 'gmtime', 'localtime', 'strftime', 'ctime',
                    'now', 'utcnow', 'today'))
"""Names by which code asks for the time."""
_AHEAD = 100_003.7  # seconds
_URANDOM = os.urandom
_HERE = threading.local()
_CLOCKS: dict[Callable[..., Any], float] = {
    time.time: _AHEAD, time.monotonic: _AHEAD, time.perf_counter: _AHEAD,
    time.process_time: _AHEAD, time.time_ns: _AHEAD * 1e9, time.monotonic_ns: _AHEAD * 1e9,
    time.perf_counter_ns: _AHEAD * 1e9}
_BACKGROUND = ('torch._inductor', 'torch._dynamo', 'torch._logging', 'torch._library', 'triton',
               'importlib', '_frozen_importlib', 'linecache', 'tokenize', 'inspect', 'warnings',
               'zipimport', 'pkgutil')


def _later(clock: Callable[..., Any], ahead: float) -> Callable[..., Any]:
    plus = int(ahead) if clock.__name__.endswith('_ns') else ahead
    return lambda: clock() + plus if _is_ahead() else clock()


def _is_ahead() -> bool:
    """Return whether it is later for this thread: all others of the process have the true time."""
    return bool(getattr(_HERE, 'ahead', False))


def _shift() -> datetime.timedelta:
    return datetime.timedelta(seconds=_AHEAD if _is_ahead() else 0.0)


class _LaterDateTime(datetime.datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return super().now(tz) + _shift()

    @classmethod
    def utcnow(cls) -> Any:
        return super().now(datetime.timezone.utc).replace(tzinfo=None) + _shift()


class _LaterDate(datetime.date):
    @classmethod
    def today(cls) -> Any:
        return super().today() + _shift()


@contextmanager
def _put(changes: list[tuple[Space, str, Any]]) -> Iterator[None]:
    """Put items under names, and what was there back afterwards."""
    before = [(space, name, space[name]) for space, name, _ in changes]
    try:
        for space, name, item in changes:
            space[name] = item
        yield
    finally:
        for space, name, item in before:
            space[name] = item


def _in_the_background(frame: FrameType | None) -> bool:
    """Return whether imports or compilers ask, on behalf of whatever code."""
    while frame is not None:
        name = frame.f_globals.get('__name__', '')
        if name.startswith(_BACKGROUND):
            return True
        if name == 'intradp_ros.graph.trial_run':
            return False
        frame = frame.f_back
    return False


def _opened(args: tuple[Any, ...]) -> tuple[str, bool] | None:
    path, _, flags = args
    if not isinstance(path, (str, bytes, os.PathLike)) or os.fspath(path) in _NOWHERE:
        return None
    writes = isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))
    return f'{"writes" if writes else "reads"} the file {os.fspath(path)!r}', writes


_NOWHERE = (os.devnull, os.fsencode(os.devnull))


def _does(what: str, changes: bool = True) -> Callable[[tuple[Any, ...]], tuple[str, bool]]:
    return lambda args: (what.format(*(repr(a) for a in args), *('',) * 2), changes)


_EVENTS: dict[str, Callable[[tuple[Any, ...]], tuple[str, bool] | None]] = {
    'open': _opened, 'os.remove': _does('removes the file {0}'),
    'os.rename': _does('renames the file {0}'), 'os.mkdir': _does('makes the directory {0}'),
    'os.rmdir': _does('removes the directory {0}'), 'os.truncate': _does('writes the file {0}'),
    'os.listdir': _does('reads the directory {0}', False),
    'os.scandir': _does('reads the directory {0}', False),
    'os.system': _does('runs the command {0}'), 'subprocess.Popen': _does('runs {0}'),
    'socket.connect': _does('connects to {1}'), 'socket.sendto': _does('sends to {1}'),
    'sqlite3.connect': _does('opens the database {0}')}
_listening: list[bool] = []


def _begin_to_listen() -> None:
    if not _listening:
        _listening.append(True)
        sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event in _EVENTS:
        watch = getattr(_HERE, 'watch', None)
        if watch is not None:
            watch.hear(event, args)
