# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A child process that takes and gives byte messages, shows signs of life, and says how it died.

A message is its length and its bytes, over standard input and output.  The child has
``ChildSide``; what it prints goes to standard error.  It ends when its input ends, as it
does when its parent dies.  An empty message is a sign of life, which a thread of the child
sends whatever the others do.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
import logging
import os
from pathlib import Path
import queue
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from typing import IO

from intradp_ros.core.child_end import ChildWatch
from intradp_ros.core.processes import module_arguments, open_standard_streams
from intradp_ros.core.steady import Steady

#: Seconds between signs of life, and without any after which a child is taken for dead.
BEAT, SILENCE = 0.5, 10.0
#: Seconds for the first one: on a busy machine it takes long to import all.
START = 90.0
#: Bytes of a message.
MAX_MESSAGE = 1 << 30
_LENGTH = struct.Struct('<Q')
_PIPE = 1 << 20
_F_SETPIPE_SZ = 1031
_LOG = logging.getLogger(__name__)

Bytes = bytes | bytearray | memoryview


class MessageError(ValueError):
    """What was read is not a message."""


class ChildProcess:
    """
    A module of the installed package in a process of its own.

    `heard` gets each message, `gone` once the cause of its end, both on a thread of this object.
    `send` returns at once: another thread writes.
    """

    def __init__(self, name: str, module: str, words: Sequence[str],
                 heard: Callable[[bytearray], None], gone: Callable[[str], None], *,
                 log: Path | None = None, prefix: Sequence[str] = (),
                 environment: Mapping[str, str] | None = None, silence: float = SILENCE,
                 ) -> None:
        """
        Start it; `prefix` are words before its command line.

        :raises OSError: if it cannot be started.
        """
        self.name = name
        self._heard, self._gone, self._silence = heard, gone, silence
        self._log = log
        self._end = ChildWatch()
        with _opened(log) as errors:
            self._process = subprocess.Popen(
                [*prefix, *module_arguments(module, *words)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                env={**os.environ, **(environment or {})},
                start_new_session=True)  # Ctrl-C is for the parent
        assert self._process.stdin is not None and self._process.stdout is not None
        _widen(self._process.stdin)
        self._out: queue.SimpleQueue[Sequence[Bytes] | None] = queue.SimpleQueue()
        self._life = time.monotonic() + max(0.0, START - silence)
        self._ended = threading.Event()
        self._silent = False
        for target in (self._write, self._read, self._watch):
            threading.Thread(target=target, name=f'{name}-{target.__name__}', daemon=True).start()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def send(self, *parts: Bytes) -> None:
        """Send a message that is made of parts; one to a child that is gone is dropped."""
        self._out.put(parts)

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, grace: float = 2.0) -> None:
        """Let it end, and kill it if it has not after `grace` seconds."""
        self._out.put(None)
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def _write(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            while (parts := self._out.get()) is not None:
                write_message(self._process.stdin, parts)
        with suppress(OSError):
            self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        wrong, steady = '', Steady(self.name)
        try:
            while (message := read_message(self._process.stdout)) is not None:
                self._life = time.monotonic()
                if message:
                    steady.do(partial(self._heard, message), None)
        except (OSError, MessageError) as error:
            wrong = str(error)
            self.kill()
        status = self._process.wait()
        self._ended.set()
        self._out.put(None)
        self._gone(self._cause(status, wrong))

    def _watch(self) -> None:
        """Kill a child that shows no sign of life."""
        while not self._ended.wait(BEAT):
            if time.monotonic() - self._life > self._silence:
                self._silent = True
                self.kill()
                return

    def _cause(self, status: int, wrong: str) -> str:
        """Say by what it ended, with the end of its log."""
        cause = f'was silent for {self._silence:g} s' if self._silent else \
            wrong or str(self._end.end(status))
        tail = ''
        if status and self._log:
            with suppress(OSError):
                tail = self._log.read_text(errors='replace')[-2000:].strip().rpartition('\n')[2]
        return f'{cause}: {tail}' if tail else cause


class ChildSide:
    """
    The child's end.  Make it first: from then on what is printed goes to standard error.

    It shows signs of life at once, and ends the process when the parent does.
    """

    def __init__(self) -> None:
        """Take over standard input and output."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # what ends the parent lets it end its children
        self._in = os.fdopen(os.dup(0), 'rb')
        self._to_parent = os.fdopen(os.dup(1), 'wb', buffering=0)
        os.dup2(2, 1)
        open_standard_streams()
        _widen(self._to_parent)
        self._lock = threading.Lock()
        threading.Thread(target=self._beat, daemon=True).start()

    def listen(self, heard: Callable[[bytearray], None]) -> None:
        """Give each message to `heard`, on a thread of its own."""
        threading.Thread(target=self._read, args=(heard,), daemon=True).start()

    def send(self, *parts: Bytes) -> None:
        """Send a message that is made of parts."""
        with self._lock:
            write_message(self._to_parent, parts)

    def _read(self, heard: Callable[[bytearray], None]) -> None:
        try:
            while (message := read_message(self._in)) is not None:
                heard(message)
        except (OSError, MessageError):
            pass
        except BaseException:  # it would live on and hear nothing
            traceback.print_exc()
            os._exit(1)
        os._exit(0)  # who started it is gone

    def _beat(self) -> None:
        with suppress(OSError):
            while True:
                self.send()
                time.sleep(BEAT)
        os._exit(0)


def _opened(log: Path | None) -> IO[bytes]:
    """Open a log to append to; where it cannot be written, nothing is kept, with a warning."""
    if log:
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            return open(log, 'ab')
        except OSError as error:
            _LOG.warning('%s cannot be written, and work goes on without a log: %s', log,
                         error.strerror)
    return open(os.devnull, 'ab')


def write_message(stream: IO[bytes], parts: Sequence[Bytes]) -> None:
    """Write a message that is made of parts; OSError where nobody reads."""
    views = [memoryview(part).cast('B') for part in parts]
    left = [memoryview(_LENGTH.pack(sum(map(len, views)))), *views]
    number = stream.fileno()
    while left:
        written = os.writev(number, left[:64])
        while left and written >= len(left[0]):
            written -= len(left[0])
            left.pop(0)
        if left:
            left[0] = left[0][written:]


def read_message(stream: IO[bytes]) -> bytearray | None:
    """
    Read a message; None at the end.

    :raises MessageError: if it is longer than any may be, or breaks off.
    """
    head = stream.read(_LENGTH.size)
    if not head:
        return None
    if len(head) < _LENGTH.size:
        raise MessageError('a message breaks off')
    length, = _LENGTH.unpack(head)
    if length > MAX_MESSAGE:
        raise MessageError(f'a message of {length} bytes, at most {MAX_MESSAGE} are taken')
    message = bytearray(length)
    view = memoryview(message)
    while view:
        read = stream.readinto(view)  # type: ignore[attr-defined]  # of all files that are open
        if not read:
            raise MessageError('a message breaks off')
        view = view[read:]
    return message


def _widen(stream: IO[bytes]) -> None:
    """Let a pipe hold more, where the system allows it."""
    if sys.platform == 'linux':
        import fcntl
        with suppress(OSError):
            fcntl.fcntl(stream.fileno(), _F_SETPIPE_SZ, _PIPE)
