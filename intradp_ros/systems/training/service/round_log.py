# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Rounds of a training for people and programs that watch: each once, when all devices have it.

Rounds that are trained again after a loss are those of before, and not noted again.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
import errno
from importlib.util import find_spec
import io
import json
import math
import os
from pathlib import Path
import socket
import time
from typing import Any

from intradp_ros.core.extras import pip_install
from intradp_ros.core.json_text import parse_json
from intradp_ros.systems.training.base.task import TaskError, TrainingTask
from intradp_ros.systems.training.layers.stage_optimiser import whole_optimiser
from intradp_ros.systems.training.service.round_commit import RoundCommit

#: Bytes of a line that are looked at.
_MOST_LINE = 1 << 16
_EVENTS = 'events.out.tfevents.*'
NO_ROUNDS = 'it is there already and holds no rounds of a training: name another file'


class RoundFile:
    """
    A file that rounds are appended to, each whole, once: while it cannot be written they wait.

    `trouble` says why they do at the moment, '' if none does; `named` is what the user names.
    """

    def __init__(self, named: Path) -> None:
        self.named, self.path, self.trouble, self._end = named, named, '', -1
        self._waiting = list[tuple[int, bytes]]()

    def put(self, line: Mapping[str, Any]) -> None:
        """Note a round, or later: a full disk ends no training."""
        self._waiting.append((int(line['round']), self._piece(line)))
        self._write()

    def finish(self) -> None:
        """Note what waits, in a new file if theirs is gone; else `trouble` says what is lost."""
        if self._waiting and self._end >= 0 and not self.path.exists():
            self._end = -1
        if self._waiting:
            self._write()
        if self._waiting:
            self.trouble = f'{self.trouble}: rounds {self._waiting[0][0]} to ' \
                           f'{self._waiting[-1][0]} are not in it'
            if not self._end:  # nor is anything else
                with suppress(OSError):
                    self.path.unlink()

    def _write(self) -> None:
        try:
            if self._end < 0:
                self._end = self._begin(self._waiting[0][0])
            with self.path.open('r+b', buffering=0) as stream:
                stream.truncate(self._end)
                stream.seek(self._end)
                try:
                    while self._waiting:
                        if stream.write(self._waiting[0][1]) < len(self._waiting[0][1]):
                            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                        self._end += len(self._waiting.pop(0)[1])
                finally:
                    stream.truncate(self._end)  # what was written in part, on a full disk
            self.trouble = ''
        except OSError as error:
            self.trouble = f'{self.named} cannot be written: {error.strerror or error}'

    def _piece(self, line: Mapping[str, Any]) -> bytes:
        """Return what stands for a round."""
        raise NotImplementedError

    def _begin(self, first: int) -> int:
        """Make the file, or keep of it what is before a round; return where it ends."""
        raise NotImplementedError


class MetricsFile(RoundFile):
    """
    JSON lines in a file.

    With `resumed` they follow those that are there, of which lines from the first round that is
    noted here on, and one that was cut off, are dropped: no round is there twice.
    """

    def __init__(self, path: Path, resumed: bool) -> None:
        super().__init__(path)
        self._resumed = resumed

    def _piece(self, line: Mapping[str, Any]) -> bytes:
        return json.dumps(line, allow_nan=False).encode() + b'\n'

    def _begin(self, first: int) -> int:
        if not is_rounds(self.path):
            raise OSError(errno.EEXIST, NO_ROUNDS)
        self.path.resolve().parent.mkdir(parents=True, exist_ok=True)
        if not self._resumed or not self.path.exists():
            self.path.write_bytes(b'')
            return 0
        end = 0
        with self.path.open('rb') as stream:
            for line in stream:
                try:
                    if not line.endswith(b'\n') or int(parse_json(line)['round']) >= first:
                        break
                except (ValueError, KeyError, TypeError):
                    break
                end += len(line)
        return end


def check_tensorboard() -> None:
    """See that what writes for TensorBoard is installed; TaskError says how to install it."""
    if find_spec('tensorboard') is None:
        raise TaskError('to write for TensorBoard the package tensorboard is needed: '
                        f'{pip_install("tensorboard")}')


class TensorBoard(RoundFile):
    """
    The numbers of rounds as TensorBoard shows them, in a file of a folder.

    Of what is in the folder already, rounds from the first that is noted here on are hidden.

    :raises TaskError: if its package is not installed.
    """

    def __init__(self, folder: Path) -> None:
        check_tensorboard()
        super().__init__(folder)

    def _piece(self, line: Mapping[str, Any]) -> bytes:
        return _records({'step': line['round'], 'summary': {'value': [
            {'tag': name.replace('check_', 'check/'), 'simple_value': value}
            for name, value in line.items()
            if name != 'round' and isinstance(value, int | float)]}})

    def _begin(self, first: int) -> int:
        self.named.resolve().mkdir(parents=True, exist_ok=True)
        now, number = int(time.time()), len(list(self.named.glob(_EVENTS)))
        self.path = self.named / _EVENTS.replace(
            '*', f'{now:010}.{socket.gethostname()}.{os.getpid()}.{number}')
        self.path.open('xb').close()
        self._waiting.insert(0, (first, _records({'file_version': 'brain.Event:2'}, {
            'step': first, 'session_log': {'status': 1}})))  # what hides the rounds from here on
        return 0


def _records(*events: Mapping[str, Any]) -> bytes:
    """Return events as TensorBoard's files have them."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter
    found = io.BytesIO()
    for event in events:
        RecordWriter(found).write(Event(wall_time=time.time(), **event).SerializeToString())
    return found.getvalue()


def has_events(folder: Path) -> bool:
    """Return whether a folder has what TensorBoard shows."""
    return any(folder.glob(_EVENTS))


def is_rounds(path: Path) -> bool:
    """Return whether a file has rounds, or is empty or not there: no other one is written to."""
    try:
        with path.open('rb') as stream:
            line = stream.readline(_MOST_LINE)
        return not line or isinstance(parse_json(line)['round'], int)
    except FileNotFoundError:
        return True
    except (ValueError, KeyError, TypeError):
        return False


class RoundLog:
    """Hands rounds of a task to sinks as soon as they are committed."""

    def __init__(self, task: TrainingTask, sinks: Sequence[RoundFile]) -> None:
        self._task, self._sinks, self._next = task, sinks, 0
        self._rate = _rate_of(task) if sinks else None

    @property
    def trouble(self) -> str:
        """Why a round could not be noted, '' if all are."""
        return next((sink.trouble for sink in self._sinks if sink.trouble), '')

    def finish(self) -> str:
        """Note what waits once more; return what cannot be noted, '' if all is."""
        for sink in self._sinks:
            sink.finish()
        return self.trouble

    def follow(self, commit: RoundCommit) -> None:
        """Note the rounds that have come."""
        for number in range(self._next, commit.committed):
            if self._sinks and number in commit.figures and commit.plan is not None:
                line = self._line(commit, number, commit.figures[number])
                for sink in self._sinks:
                    sink.put(line)
        self._next = max(self._next, commit.committed)

    def _line(self, commit: RoundCommit, number: int, figures: Mapping[str, Any],
              ) -> dict[str, Any]:
        task, plan = self._task, commit.plan
        assert plan is not None
        factor = task.schedule(number) if task.schedule else 1.0
        return {
            'round': number + 1, 'epoch': (number + 1) * task.batch / len(task.data),
            'loss': _finite(figures['loss']), 'gradient_norm': _finite(figures['norm']),
            'rate': None if self._rate is None else _finite(self._rate * factor),
            'seconds': figures['seconds'], 'samples': figures['samples'], 'plan': str(plan),
            'devices': list(plan.participants), 'recoveries': len(commit.recoveries),
            **{f'check_{name}': value if value is None else _finite(value)
               for name, value in (figures['validation'] or {}).items()}}


def _rate_of(task: TrainingTask) -> float | None:
    """Return the learning rate of the optimiser's first group, before any schedule."""
    rate = whole_optimiser(task).param_groups[0].get('lr')
    return None if rate is None else float(rate)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
