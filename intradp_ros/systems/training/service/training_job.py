# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A training from its first round to its checkpoint, to be watched, paused and ended meanwhile.

It runs in the thread that calls `run`, over processes of this machine or devices of a fleet;
`pause`, `resume` and `stop` may be called from any thread.  All devices leave their plan between
two rounds; then the state is saved, so that whatever happens afterwards, nothing is lost.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
import enum
from functools import partial
from math import nan
from pathlib import Path
import statistics
import time
from typing import Any, Protocol

import torch

from intradp_ros.systems.training.layers.checkpoint import (
    best_of,
    check_fits,
    Checkpoint,
    is_checkpoint,
    newest_checkpoint,
    not_finite,
    previous_of,
    whole_state,
    without_link,
    write_checkpoint,
)
from intradp_ros.systems.training.layers.judgement import best_weights, BestSoFar
from intradp_ros.systems.training.layers.task_facts import sample_facts
from intradp_ros.systems.training.plan.prepared import Prepared
from intradp_ros.systems.training.plan.replanning import replanner
from intradp_ros.systems.training.plan.training_plan import Planner, TrainingPlan
from intradp_ros.systems.training.run.stage_runner import by_layer
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service.process_fleet import ProcessFleet
from intradp_ros.systems.training.service.round_commit import Phase, Recovery, RoundCommit
from intradp_ros.systems.training.service.round_log import (
    MetricsFile,
    RoundFile,
    RoundLog,
    TensorBoard,
)
from intradp_ros.systems.training.service.trainer import Trainer, TrainingError

#: Rounds whose median is the speed that is shown.
RECENT = 9
#: Seconds without a byte after which a device of a training that failed gives nothing.
RESCUE = 20.0
#: Times in a row that the state may not come when it is to be saved.
MOST_FAILED = 3
#: Seconds for which a result that cannot be written is kept, while somebody may make room; the
#: same where the training is to stop; and between two attempts.
UNSAVED, UNSAVED_STOP, ATTEMPT = 600.0, 20.0, 2.0


class Wish(enum.Enum):
    """What a job is to do."""

    TRAIN = 'train'
    PAUSE = 'pause'
    STOP = 'stop'


@dataclass(frozen=True)
class JobOptions:
    """
    How a job runs.

    The state is saved in the file `checkpoint`, at pauses, at the end, and every `save_every`
    rounds (0: only then).  With `resume` the job goes on from what is saved there.  With
    `slowed` each process takes the seconds of its device and sends at its rate: those of devices
    that are so many times as fast; joules are theirs.  Checkpoints have the number `training`.
    Each round is a line of the file `metrics`, and in the folder `tensorboard`.  The first plan is
    `plan`, where there is one.
    """

    checkpoint: Path
    save_every: int = 0
    resume: bool = False
    slowed: float | None = None
    settings: Settings = Settings()
    logs: Path | None = None
    threads: int = 1
    called: str = ''
    training: int = 0
    metrics: Path | None = None
    tensorboard: Path | None = None
    plan: TrainingPlan | None = None


@dataclass(frozen=True)
class Progress:
    """
    Where a training stands; joules are modelled, None where no device's power is known.

    `trouble` is why nothing could be saved when it was last tried, '' where that was written;
    `validation` is the newest one; `replayed` are the rounds computed again after losses.
    """

    state: str
    round: int
    rounds: int
    loss: float
    samples_per_second: float
    joules: float | None
    plan: str
    devices: int
    lost: tuple[str, ...]
    trouble: str = ''
    validation: Mapping[str, float | None] | None = None
    replayed: int = 0


@dataclass(frozen=True)
class Outcome:
    """
    What a training left: `done` unless it was stopped before its last round.

    `best` is the round of the best weights, which `best_of` the checkpoint has; 0 without any;
    `unnoted` says which rounds could not be noted and why, '' if all are.
    """

    done: bool
    round: int
    resumed_from: int
    figures: Mapping[int, Mapping[str, Any]]
    plans: Sequence[tuple[int, TrainingPlan]]
    recoveries: Sequence[Recovery]
    seconds: float
    joules: float | None
    checkpoint: Path
    digest: str
    state: Mapping[str, torch.Tensor] = field(repr=False)
    best: int = 0
    unnoted: str = ''


class Stopped(Exception):  # noqa: N818
    """The job was ended before anything was trained; what was saved before is as it was."""


class Fleet(Protocol):
    """Devices to train on, and their trainer, as long as its context lasts."""

    trainer: Trainer

    def __enter__(self) -> Fleet:
        """Have the devices begin."""

    def __exit__(self, *error: object) -> None:
        """Let go of the devices."""


class FleetMaker(Protocol):
    """Makes the devices of a job; `progress` is called at each turn of their trainer."""

    def __call__(self, prepared: Prepared, planner: Planner, options: JobOptions,
                 progress: Callable[[RoundCommit], None], base: Checkpoint | None) -> Fleet:
        """Make them; training begins with the checkpoint `base` where there is one."""


def process_fleet(prepared: Prepared, planner: Planner, options: JobOptions,
                  progress: Callable[[RoundCommit], None], base: Checkpoint | None) -> Fleet:
    """Return processes of this machine, one for each device."""
    return ProcessFleet(prepared.name, prepared.task, prepared.graph, prepared.topology, planner,
                        prepared.table, options.settings, options.slowed is not None, progress,
                        options.logs, options.threads, base, everywhere=not prepared.images)


class _SavedState:
    """
    What a job has in its file, or goes on from: `base`, and why (`note`).

    `round` is that of the newest checkpoint, 0 where there is none; `tried` the last that was to
    be saved, and `trouble` why it could not be, '' where it was.
    """

    def __init__(self, prepared: Prepared, options: JobOptions) -> None:
        self._prepared, self._options = prepared, options
        self.base: Checkpoint | None = None
        self.state: Mapping[str, torch.Tensor] = {}
        self.note = self.trouble = self.digest = ''
        self._best, self._valid = 0, False  # what is in the files
        self._samples = sample_facts(prepared.task, not prepared.images)
        if options.resume:
            self.base, place, why = newest_checkpoint(options.checkpoint)
            check_fits(self.base, prepared.task, prepared.graph, self._samples)
            self._valid = not why
            self.note = f'goes on from round {self.base.round} of {place}' + (
                f', since {why}' if why else '')
        self.begun = self.round = self.tried = self.base.round if self.base else 0

    def write(self, state: Mapping[str, torch.Tensor], number: int, loss: float,
              loss_of: Callable[[int], float]) -> None:
        """
        Write a state, and the best weights in it if they are others than before.

        `loss` is that of the last round, `loss_of` returns that of the best weights.
        """
        task, path, best = self._prepared.task, self._options.checkpoint, BestSoFar.of(state).round
        made = Checkpoint(
            whole_state(task, state), self._options.called or self._prepared.name, number,
            task.seed, task.batch, loss, len(task.data), self._options.training,
            data=self._samples)
        if best != self._best and (weights := best_weights(state)):
            write_checkpoint(without_link(best_of(path)), replace(
                made, state=whole_state(task, weights), round=best, loss=loss_of(best)))
            self._best = best
        self.digest = write_checkpoint(path, made, keep=self._valid or is_checkpoint(path))
        self.state, self.round, self._valid, self.trouble = state, number, True, ''

    def __str__(self) -> str:
        """Return what there is to go on from, '' if nothing is."""
        if not self.digest and not self.base:
            return ''
        path = self._options.checkpoint
        return f'; {path} has round {self.round}: resume from it' + (
            f' ({before} has the one before)' if (before := previous_of(path)).exists() else '')


class TrainingJob:
    """
    One training; `heard` takes its progress in the job's thread, at most once a turn of it.

    `make` makes what it trains on.

    :raises TaskError: if it is to resume from what is not a checkpoint of this task.
    """

    def __init__(self, prepared: Prepared, options: JobOptions,
                 heard: Callable[[Progress], None] = lambda progress: None,
                 make: FleetMaker = process_fleet) -> None:
        self._prepared, self._options, self._heard = prepared, options, heard
        self._make = make
        self._wish, self._asked = Wish.TRAIN, False
        self._saved = _SavedState(prepared, options)
        self._plans: list[tuple[int, TrainingPlan]] = []
        self._joules, self._counted = 0.0, self._saved.begun
        self._round_joules: float | None = None
        self._begun = time.monotonic()
        self._shown: tuple[object, ...] = ()
        self._loss = nan
        self._validation: Mapping[str, float | None] | None = None
        self._fleet: Fleet | None = None
        self._failed = 0
        sinks: list[RoundFile] = [MetricsFile(options.metrics, options.resume)] \
            if options.metrics else []
        if options.tensorboard:
            sinks.append(TensorBoard(options.tensorboard))
        self._log = RoundLog(prepared.task, sinks)

    @property
    def note(self) -> str:
        """What it resumes from, '' where it begins anew."""
        return self._saved.note

    @property
    def saved_round(self) -> int:
        """The round of the newest checkpoint, 0 where there is none."""
        return self._saved.round

    @property
    def wish(self) -> Wish:
        """What the job is to do."""
        return self._wish

    def pause(self) -> None:
        """Leave the processor to others after the round at hand, until `resume`."""
        if self._wish is Wish.TRAIN:
            self._wish = Wish.PAUSE

    def resume(self) -> None:
        """Go on exactly where it was paused."""
        if self._wish is Wish.PAUSE:
            self._wish = Wish.TRAIN

    def stop(self) -> None:
        """Save and end after the round at hand."""
        self._wish = Wish.STOP

    def run(self) -> Outcome:
        """
        Train until the last round, or until it is stopped.

        :raises Stopped: if it was stopped before its first round.
        :raises TrainingError: if no device is left, the state of stages is lost, or the result
            cannot be written; the text names what is saved.
        """
        prepared, options = self._prepared, self._options
        planner = steady(beginning(options.plan, replanner(
            prepared.task, prepared.table, prepared.topology, images=prepared.images)))
        try:
            with self._make(prepared, planner, options, self._look, self._saved.base) as fleet:
                try:
                    return self._train(fleet)
                except TrainingError as error:
                    raise TrainingError(f'{error}{self._rescued(fleet.trainer)}') from error
        except TrainingError as error:
            unnoted = self._log.finish()
            raise TrainingError(f'{error}{self._saved}{unnoted and "; "}{unnoted}') from error

    def _rescued(self, trainer: Trainer) -> str:
        """Save the newest finite state that devices hold where training failed; say what fails."""
        commit, said = trainer.commit, ''
        if commit.phase is not Phase.FAILED:
            return ''
        for tag in commit.whole_tags():
            if tag <= self._saved.round:
                break
            try:
                state = trainer.collect(RESCUE, tag)
            except TrainingError as error:
                said = f'; round {tag} could not be saved: {error}'
                continue
            if not_finite(state, self._prepared.task.module):
                continue  # it went wrong before it showed
            if tag - 1 in commit.figures:
                self._loss = float(commit.figures[tag - 1]['loss'])
            try:
                self._write(state, tag)
            except OSError as error:
                return f'; round {tag} could not be saved: {error.strerror or error}'
            return ''
        return said

    def _train(self, fleet: Fleet) -> Outcome:
        self._fleet, trainer = fleet, fleet.trainer
        if not self._options.resume and is_checkpoint(best_of(self._options.checkpoint)):
            best_of(self._options.checkpoint).unlink()  # of a training before
        trainer.commit.rescues = True
        while True:
            trainer.run(until=lambda commit: commit.phase is Phase.PAUSED)
            done = trainer.commit.phase is Phase.DONE
            if trainer.commit.rescue is not None:
                self._rescue(trainer, trainer.commit.rescue)
            reached = trainer.commit.reached
            if reached is not None:
                try:
                    state = trainer.collect()
                    self._failed = 0
                except TrainingError:
                    self._failed += 1
                    if self._failed > MOST_FAILED:
                        raise
                    reached, done = None, False  # a device left meanwhile: those that stay go on
                else:
                    self._check_finite(state, reached)
                    self._save(state, reached, done)
            if done or reached is not None and self._wish is Wish.STOP:
                return self._outcome(trainer.commit, done)
            if reached is not None:
                trainer.run(until=partial(self._paused, number=reached))
            self._asked = False
            trainer.go_on()
            trainer.run(until=lambda commit: commit.phase is not Phase.PAUSED)

    def _rescue(self, trainer: Trainer, tag: int) -> None:
        """Save a state of which others have not all; where it does not come they go back."""
        try:
            state = trainer.collect(RESCUE, tag)
        except TrainingError:
            return
        self._check_finite(state, tag)
        self._save(state, tag, done=False)

    def _check_finite(self, state: Mapping[str, torch.Tensor], number: int) -> None:
        """Let training fail where a state holds values that are not numbers."""
        assert self._fleet is not None
        if bad := not_finite(state, self._prepared.task.module):
            self._fleet.trainer.commit.phase = Phase.FAILED
            raise TrainingError(f'training has diverged: at round {number} {bad} holds values '
                                'that are not numbers')

    def _paused(self, commit: RoundCommit, number: int) -> bool:
        """Show that it is paused; return whether that is over."""
        if waits := self._wish is Wish.PAUSE:
            self._show(commit, 'paused', number)
        return not waits

    def _save(self, state: Mapping[str, torch.Tensor], number: int, done: bool) -> None:
        """
        Save a state; where that fails training goes on, and saves later.

        At the end it is tried again and again: somebody may make room.
        """
        prepared, begun = self._prepared, time.monotonic()
        assert self._fleet is not None
        saved, trainer = self._saved, self._fleet.trainer
        saved.tried = number
        trainer.start_from(number, by_layer(prepared.graph, state))
        while True:
            try:
                self._write(state, number)
                return
            except OSError as error:
                saved.trouble = (f'{self._options.checkpoint} cannot be written: '
                                 f'{error.strerror or error}')
            stops = self._wish is Wish.STOP
            if not done and not stops:
                return
            if time.monotonic() - begun > (UNSAVED_STOP if stops else UNSAVED):
                raise TrainingError(f'round {number} was reached, but {saved.trouble}')
            self._show(trainer.commit, 'saving', number)
            trainer.rest(ATTEMPT)

    def _write(self, state: Mapping[str, torch.Tensor], number: int) -> None:
        assert self._fleet is not None
        figures = self._fleet.trainer.commit.figures  # another trainer may have seen the best
        self._saved.write(state, number, self._loss, lambda best: float(
            figures.get(best - 1, {}).get('loss', nan)))

    def _look(self, commit: RoundCommit) -> None:
        """Follow the training: what is shown, and when it is to pause."""
        if commit.plan is None:
            if self._wish is Wish.STOP:
                raise Stopped
            self._show(commit, 'starting', self._saved.begun)
            return
        self._log.follow(commit)
        if commit.phase is Phase.PAUSED:
            if not commit.paused:
                self._show(commit, 'waiting for devices', commit.committed)
                if self._wish is Wish.STOP:
                    raise TrainingError('ended while no device was there')
            return
        if not self._plans or self._plans[-1][1] != commit.plan:
            self._plans.append((commit.committed, commit.plan))
            self._round_joules = self._joules_of(commit.plan)
        if commit.committed > self._counted:
            self._joules += (commit.committed - self._counted) * (self._round_joules or 0.0)
        self._counted = commit.committed
        if commit.committed and commit.committed - 1 in commit.figures:
            newest = commit.figures[commit.committed - 1]
            self._loss = float(newest['loss'])
            self._validation = newest['validation'] or self._validation
        state = 'training' if commit.phase is Phase.TRAINING else 'planning anew'
        if self._asked or commit.committed >= commit.rounds:
            state = 'saving'
        self._show(commit, state, commit.committed)
        every = self._options.save_every
        due = every and commit.committed >= self._saved.tried + every
        if commit.phase in (Phase.TRAINING, Phase.ENDING) and not self._asked and (
                due or self._wish is not Wish.TRAIN):
            self._asked = True
            assert self._fleet is not None
            self._fleet.trainer.pause()

    def _joules_of(self, plan: TrainingPlan) -> float | None:
        found = self._prepared.played(plan).joules
        return sum(found.values()) / (self._options.slowed or 1.0) if found else None

    def _show(self, commit: RoundCommit, state: str, number: int) -> None:
        recent = [float(commit.figures[k]['seconds'])
                  for k in range(number - RECENT, number) if k in commit.figures]
        task = self._prepared.task
        lost = tuple(dict.fromkeys(
            name for recovery in commit.recoveries for name in recovery.lost))
        trouble = self._saved.trouble or self._log.trouble
        progress = Progress(
            state, number, task.rounds, self._loss,
            task.batch / statistics.median(recent) if recent else 0.0,
            None if self._round_joules is None else self._joules,
            str(commit.plan) if commit.plan else '', len(commit.alive), lost, trouble,
            self._validation, sum(max(0, each.reached - each.tag) for each in commit.recoveries))
        shown = state, number, progress.plan, progress.devices, lost, trouble
        if shown != self._shown:
            self._shown = shown
            self._heard(progress)

    def _outcome(self, commit: RoundCommit, done: bool) -> Outcome:
        saved = self._saved
        return Outcome(done, saved.round, saved.begun, dict(commit.figures), self._plans,
                       commit.recoveries, time.monotonic() - self._begun,
                       None if self._round_joules is None else self._joules,
                       self._options.checkpoint, saved.digest, saved.state,
                       BestSoFar.of(saved.state).round, self._log.finish())


def beginning(first: TrainingPlan | None, planner: Planner) -> Planner:
    """Return a planner that begins with a plan, where all of its devices are there."""
    def plan(devices: tuple[str, ...], before: TrainingPlan | None) -> TrainingPlan | None:
        if first is not None and before is None and {*first.participants} <= {*devices}:
            return first
        return planner(devices, before)
    return plan


def steady(planner: Planner) -> Planner:
    """Return a planner that keeps the plan as long as the same devices are there."""
    last: list[tuple[tuple[str, ...], TrainingPlan]] = []

    def plan(devices: tuple[str, ...], before: TrainingPlan | None) -> TrainingPlan | None:
        if last and last[0][0] == devices:
            return last[0][1]
        found = planner(devices, before)
        if found is not None:
            last[:] = [(devices, found)]
        return found
    return plan
