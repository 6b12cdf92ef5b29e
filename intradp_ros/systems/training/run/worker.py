# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What trains on a device: takes orders, runs rounds of a plan, and reports.

It is a process of its own (or a thread, in tests), so that the device's heartbeats never stall
and SIGKILL is a way to end it.  Orders and reports are JSON objects, one a line::

    plan       {plan: [term, epoch], tag, what, moves, given}   begin at a tag; the plan
                                                         before is dropped; given: digests of the
                                                         trainer's
    meet       {plan, label, key, value, port, place, device}   what another device says of itself
    committed  {tag}                                     no one rolls back behind this tag
    stop       {}                                        all leave the plan after one round
    collect    {key, tag, layers}                        bring layers of a tag
    attend     {host, port, address, seat, timeout, every}   another trainer
    end        {}

    ready {plan} | replicated {plan, tag}
    round {plan, round, loss, norm, samples, seconds, validation}
    idle  {plan, round, error, fate, peer, cut, held}    the plan has ended here, and why; fate:
                                                         failed here, or diverged everywhere;
                                                         settled (`plan_run.py`)
    meet   {plan, label, key, value, port, place}        where this device listens
    collected {key, digest}                              the state was brought
    joined {seat, held}                                  the orders of that trainer are taken;
                                                         then, again, rounds since the last
                                                         tag that was committed
    fault {error}                                        nothing can be trained here
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
import queue
from typing import Any

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.systems.training.base.task import described, TaskError, TrainingTask
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.plan.stage_actions import Action
from intradp_ros.systems.training.plan.training_plan import parse_plan
from intradp_ros.systems.training.run.layer_traffic import Report, TrainingDevice
from intradp_ros.systems.training.run.meeting import Place
from intradp_ros.systems.training.run.plan_run import DivergedError, PlanRun
from intradp_ros.systems.training.run.round_groups import GroupError
from intradp_ros.systems.training.run.snapshots import Move, pack, TornError
from intradp_ros.systems.training.run.ways import WorkerWays
from intradp_ros.systems.training.run.worker_settings import Settings

#: How a plan ends where it was not left: by what failed in all of it, or on this device alone.
DIVERGED, FAILED = 'diverged', 'failed'
#: Rounds of which is kept what came of them.
MOST_ROUNDS = 1 << 12


class _LetGo(Exception):  # noqa: N818
    """The plan is not to be run on: another one has come."""


class Worker:
    """
    Trains on a device until an order ends it.

    `before` is called before every action with round and action: tests let it fail there.
    `trainer` is where its exchange listens, `key` that of all streams.

    :raises DeviceError: if there is no such device to compute on as `settings` name.
    :raises TunnelError: if the address is none of this device.
    """

    def __init__(self, name: str, task: TrainingTask, graph: LayerGraph, trainer: Place,
                 report: Report, settings: Settings,
                 before: Callable[[int, Action], None] = lambda number, action: None,
                 key: bytes = b'') -> None:
        self._orders: queue.Queue[Mapping[str, Any]] = queue.Queue()
        self._ways = WorkerWays(name, trainer, settings.address, key, report)
        self._report, self._rounds = report, dict[int, dict[str, Any]]()
        self._device = TrainingDevice(name, task, graph, settings, self._ways, self._tell, before,
                                      open_device(settings.device))
        self._later = list[Mapping[str, Any]]()
        self._run: PlanRun | None = None

    def take(self, order: Mapping[str, Any]) -> None:
        """Take an order, from any thread."""
        if order['order'] == 'meet':
            self._ways.take(order)
        else:
            self._orders.put(order)

    def run(self) -> None:
        """Carry out orders until one ends it."""
        try:
            while True:
                order = self._later.pop(0) if self._later else self._orders.get()
                if order['order'] == 'end':
                    return
                if order['order'] == 'plan':
                    self._follow(order)
                elif order['order'] == 'collect':
                    self._collect(order)
                elif order['order'] == 'attend':
                    self._attend(order)
                else:
                    self._note(order)
        finally:
            self._ways.close()

    def _attend(self, order: Mapping[str, Any]) -> None:
        """Take the orders of another trainer; what is held here stays."""
        device = self._device
        device.settings = replace(
            device.settings, address=str(order['address']), timeout=float(order['timeout']),
            every=int(order['every']))
        self._ways.attend((str(order['host']), int(order['port'])), device.settings.address)
        device.report({'report': 'joined', 'seat': order['seat'],
                       'held': device.snapshots.held()})
        for _, report in sorted(self._rounds.items()):
            self._report(report)  # what came of rounds that are held went to nobody, maybe

    def _tell(self, report: dict[str, Any]) -> None:
        """Report, and keep what came of rounds until nobody rolls back behind them."""
        if report['report'] == 'round':
            self._rounds[report['round']] = report
            self._rounds.pop(report['round'] - MOST_ROUNDS, None)
        self._report(report)

    def _note(self, order: Mapping[str, Any]) -> None:
        if order['order'] == 'committed':
            self._device.snapshots.forget(int(order['tag']))
            self._rounds = {number: report for number, report in self._rounds.items()
                            if number >= int(order['tag'])}
        elif order['order'] == 'stop' and self._run is not None:
            self._run.leaving = True

    def _collect(self, order: Mapping[str, Any]) -> None:
        """Bring layers of a tag to the trainer; what is not here it waits for in vain."""
        kept = self._device.snapshots.kept.get(int(order['tag']), {})
        if set(order['layers']) <= kept.keys():
            digest = self._ways.bring(order['key'], pack({k: kept[k] for k in order['layers']}))
            self._device.report({'report': 'collected', 'key': order['key'], 'digest': digest})

    def _follow(self, order: Mapping[str, Any]) -> None:
        """Run rounds of a plan until it ends, and report what is held then."""
        device, number = self._device, PlanId(*order['plan'])
        run = self._run = PlanRun(device, parse_plan(order['what']), number, int(order['tag']))
        error, fate, peer, cut = '', '', '', list[str]()
        try:
            run.begin([Move(a, b, tuple(c)) for a, b, c in order['moves']],
                      {int(layer): str(digest) for layer, digest in order['given'].items()})
            device.report({'report': 'ready', 'plan': number})
            while run.round < run.stop_at:
                self._hear()
                if run.round < run.stop_at:
                    run.play()
            run.finish()
            fate = run.fate
        except _LetGo:
            pass
        except (GroupError, TornError) as failure:
            error, peer = str(failure), getattr(failure, 'peer', '')
            run.drop()
            cut = self._ways.unreached(number)
            run.keep()
        except DivergedError as failure:
            error, fate = str(failure), DIVERGED
            run.keep()
        except Exception as failure:  # of the task's code: others may have better data
            run.drop()
            error, fate = str(failure) if isinstance(failure, TaskError) else \
                described(failure), FAILED
            run.keep()
        finally:
            run.drop()
        device.report({'report': 'idle', 'plan': number, 'round': run.round, 'error': error,
                       'fate': fate, 'peer': peer, 'cut': cut, 'held': device.snapshots.held()})
        run.close()

    def _hear(self) -> None:
        """Take orders that came meanwhile; those that end the plan wait until it is left."""
        while not self._orders.empty():
            order = self._orders.get()
            if order['order'] in ('plan', 'end', 'attend'):
                self._later.append(order)
                raise _LetGo
            self._note(order)
