# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The node that trains: a network learns in processes of this machine, as an action."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
import math
from pathlib import Path
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from std_srvs.srv import SetBool

from intradp_ros.action import Train
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.fleet_file import read_fleet
from intradp_ros.cluster.topology import behind_access_point, Topology
from intradp_ros.nodes.diagnostics import Diagnostics
from intradp_ros.nodes.goal_server import GoalServer
from intradp_ros.nodes.lifecycle import ManagedNode, run_node
from intradp_ros.nodes.parameters import Parameter
from intradp_ros.profiling.cache import cache_folder
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.runtime.admission import Fate
from intradp_ros.systems.training.checkpoint import read_checkpoint
from intradp_ros.systems.training.judgement import judge
from intradp_ros.systems.training.prepared import prepare
from intradp_ros.systems.training.round_groups import check_distributed, GroupError
from intradp_ros.systems.training.task import TaskError
from intradp_ros.systems.training.trainer import TrainingError
from intradp_ros.systems.training.training_job import (
    JobOptions,
    Outcome,
    Progress,
    Stopped,
    TrainingJob,
)
from intradp_ros.systems.training.worker import Settings

#: Seconds that saving and ending may take after a cancel; the longest wait of a device is in it.
GRACE = 60.0
#: Seconds between two messages of feedback that differ in figures only.
EVERY = 0.2


@dataclass(eq=False)
class _Goal:
    """One goal, until it has ended: its job as soon as there is one, and how it is to end."""

    task: str
    checkpoint: Path
    resume: bool
    report: Callable[[Any], None]
    finish: Callable[[Fate, Any], None]
    job: TrainingJob | None = None
    fate: Fate | None = None
    began: float = field(default_factory=time.monotonic)
    over: threading.Event = field(default_factory=threading.Event)


class TrainerNode(ManagedNode):
    """
    Serves the action `~/train`; `~/pause` (std_srvs/SetBool) leaves the machine to others.

    Devices are processes of this machine, one for each of `fleet_file`, or `processes` that are
    alike; other machines take no part.  What is trained are `tasks` of this machine: nothing that
    comes by the network is run.  Publishes `diagnostics`.
    """

    PARAMETERS = (
        Parameter('tasks', [''], 'What may be trained: "file.py:function" or '
                  '"package.module:function", of functions that return a TrainingTask. Goals name '
                  'one of them.'),
        Parameter('folder', '', 'Where checkpoints are kept; empty for the cache folder.'),
        Parameter('fleet_file', '', 'The devices, a process of this machine for each; empty for '
                  '`processes` that are alike.'),
        Parameter('processes', 1, 'Without fleet_file: devices of this machine.', 1, 64),
        Parameter('threads', 1, 'CPU threads of each process.', 1, 256),
        Parameter('save_every', 200, 'Rounds after which what was reached is saved; 0: only at '
                  'pauses and at the end.', 0, 1 << 30),
        Parameter('timeout_s', 3.0, 'Longest wait of a device for another one, which counts as '
                  'lost then.', 0.2, 600.0),
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('trainer_node', **kwargs)
        self._status = Diagnostics(self)
        self._lock = threading.Lock()
        self._goal: _Goal | None = None
        self._paused = False
        self._progress: Progress | None = None
        self._last, self._reported = '', 0.0

    def setup(self, parameters: dict[str, Any]) -> None:
        """Check what is to be trained, and on what."""
        prepare_process(1)
        try:
            check_distributed()
        except GroupError as error:
            raise ValueError(str(error)) from error
        self._tasks = [text for text in parameters['tasks'] if text]
        if not self._tasks:
            raise ValueError('parameter tasks is empty: name what may be trained, such as '
                             '"/home/robot/mytask.py:task"')
        self._settings = parameters
        if parameters['fleet_file']:
            self._topology = read_fleet(Path(parameters['fleet_file'])).topology
        else:
            alike = [Device(f'process{k + 1}') for k in range(parameters['processes'])]
            self._topology = behind_access_point(alike, 1e9) if len(alike) > 1 else \
                Topology(tuple(alike), (), {})
        self._folder = Path(parameters['folder'] or cache_folder() / 'training' / 'checkpoints')
        self._folder.mkdir(parents=True, exist_ok=True)
        self._diagnostics = self.publish_on(DiagnosticArray, 'diagnostics', 10)
        self.call_every(1.0, self._diagnose, self.until_cleanup)

    def start(self) -> None:
        """Take goals."""
        server = GoalServer(self, Train, None, '~/train', self._begin, GRACE)
        self.until_deactivated.callback(server.close)
        self.until_deactivated.callback(self._end)
        pause = self.create_service(SetBool, '~/pause', self._pause)
        self.until_deactivated.callback(self.destroy_service, pause)
        self.info(f'trains {", ".join(self._tasks)} in processes of this machine: '
                  f'{", ".join(self._topology.names)}; checkpoints in {self._folder}')

    def _end(self) -> None:
        """Save and end what is trained, before the node stops."""
        if goal := self._goal:
            self._cancel(goal, Fate.REFUSED)
            goal.over.wait(GRACE)

    def _begin(self, goal: Any, report: Callable[[Any], None],
               finish: Callable[[Fate, Any], None]) -> Callable[[Fate], None]:
        """Begin a goal."""
        task = goal.task or self._tasks[0]
        if task not in self._tasks:
            raise ValueError(f'{task!r:.200} is none of the tasks of this node: '
                             f'{", ".join(self._tasks)}')
        newest = self._newest(task) if goal.resume else None
        made = _Goal(task, newest or self._new_file(task), newest is not None, report, finish)
        with self._lock:
            if self._goal is not None:
                raise ValueError(f'{self._goal.task} is being trained: one at a time')
            self._goal = made
        threading.Thread(target=self._train, args=(made,), daemon=True).start()
        return lambda fate: self._cancel(made, fate)

    def _new_file(self, task: str) -> Path:
        now = time.strftime('%Y%m%d-%H%M%S')
        names = (f'{_function(task)}-{now}{more}.safetensors' for more in ('', *'bcdefghij'))
        return next(path for name in names if not (path := self._folder / name).exists())

    def _newest(self, task: str) -> Path | None:
        """Return the newest checkpoint of a task that can be read."""
        for path in sorted(self._folder.glob(f'{_function(task)}-*.safetensors'), reverse=True):
            try:
                if read_checkpoint(path).task == task:
                    return path
            except TaskError as error:
                self.warn(f'{path} is left out: {error}')
        return None

    def _cancel(self, goal: _Goal, fate: Fate) -> None:
        with self._lock:
            goal.fate = goal.fate or fate
            if goal.job:
                goal.job.stop()

    def _train(self, goal: _Goal) -> None:
        """Train for a goal, on a thread of its own, and end the goal."""
        fate, result = Fate.REFUSED, Train.Result()
        try:
            fate, result = self._trained(goal)
        except (TaskError, TrainingError, ValueError, OSError) as error:
            result = Train.Result(reason=str(error))
        except Stopped:
            fate, result = goal.fate or Fate.REFUSED, Train.Result(
                reason='ended before its first round')
        except BaseException as error:
            result = Train.Result(reason=f'{type(error).__name__}: {error}')
        if fate is not Fate.DONE:
            self.warn(f'training of {goal.task}: {fate.value}, {result.reason}')
        if not result.checkpoint and goal.resume:
            result.checkpoint = str(goal.checkpoint)
        self._last = f'{fate.value}{": " if result.reason else ""}{result.reason}'
        with self._lock:
            self._goal, self._progress = None, None
        goal.finish(fate, result)
        goal.over.set()

    def _trained(self, goal: _Goal) -> tuple[Fate, Any]:
        given = self._settings
        blank = Progress('preparing', 0, 0, math.nan, 0.0, None, '', 0, ())
        self._tell(goal, blank)
        prepared = prepare(goal.task, self._topology, step=self.info)
        job = TrainingJob(prepared, JobOptions(
            goal.checkpoint, given['save_every'], goal.resume,
            settings=Settings(timeout=given['timeout_s']), logs=self._folder,
            threads=given['threads']), lambda progress: self._tell(goal, progress))
        with self._lock:
            goal.job = job
            if self._paused:
                job.pause()
            if goal.fate:
                job.stop()
        while self._paused and goal.fate is None:
            self._tell(goal, replace(blank, state='paused', rounds=prepared.task.rounds))
            time.sleep(EVERY)
        outcome = job.run()
        return self._ended(goal, outcome, judge(prepared.task, outcome.state),
                           prepared.task.rounds)

    def _ended(self, goal: _Goal, outcome: Outcome, judged: Any, rounds: int) -> tuple[Fate, Any]:
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

    def _tell(self, goal: _Goal, progress: Progress) -> None:
        before, self._progress = self._progress, progress
        now = time.monotonic()
        if before and before.state == progress.state and before.lost == progress.lost and \
                now - self._reported < EVERY:
            return
        self._reported = now
        goal.report(Train.Feedback(
            state=progress.state, round=progress.round, rounds=progress.rounds,
            loss=progress.loss, samples_per_second=progress.samples_per_second,
            joules=math.nan if progress.joules is None else progress.joules, who=progress.plan,
            lost=list(progress.lost)))

    def _pause(self, request: Any, response: Any) -> Any:
        """Pause or go on; what is said holds for goals that come later, too."""
        with self._lock:
            self._paused = request.data
            job = self._goal.job if self._goal else None
            if job:
                (job.pause if request.data else job.resume)()
        response.success = True
        response.message = ('pauses after the round at hand' if job else 'nothing is trained; '
                            'goals wait') if request.data else 'trains'
        return response

    def _diagnose(self) -> None:
        progress, goal = self._progress, self._goal
        values: dict[str, Any] = {'paused': self._paused, 'last_goal': self._last or 'none'}
        message = 'paused' if self._paused else 'waiting for a goal'
        if progress and goal:
            message = progress.state
            values |= {'task': goal.task, 'round': f'{progress.round} of {progress.rounds}',
                       'loss': f'{progress.loss:.6g}',
                       'samples_per_second': f'{progress.samples_per_second:.3g}',
                       'joules_modelled': 'unknown' if progress.joules is None
                       else f'{progress.joules:.3g}',
                       'who': progress.plan, 'lost': ', '.join(progress.lost),
                       'checkpoint': goal.checkpoint}
        well = not (progress and progress.lost)
        self._diagnostics.publish(self._status.status(message, values, {}, well=well))


def _function(task: str) -> str:
    """Return the name of a task's function, as part of a file's name."""
    return ''.join(c if c.isalnum() else '_' for c in task.rpartition(':')[2]) or 'task'


def main(args: list[str] | None = None) -> None:
    """Run the trainer node."""
    run_node(TrainerNode, args)


if __name__ == '__main__':
    main()
