# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Start the executables of the package as child processes, watch their logs, end them for certain.

Tests and the demo use it in place of ``ros2 launch``, which no wheel carries,
and because `kill` must be as sudden as a power cut.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import threading
import time
from typing import Any

from intradp_ros.core.child_end import ChildEnd
from intradp_ros.core.patience import Patience
from intradp_ros.core.processes import Command, module_arguments

_POLL = 0.02


class ChildError(RuntimeError):
    """
    A child process ended, or did not do in time what was waited for.

    `what` says it in a few words, such as "out of memory at 720 MB".
    """

    def __init__(self, text: str, what: str = '') -> None:
        super().__init__(text)
        self.what = what or text


def ros_arguments(module: str, *, node: str = '', namespace: str = '',
                  parameters: Mapping[str, Any] | None = None,
                  parameter_files: Sequence[Path] = (),
                  remappings: Mapping[str, str] | None = None) -> list[str]:
    """
    Return the command line of a ROS executable that is a Python module.

    :param module: what to run, such as ``intradp_ros.nodes.sharing.offload_node``.
    :param node: another name for the node; `namespace`: the ROS namespace.
    :param parameters: plain values; they override those of `parameter_files`.
    :param remappings: names of topics and services to replace.
    """
    rules = dict(remappings or {})
    rules |= {key: value for key, value in (('__node', node), ('__ns', namespace)) if value}
    words = module_arguments(module, '--ros-args')
    for path in parameter_files:
        words += ['--params-file', str(path)]
    for name, value in (parameters or {}).items():
        # JSON is YAML too, which ROS expects here; quoted text stays text.
        words += ['-p', f'{name}:={json.dumps(value)}']
    for name, target in rules.items():
        words += ['-r', f'{name}:={target}']
    return words


class Child:
    """A running command whose output goes to a log file."""

    def __init__(self, command: Command, log: Path) -> None:
        """Start the command; the folder of `log` must exist."""
        if threading.current_thread() is not threading.main_thread():
            # The kernel would end it together with the thread that started it.
            raise RuntimeError(f"start '{command.name}' from the main thread")
        self.name = command.name
        self.log = log
        self._watch = command.watch()
        with log.open('wb') as output:
            self._process = subprocess.Popen(
                command.line(), env=command.variables(), stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True)

    @property
    def pid(self) -> int:
        """Process id; all prefixes replace themselves, so that it is the command's own."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended (minus the signal's number if by a signal); None while it runs."""
        return self._process.poll()

    @property
    def end(self) -> ChildEnd:
        """How it ended, once it has."""
        return self._watch.end(self._process.wait())

    def output(self) -> str:
        """Return everything printed so far."""
        return self.log.read_text(errors='replace')

    def failure(self, what: str) -> ChildError:
        """Return an error that says what went wrong, with the end of the log."""
        return child_error(self.name, what, self.log)

    def ended(self, when: str) -> ChildError:
        """Return an error that says how it ended, which it has, and `when`."""
        return child_error(self.name, f'{self.end} {when}'.strip(), self.log, self.end)

    def wait_for_line(self, pattern: str, timeout: float, since: int = 0,
                      others: Sequence[Child] = ()) -> re.Match[str]:
        """
        Wait until a whole line matches the regular expression somewhere.

        :param timeout: seconds, as `Patience` counts them.
        :param since: skip that many characters of `output`, to find a later line.
        :param others: processes without which the line never comes.
        :raises ChildError: when the time is over, or one of the processes ends without the line.
        """
        expression = re.compile(pattern)
        patience = Patience(timeout)
        while True:
            ended = self.returncode
            lines = self.output()[since:].splitlines(keepends=True)
            for line in lines:
                if line.endswith('\n') and (match := expression.search(line)):
                    return match
            if ended is not None:
                raise self.ended(f'before it printed /{pattern}/')
            for other in others:
                if other.returncode is not None:
                    raise other.ended(f"before '{self.name}' printed /{pattern}/")
            if patience.over:
                raise self.failure(f'did not print /{pattern}/ within {timeout:g} s')
            time.sleep(_POLL)

    def wait(self, timeout: float) -> int:
        """Wait at most `timeout` seconds (`Patience`) for the end; ChildError if it stays away."""
        patience = Patience(timeout)
        while (status := self._process.poll()) is None:
            if patience.over:
                raise self.failure(f'still runs after {timeout:g} s')
            time.sleep(_POLL)
        return status

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and those it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """End it at once, without a chance to say good-bye (``kill -9``)."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def stop(self, grace: float = 5.0) -> int:
        """Ask it to end, kill it after `grace` seconds, and return how it ended."""
        stop_all([self], grace)
        return self._process.wait()


def child_error(name: str, what: str, log: Path, end: ChildEnd | None = None) -> ChildError:
    """Return an error that says what went wrong with a child, with the end of its log."""
    tail = '\n'.join(log.read_text(errors='replace').splitlines()[-15:])
    return ChildError(f"'{name}' {what}; " + (f'the end of {log}:\n{tail}' if tail.strip() else
                                              f'it printed nothing ({log})'),
                      end.reason if end and end.reason else what)


def stop_all(children: Sequence[Child], grace: float = 5.0) -> None:
    """Ask all to end; kill those that have not ended `grace` seconds (`Patience`) later."""
    for child in children:
        child.signal(signal.SIGTERM)
    patience = Patience(grace)
    while any(c.returncode is None for c in children) and not patience.over:
        time.sleep(_POLL)
    for child in children:
        child.kill()


def wait_until(condition: Callable[[], bool], timeout: float, what: str,
               children: Sequence[Child] = ()) -> None:
    """
    Wait until `condition` holds.

    :param what: names the condition in the error.
    :param children: processes without which there is no point in waiting.
    :raises ChildError: after `timeout` seconds (`Patience`), or when one of `children` has ended.
    """
    patience = Patience(timeout)
    while not condition():
        for child in children:
            if child.returncode is not None:
                raise child.ended(f'while waiting for {what}')
        if patience.over:
            raise ChildError(f'waited {timeout:g} s in vain for {what}')
        time.sleep(_POLL)


def _free_log(folder: Path, name: str) -> Path:
    """Return ``NAME.log``, or ``NAME-2.log`` and so on for a process started again."""
    path, number = folder / f'{name}.log', 2
    while path.exists():
        path, number = folder / f'{name}-{number}.log', number + 1
    return path


@contextmanager
def starter(logs: Path, grace: float = 5.0) -> Iterator[Callable[[Command], Child]]:
    """
    Yield a function that starts commands; all have ended when the context is left.

    :param logs: folder for the log files; made if missing.
    :param grace: seconds that the processes have to end by themselves.
    """
    logs.mkdir(parents=True, exist_ok=True)
    children: list[Child] = []

    def start(command: Command) -> Child:
        children.append(Child(command, _free_log(logs, command.name)))
        return children[-1]

    try:
        yield start
    finally:
        stop_all(children, grace)
