# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Goals to train, for any node: action `~/train`, checkpoints; one at a time.

`~/pause` and `~/control_training` pause it; the latter also ends goals, and can be sealed.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
import math
from pathlib import Path
import re
import secrets
import threading
import time
from typing import Any, Protocol

from std_srvs.srv import SetBool

from intradp_ros.action import Train
from intradp_ros.cluster.topology import Topology
from intradp_ros.core.atomic_write import sole_writer
from intradp_ros.core.cache_folder import cache_folder
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.nodes.common.call_seals import CallSeals, serve, sros2_enforces
from intradp_ros.nodes.common.goal_server import GoalServer
from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.common.prometheus import Figure, Total
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.split.kernel_device import HOST
from intradp_ros.srv import ControlTraining
from intradp_ros.systems.training.base.task import described, split_name, TaskError
from intradp_ros.systems.training.layers.checkpoint import (
    Checkpoint,
    newest_checkpoint,
    write_checkpoint,
)
from intradp_ros.systems.training.layers.judgement import judge
from intradp_ros.systems.training.plan.prepared import check_there, prepare, read_images
from intradp_ros.systems.training.run.round_groups import check_distributed, GroupError
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service.trainer import TrainingError
from intradp_ros.systems.training.service.training_job import (
    FleetMaker,
    JobOptions,
    Outcome,
    process_fleet,
    Progress,
    Stopped,
    TrainingJob,
)

#: Seconds that saving and ending may take after a cancel; the longest wait of a device is in it.
GRACE = 60.0
#: Seconds between two messages of feedback that differ in figures only.
EVERY = 0.2
#: Bits of a training's number.
NUMBER_BITS = 52


@dataclass(frozen=True)
class Client:
    """Who waits for a training: takes its feedback, and its end."""

    report: Callable[[Any], None]
    finish: Callable[[Fate, Any], None]


@dataclass(eq=False)
class Goal:
    """
    One training, until it has ended: its job as soon as there is one, and how it is to end.

    It has a client for each goal that began or joined it, none where its coordinator was lost.
    """

    task: str
    resume: bool
    clients: list[Client]
    number: int = 0
    checkpoint: Path = Path()
    job: TrainingJob | None = None
    fate: Fate | None = None
    began: float = field(default_factory=time.monotonic)
    over: threading.Event = field(default_factory=threading.Event)


class Ground(Protocol):
    """What goals are trained on."""

    def check(self) -> None:
        """See whether a goal may begin; ValueError says why not."""

    def topology(self) -> Topology:
        """Return the devices that a goal which begins now may count on."""

    def held(self, task: str) -> tuple[int, bool] | None:
        """Return the training that devices hold and nobody leads: number, whether it pauses."""

    def maker(self, number: int) -> FleetMaker:
        """Return what makes the devices of a training of that number."""

    def ended(self, number: int) -> None:
        """Take notice that a training has ended."""


class Processes:
    """Processes of this machine, one for each device of a topology."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def check(self) -> None:
        """Let any goal begin."""

    def topology(self) -> Topology:
        """Return the devices."""
        return self._topology

    def held(self, task: str) -> None:
        """Return nothing: processes end with this one."""

    def maker(self, number: int) -> FleetMaker:
        """Return what starts the processes."""
        return process_fleet

    def ended(self, number: int) -> None:
        """Do nothing: the processes have ended, too."""


class TrainingGoals:
    """
    Serves goals of one of some tasks, from `start` until the node is deactivated.

    With a key it takes what is sealed with it.

    :raises ValueError: if there is no task, no place of data, no such device to compute on, or
        this torch cannot talk to other processes.
    """

    def __init__(self, node: ManagedNode, ground: Ground, tasks: Sequence[str], folder: str,
                 save_every: int, timeout: float, images: Sequence[str] = (),
                 threads: int = 1, device: str = HOST.name, key: SharedKey | None = None) -> None:
        open_device(device)
        try:
            check_distributed()
        except GroupError as error:
            raise ValueError(str(error)) from error
        self.tasks = [text for text in tasks if text]
        if not self.tasks:
            raise ValueError('parameter tasks is empty: name what may be trained, such as '
                             '"/home/robot/mytask.py:task"')
        try:
            self._images = read_images(filter(None, images))
        except TaskError as error:
            raise ValueError(f'parameter images: {error}') from error
        for text in self.tasks:
            split_name(text)
        self._node, self._ground = node, ground
        self._save_every, self._threads, self._device = save_every, threads, device
        self._settings = Settings(timeout=timeout, device=device)
        self.folder = Path(folder or cache_folder() / 'training' / 'checkpoints')
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f'parameter folder: {self.folder} cannot be made '
                             f'({error.strerror}): name a folder that can be written') from error
        self._lock = threading.Lock()
        self._goal: Goal | None = None
        self._paused = False
        self._progress: Progress | None = None
        self._last, self._reported = '', 0.0
        self._seals = CallSeals(key, node.refuse, sros2_enforces())

    def check_images(self, topology: Topology) -> None:
        """See that the data lie on devices of a topology; ValueError if not."""
        check_there(self._images, topology, 'parameter images: ')

    def start(self) -> None:
        """Take goals."""
        node = self._node
        seals = self._seals
        server = GoalServer(node, Train, None, '~/train', self._begin, seals, GRACE)
        node.until_deactivated.callback(server.close)
        node.until_deactivated.callback(self._end)
        pause = serve(node, SetBool, '~/pause', seals, lambda request: SetBool.Response(
            success=True, message=self._pause(request.data)),
            lambda reason: SetBool.Response(message=reason))
        node.until_deactivated.callback(node.destroy_service, pause)
        control = serve(node, ControlTraining, '~/control_training', seals,
                        partial(self._controlled, server),
                        lambda reason: ControlTraining.Response(message=reason))
        node.until_deactivated.callback(node.destroy_service, control)

    def take_over(self, number: int, task: str, paused: bool) -> None:
        """Go on with a training that devices have begun for somebody who is gone."""
        if task not in self.tasks:
            last = f'{task!r:.200} is trained by devices, and none of the tasks of this node'
            if last != self._last:
                self._last = last
                self._node.warn(f'{last}: it is not taken over')
            return
        with self._lock:
            if self._goal is not None:
                return
            made = self._goal = Goal(task, True, [], number)
            self._paused = self._paused or paused
        self._node.info(f'takes over the training of {task}, which devices have begun')
        threading.Thread(target=self._train, args=(made,), daemon=True).start()

    def status(self) -> tuple[str, dict[str, Any], bool]:
        """Return what diagnostics say: a line, values, and whether all is well."""
        progress, goal = self._progress, self._goal
        values: dict[str, Any] = {'paused': self._paused, 'last_goal': self._last or 'none'}
        message = 'paused' if self._paused else 'waiting for a goal'
        if progress and goal:
            message = progress.state
            values |= {'task': goal.task, 'round': f'{progress.round} of {progress.rounds}',
                       'rounds_done': progress.round, 'loss': Figure(progress.loss, '.6g'),
                       'samples_per_second': Figure(progress.samples_per_second, '.3g'),
                       'joules_modelled': 'unknown' if progress.joules is None
                       else Figure(progress.joules, '.3g'),
                       'who': progress.plan, 'lost': ', '.join(progress.lost),
                       'checkpoint': goal.checkpoint, 'trouble': progress.trouble,
                       'rounds_replayed': Total(progress.replayed),
                       **{f'validation_{name}': Figure(value, '.6g')
                          for name, value in (progress.validation or {}).items()
                          if value is not None}}
        return message, values, not (progress and (progress.lost or progress.trouble))

    def _end(self) -> None:
        """Save and end what is trained, before the node stops."""
        if goal := self._goal:
            self._cancel(goal, Fate.REFUSED)
            goal.over.wait(GRACE)

    def _begin(self, goal: Any, report: Callable[[Any], None],
               finish: Callable[[Fate, Any], None]) -> Callable[[Fate], None]:
        """Begin a goal."""
        task = goal.task or self.tasks[0]
        if task not in self.tasks:
            raise ValueError(f'{task!r:.200} is none of the tasks of this node: '
                             f'{", ".join(self.tasks)}')
        self._ground.check()
        with self._lock:
            made = self._goal
            if made is None:
                made = self._goal = Goal(task, goal.resume, [])
                threading.Thread(target=self._train, args=(made,), daemon=True).start()
            elif made.task != task or not goal.resume or made.fate is not None:
                raise ValueError(f'{made.task} is being trained: one at a time' + (
                    '' if made.task != task else '; a goal with resume joins it'
                    if made.fate is None else '; send the goal again when this one is saved'))
            made.clients.append(Client(report, finish))
            if self._progress:
                report(_feedback(self._progress))
        return partial(self._cancel, made)

    def _place(self, goal: Goal) -> bool:
        """
        Find what a training goes on from: what devices hold, a checkpoint, or nothing.

        Checkpoints of other trainings are not of one that devices hold, whatever their round.
        Return whether devices hold it.
        """
        held = bool(goal.number)
        if goal.resume and not held and (found := self._ground.held(goal.task)):
            held, goal.number = True, found[0]
            self._paused = self._paused or found[1]
        newest = self._newest(goal.task) if goal.resume else None
        if newest and held and newest[1].training != goal.number:
            newest = None
        goal.number = goal.number or secrets.randbits(NUMBER_BITS)
        goal.resume = newest is not None
        if newest:
            goal.checkpoint = newest[0]
            if newest[1].training != goal.number:  # from now on it is of this training
                write_checkpoint(newest[0], replace(newest[1], training=goal.number))
        else:
            goal.checkpoint = self._new_file(goal.task)
        return held

    def _files(self, task: str) -> list[tuple[int, str, Path]]:
        """
        Return number, name and path of the checkpoints of a task's function, the newest last.

        They are numbered: clocks of robots may start anywhere.  Those of before are not.
        """
        found = []
        for path in self.folder.glob(f'{_function(task)}-*.safetensors'):
            numbered = re.fullmatch(r'.*-(\d+)-\d{8}-\d{6}\.safetensors', path.name)
            # .previous is tried where the newer one is of no use; nothing goes on from .best
            if not path.stem.endswith(('.previous', '.best')):
                found.append((int(numbered[1]) if numbered else 0, path.name, path))
        return sorted(found)

    def _new_file(self, task: str) -> Path:
        number = max((number for number, *_ in self._files(task)), default=0) + 1
        now = time.strftime('%Y%m%d-%H%M%S')
        return self.folder / f'{_function(task)}-{number:05d}-{now}.safetensors'

    def _newest(self, task: str) -> tuple[Path, Checkpoint] | None:
        """Return the newest checkpoint of a task that can be read."""
        for *_, path in reversed(self._files(task)):
            try:
                found, place, why = newest_checkpoint(path)
                if why:
                    self._node.warn(f'{place} is taken, since {why}')
                if found.task == task:
                    return path, found
            except TaskError as error:
                self._node.warn(f'{path} is left out: {error}')
        return None

    def _cancel(self, goal: Goal, fate: Fate) -> None:
        with self._lock:
            goal.fate = goal.fate or fate
            if goal.job:
                goal.job.stop()

    def _train(self, goal: Goal) -> None:
        """Train for a goal, on a thread of its own, and end the goal."""
        fate, result = Fate.REFUSED, Train.Result()
        try:
            fate, result = self._trained(goal)
        except (TaskError, TrainingError, ValueError, OSError) as error:
            fate, result = goal.fate or Fate.REFUSED, Train.Result(reason=str(error))
        except Stopped:
            fate, result = goal.fate or Fate.REFUSED, Train.Result(
                reason='ended before its first round')
        except BaseException as error:
            result = Train.Result(reason=f'{type(error).__name__}: {error}')
        said = f'training of {goal.task}: {fate.value}'
        if fate in (Fate.DONE, Fate.RESUMED):
            self._node.info(f'{said}, {result.round} rounds in {result.checkpoint}')
        else:
            self._node.warn(f'{said}, {result.reason}')
        if not result.checkpoint and goal.checkpoint.is_file():
            result.checkpoint = str(goal.checkpoint)
        self._last = f'{fate.value}{": " if result.reason else ""}{result.reason}'
        self._ground.ended(goal.number)
        with self._lock:
            self._goal, self._progress = None, None
        for client in goal.clients:
            client.finish(fate, result)
        goal.over.set()

    def _trained(self, goal: Goal) -> tuple[Fate, Any]:
        blank = Progress('preparing', 0, 0, math.nan, 0.0, None, '', 0, ())
        self._tell(goal, blank)
        held = self._place(goal)
        with sole_writer(goal.checkpoint):
            return self._run(goal, blank, held)

    def _run(self, goal: Goal, blank: Progress, held: bool) -> tuple[Fate, Any]:
        def step(text: str) -> None:
            if goal.fate:
                raise Stopped
            self._node.info(text)
        prepared = prepare(goal.task, self._ground.topology(), self._images, step, self._device)
        job = TrainingJob(
            prepared, JobOptions(goal.checkpoint, self._save_every, goal.resume,
                                 settings=self._settings, logs=self.folder,
                                 threads=self._threads, training=goal.number,
                                 metrics=goal.checkpoint.with_suffix('.jsonl')),
            lambda progress: self._tell(goal, progress), self._ground.maker(goal.number))
        with self._lock:
            goal.job = job
            if self._paused:
                job.pause()
            if goal.fate:
                job.stop()
        # what devices hold they drop when nobody comes for it: it is saved first, then paused
        while self._paused and goal.fate is None and not held:
            self._tell(goal, replace(blank, state='paused', rounds=prepared.task.rounds))
            time.sleep(EVERY)
        outcome, judged = job.run(), None
        if outcome.unnoted:
            self._node.warn(f'training of {goal.task}: {outcome.unnoted}')
        try:
            judged = judge(prepared.task, outcome.state)
        except Exception as error:  # of the task's code; what is trained is saved
            self._node.warn(f'what was trained cannot be judged: {described(error)}')
        return self._ended(goal, outcome, judged, prepared.task.rounds)

    def _ended(self, goal: Goal, outcome: Outcome, judged: Any, rounds: int) -> tuple[Fate, Any]:
        fate = goal.fate or Fate.REFUSED
        if outcome.done:
            fate = Fate.RESUMED if outcome.recoveries else Fate.DONE
        losses = [outcome.figures[k]['loss'] for k in sorted(outcome.figures)]
        accuracy = judged.accuracy if judged and judged.accuracy is not None else math.nan
        return fate, Train.Result(
            checkpoint=str(outcome.checkpoint), digest=outcome.digest, round=outcome.round,
            rounds=rounds, loss=float(losses[-1]) if losses else math.nan,
            check_loss=judged.loss if judged else math.nan, check_accuracy=accuracy,
            seconds=time.monotonic() - goal.began,
            reason='' if outcome.done else f'ended at round {outcome.round} of {rounds}; what was '
            'reached is saved')

    def _tell(self, goal: Goal, progress: Progress) -> None:
        before, self._progress = self._progress, progress
        now = time.monotonic()
        if progress.trouble and not (before and before.trouble == progress.trouble):
            self._node.warn(f'training of {goal.task}: {progress.trouble}; it is tried again')
        if before and (before.state, before.lost, before.trouble) == (
                progress.state, progress.lost, progress.trouble) and \
                progress.round < progress.rounds and now - self._reported < EVERY:
            return
        self._reported = now
        feedback = _feedback(progress)
        for client in tuple(goal.clients):
            client.report(feedback)

    def _controlled(self, server: GoalServer, request: Any) -> Any:
        """Do what is asked of the training."""
        asked = ControlTraining.Request
        if request.what == asked.END:
            if not server.end(bytes(request.goal)):
                raise ValueError('no goal of this id is open')
            return ControlTraining.Response(success=True, message='it is saved and ends')
        if request.what not in (asked.PAUSE, asked.CONTINUE):
            raise ValueError(f'what is {request.what}: there are PAUSE, CONTINUE and END')
        return ControlTraining.Response(
            success=True, message=self._pause(request.what == asked.PAUSE))

    def _pause(self, pauses: bool) -> str:
        """Pause or go on, which holds for goals that come later, too; return what comes of it."""
        with self._lock:
            self._paused = pauses
            job = self._goal.job if self._goal else None
            if job:
                (job.pause if pauses else job.resume)()
        return ('pauses after the round at hand' if job else 'nothing is trained; '
                'goals wait') if pauses else 'trains'


def _function(task: str) -> str:
    """Return the name of a task's function, as part of a file's name."""
    return ''.join(c if c.isalnum() else '_' for c in task.rpartition(':')[2]) or 'task'


def _feedback(progress: Progress) -> Any:
    """Return progress as the action's feedback."""
    return Train.Feedback(
        state=': '.join(filter(None, (progress.state, progress.trouble))),
        round=progress.round, rounds=progress.rounds, loss=progress.loss,
        samples_per_second=progress.samples_per_second,
        joules=math.nan if progress.joules is None else progress.joules, who=progress.plan,
        lost=list(progress.lost))
