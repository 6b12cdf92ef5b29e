# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What trains on a device: takes orders, runs rounds of a plan, and reports.

It is a process of its own (or a thread, in tests), so that the device's heartbeats never stall
and SIGKILL is a way to end it.  Orders and reports are JSON objects, one a line::

    plan       {plan: [term, epoch], tag, what, moves}   begin at a tag; the plan before is dropped
    committed  {tag}                                     no one rolls back behind this tag
    stop       {}                                        all leave the plan after one round
    collect    {key}                                     put the state of these layers in the store
    attend     {host, port, address, seat, timeout, every}   another trainer, with its store
    end        {}

    ready {plan} | round {plan, round, loss, norm, samples, seconds} | replicated {plan, tag}
    idle  {plan, round, error, peer, cut, held}          the plan has ended here, and why
    joined {seat, held}                                  the orders of that trainer are taken
    fault {error}                                        nothing can be trained here
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
import queue
from typing import Any

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.systems.training.base.task import TrainingTask
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.plan.stage_actions import Action
from intradp_ros.systems.training.plan.training_plan import parse_plan
from intradp_ros.systems.training.run.plan_run import PlanRun, Report, TrainingDevice
from intradp_ros.systems.training.run.reachability import Reachability
from intradp_ros.systems.training.run.round_groups import GroupError
from intradp_ros.systems.training.run.snapshots import Move, pack, TornError
from intradp_ros.systems.training.run.stage_runner import StageRunner
from intradp_ros.systems.training.run.store_bytes import put_bytes
from intradp_ros.systems.training.run.worker_settings import Settings


class _LetGo(Exception):  # noqa: N818
    """The plan is not to be run on: another one has come."""


class Worker:
    """
    Trains on a device until it is told to end.

    `before` is called before every action with round and action: tests let it fail there.

    Raises
    ------
    DeviceError
        If there is no such device to compute on as `settings` name.

    """

    def __init__(self, name: str, task: TrainingTask, graph: LayerGraph, store: Callable[[], Any],
                 report: Report, settings: Settings,
                 before: Callable[[int, Action], None] = lambda number, action: None,
                 connect: Callable[[str, int], Any] | None = None) -> None:
        self.orders: queue.Queue[Mapping[str, Any]] = queue.Queue()
        self._device = TrainingDevice(name, task, graph, settings, store, report, before,
                                      open_device(settings.device),
                                      Reachability(name, settings.address, store()))
        self._connect, self._later = connect, list[Mapping[str, Any]]()
        self._run: PlanRun | None = None
        self._stage: StageRunner | None = None

    def run(self) -> None:
        """Carry out orders until told to end."""
        try:
            while True:
                order = self._later.pop(0) if self._later else self.orders.get()
                if order['order'] == 'end':
                    return
                if order['order'] == 'plan':
                    self._follow(order)
                elif order['order'] == 'collect':
                    self._collect(str(order['key']))
                elif order['order'] == 'attend':
                    self._attend(order)
                else:
                    self._note(order)
        finally:
            self._device.reachability.close()

    def _attend(self, order: Mapping[str, Any]) -> None:
        """Take the orders of another trainer: its store is another, what is held here stays."""
        assert self._connect is not None
        device, store = self._device, self._connect(str(order['host']), int(order['port']))
        device.store, device.settings = lambda: store, replace(
            device.settings, address=str(order['address']), timeout=float(order['timeout']),
            every=int(order['every']))
        device.reachability.close()
        device.reachability = Reachability(device.name, device.settings.address, store)
        device.report({'report': 'joined', 'seat': order['seat'],
                       'held': device.snapshots.held()})

    def _note(self, order: Mapping[str, Any]) -> None:
        if order['order'] == 'committed':
            self._device.snapshots.forget(int(order['tag']))
        elif order['order'] == 'stop' and self._run is not None:
            self._run.leaving = True

    def _collect(self, key: str) -> None:
        """Put this stage's state into the store, in chunks."""
        assert self._stage is not None
        put_bytes(self._device.store(), key, pack({0: self._stage.state()}))

    def _follow(self, order: Mapping[str, Any]) -> None:
        """Run rounds of a plan until it ends, and report what is held then."""
        device, number = self._device, PlanId(*order['plan'])
        run = self._run = PlanRun(device, parse_plan(order['what']), number, int(order['tag']))
        error, peer, cut = '', '', list[str]()
        try:
            run.begin([Move(a, b, tuple(c)) for a, b, c in order['moves']])
            self._stage = run.stage
            device.report({'report': 'ready', 'plan': number})
            while run.round < run.stop_at:
                self._hear()
                if run.round < run.stop_at:
                    run.play()
            run.finish()
        except _LetGo:
            pass
        except (GroupError, TornError) as failure:
            error, peer = str(failure), getattr(failure, 'peer', '')
            run.drop()
            cut = device.reachability.unreached(run.places)
        finally:
            run.drop()
        device.report({'report': 'idle', 'plan': number, 'round': run.round, 'error': error,
                       'peer': peer, 'cut': cut, 'held': device.snapshots.held()})
        run.close()

    def _hear(self) -> None:
        """Take orders that came meanwhile; those that end the plan wait until it is left."""
        while not self.orders.empty():
            order = self.orders.get()
            if order['order'] in ('plan', 'end', 'attend'):
                self._later.append(order)
                raise _LetGo
            self._note(order)
