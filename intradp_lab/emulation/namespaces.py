# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Network namespaces that are sure to go: with their owner, or with the next one's start.

Their names say which process made them, so that what a killed one left
behind is found, and what a living one uses is left alone.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
import itertools
import os
from pathlib import Path
import re
import signal
import subprocess
import time
from types import MappingProxyType

# A process may start another before it is killed, and takes a moment to go.
_KILL_ROUNDS = 100
_numbers = itertools.count()


class NetworkError(RuntimeError):
    """The network could not be set up as asked; the text holds what `ip` or `tc` said."""


def run(*command: str, given: str | None = None) -> str:
    """
    Run a command and return its output; NetworkError with the cause when it fails.

    :param given: what it reads from its standard input.
    """
    # In its own session, so that Ctrl-C does not interrupt the cleaning up as well.
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=given,
                          start_new_session=True)
    if done.returncode:
        input_text = '; '.join(given.splitlines()) if given else ''
        raise NetworkError(f'{" ".join(command)} {input_text}: '
                           f'{done.stderr.strip() or done.returncode}')
    return done.stdout


def start_tick(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; '' if it is gone."""
    try:
        status = Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return ''
    return status.rpartition(')')[2].split()[19]


def owned_names(prefix: str, roles: Sequence[str]) -> dict[str, str]:
    """Return an unused namespace name for each role, with this process's id and start."""
    owner = f'{prefix}-{os.getpid()}-{start_tick(os.getpid())}-{next(_numbers)}'
    return {role: f'{owner}-{role}' for role in roles}


def namespaces(prefix: str = 'intradp') -> list[str]:
    """Return the names of the namespaces there are with this prefix."""
    names = (line.split()[0] for line in run('ip', 'netns', 'list').splitlines())
    pattern = re.compile(rf'{re.escape(prefix)}-\d+-\d+-\d+-[a-z]+')
    return [name for name in names if pattern.fullmatch(name)]


def remove(namespace: str) -> None:
    """End every process in a namespace and delete it; no error if it is gone."""
    with suppress(NetworkError):
        for _ in range(_KILL_ROUNDS):
            pids = run('ip', 'netns', 'pids', namespace).split()
            if not pids:
                break
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.01)
        run('ip', 'netns', 'delete', namespace)


def remove_stale(prefix: str = 'intradp') -> list[str]:
    """Remove what processes that are gone left behind, and return the names."""
    stale = []
    for name in namespaces(prefix):
        pid, tick = name.removeprefix(f'{prefix}-').split('-')[:2]
        if start_tick(int(pid)) != tick:
            remove(name)
            stale.append(name)
    return stale


@contextmanager
def owned_namespaces(prefix: str, roles: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """
    Provide a name for the namespace of each role, which one that enters may create.

    On the way out, however it is left, processes that still run in the
    namespaces are killed and the namespaces removed; what a killed run left
    behind is removed on the way in.
    """
    remove_stale(prefix)
    names = MappingProxyType(owned_names(prefix, roles))
    try:
        yield names
    finally:
        for name in names.values():
            remove(name)
