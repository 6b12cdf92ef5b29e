# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A short-lived process with a node, which answers a command with one line of JSON.

What keeps it from an answer is said as it is: a package that is missing, a machine that is too
busy to start it in time, an end for want of memory.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
import json
import os
import subprocess
import time
from typing import Any, IO

from intradp_ros.core.patience import Patience, share_of_core
from intradp_ros.core.processes import Command

#: Seconds that the interpreter, the middleware and discovery may take.
STARTING = 30.0
SETUP = 'source the setup file of ROS 2 and of the workspace, or pip install'
_POLL = 0.05


class NodeRequestError(RuntimeError):
    """There was no answer; the text says why, `fix` what helps where that is known."""

    def __init__(self, text: str, fix: str = '') -> None:
        super().__init__(text)
        self.fix = fix


def node_request(command: Command, seconds: float,
                 share: Callable[[], float] = share_of_core, *,
                 warn: Callable[[str], None] = lambda text: None) -> Mapping[str, Any]:
    """
    Run a process and return the JSON object of the last line that it prints.

    :param seconds: what it may take in addition to `STARTING`, as `Patience` counts them.
    :param share: the part of a core that a process of this machine gets.
    :param warn: hears once what the process waits for, if it prints ``{"waiting": text}``.
    :raises NodeRequestError: if none comes.
    """
    patience, begun, watch = Patience(STARTING + seconds, share=share), time.monotonic(), \
        command.watch()
    waits = ''
    with _in_memory() as said, _in_memory() as errors:
        process = subprocess.Popen(
            command.line(), env=command.variables(), stdin=subprocess.DEVNULL, stdout=said,
            stderr=errors, start_new_session=True)
        try:
            while (status := process.poll()) is None:
                if not waits and (waits := _waiting(said)):
                    warn(waits)
                if patience.over:
                    raise _late(time.monotonic() - begun, share())
                time.sleep(_POLL)
        finally:
            process.kill()
            process.wait()
        last, reason = _last_line(said), _last_line(errors)
    if not status and last.startswith('{'):
        answer: Mapping[str, Any] = json.loads(last)
        return answer
    if 'ModuleNotFoundError' in reason or 'ImportError' in reason:
        raise NodeRequestError(f'a node cannot start: {reason}', SETUP)
    raise NodeRequestError(f'the node that asks {watch.end(status)}'
                           + (f': {reason}' if reason else ''))


def _in_memory() -> IO[str]:
    """Return a file that needs no disk: one that is full is a reason to ask."""
    return os.fdopen(os.memfd_create('answer'), 'w+')


def _late(seconds: float, share: float) -> NodeRequestError:
    if share < 1:
        wanted = (os.cpu_count() or 1) / share
        return NodeRequestError(
            f'this machine is busy: about {wanted:.0f} threads want its {os.cpu_count()} cores, '
            f'and a node did not start and look around within {seconds:.0f} s',
            'end other work, or try again when there is less of it')
    return NodeRequestError(
        f'the node that asks hangs: it has run for {seconds:.0f} s on a machine with time for it',
        'end the nodes of this machine and start them again; intradp doctor looks at their shared '
        'memory')


def _waiting(file: IO[str]) -> str:
    """Return what a process that runs says it waits for; where it writes stays as it is."""
    lines = os.pread(file.fileno(), 1 << 16, 0).decode(errors='replace').split('\n')[:-1]
    return next((str(json.loads(line)['waiting']) for line in lines
                 if line.startswith('{"waiting": ')), '')


def _last_line(file: IO[str]) -> str:
    file.seek(0)
    return (file.read().strip().splitlines() or [''])[-1]
