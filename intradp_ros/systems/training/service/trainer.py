# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Trains a task over workers: carries reports to the state machine and its orders to devices."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
import hashlib
import queue
import secrets
import time
from typing import Any, Protocol

import torch

from intradp_ros.cluster.plan_id import NO_PLAN, PlanId
from intradp_ros.systems.training.base.task import TrainingTask
from intradp_ros.systems.training.layers.checkpoint import Checkpoint
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.plan.training_plan import Planner
from intradp_ros.systems.training.run.snapshots import (
    most_bytes,
    pack,
    pieces_of,
    TRAINER,
    unpack,
)
from intradp_ros.systems.training.run.stage_runner import by_layer
from intradp_ros.systems.training.run.validation import parts_of
from intradp_ros.systems.training.run.weight_exchange import Exchange, given_key
from intradp_ros.systems.training.service.round_commit import Order, Phase, RoundCommit

#: Seconds without a sign of life after which a device counts as lost.
SILENCE = 2.5
#: What a device may say of itself in a plan: of each group, and a few to spare.
MOST_WORDS = 64
#: Seconds for which more of the state of a device that counts as lost may come: what it sends may
#: hold up its signs of life.
PARTING = 4.0


class TrainingError(RuntimeError):
    """Training that could not be brought to its end; the text says why."""


class Link(Protocol):
    """The way to a device's worker."""

    def send(self, order: Mapping[str, Any]) -> None:
        """Send an order; one to a worker that is gone is dropped."""

    def kill(self) -> None:
        """End the worker, whatever it does."""


@dataclass
class Trainer:
    """
    Runs one training.

    `events` takes (device, report) from any thread, (device, None) when its worker is gone.
    `beats` says whether workers send signs of life; where they do, silence means loss.
    """

    commit: RoundCommit
    exchange: Exchange
    links: dict[str, Link] = field(default_factory=dict)
    beats: bool = False
    progress: Callable[[RoundCommit], None] = lambda commit: None
    events: queue.Queue[tuple[str, Mapping[str, Any] | None]] = field(default_factory=queue.Queue)
    _heard: dict[str, float] = field(default_factory=dict)
    _ended: list[str] = field(default_factory=list)
    _base: Mapping[int, Mapping[str, torch.Tensor]] = field(default_factory=dict)
    _given: dict[int, str] = field(default_factory=dict)
    _brought: dict[str, tuple[str, str]] = field(default_factory=dict)
    _met: dict[str, int] = field(default_factory=dict)
    _meeting: PlanId = NO_PLAN

    def add(self, device: str, link: Link) -> None:
        """Let a device take part from the next plan on; orders before are not for this link."""
        self.events.put((device, {'report': 'joined', 'link': link}))

    def pause(self) -> None:
        """Let all leave their plan between two rounds; from any thread."""
        self.events.put(('', {'report': 'pause'}))

    def resume(self) -> None:
        """Go on after a pause; from any thread."""
        self.events.put(('', {'report': 'resume'}))

    def run(self, deadline: float = float('inf'), rounds: float = float('inf'),
            until: Callable[[RoundCommit], bool] = lambda commit: False) -> None:
        """
        Train until all rounds are done, or so many are, or `until` says so.

        :raises TrainingError: if no device is left, nothing goes on, or the deadline (s from now)
            is over.
        """
        end = time.monotonic() + deadline
        while self.commit.phase not in (Phase.DONE, Phase.FAILED) and \
                self.commit.committed < rounds and not until(self.commit):
            self._turn()
            if time.monotonic() > end:
                raise TrainingError(f'not done after {deadline:.0f} s: {self.commit.phase.value}, '
                                    f'round {self.commit.committed}')
            self.progress(self.commit)
        if self.commit.phase is Phase.FAILED:
            raise TrainingError(self.commit.why)

    def _turn(self) -> None:
        try:
            device, report = self.events.get(timeout=0.1)
        except queue.Empty:
            device, report = '', {}
        now = time.monotonic()
        orders: list[Order] = []
        if device:
            orders = self._take(device, report, now)
        elif report:
            orders = self.commit.pause(now) if report['report'] == 'pause' else \
                self.commit.resume(now)
        orders += self.commit.tick(now)
        if self.beats and self.events.empty():  # what waits there may be signs of life
            for name in [n for n in sorted(self.commit.alive)
                         if now - self._heard.get(n, now) > SILENCE]:
                orders += self.commit.lost(name, now, silent=True)
        self._give(orders)

    def _take(self, device: str, report: Mapping[str, Any] | None, now: float) -> list[Order]:
        if report is None:
            self._ended.append(device)
            return self.commit.lost(device, now)
        self._heard[device] = now
        if report['report'] == 'joined':
            if 'link' in report:
                self.links[device] = report['link']
            return self.commit.joined(device, now, report.get('held'), 'link' in report)
        if report['report'] == 'beat':
            # A device that was silent and speaks again takes part again.
            return self.commit.joined(device, now) if device not in self.commit.alive and \
                device in self.links and report.get('ready') else []
        if report['report'] == 'meet':
            self._introduce(device, report)
            return []
        if report['report'] == 'collected':
            self._brought[device] = report['key'], report['digest']
            return []
        return self.commit.reported(device, report, now)

    def start_from(self, number: int, layers: Mapping[int, Mapping[str, torch.Tensor]]) -> None:
        """
        Have a checkpoint of that round, by layer, for when the devices have no newer state.

        A training that has not begun begins with it.
        """
        self._base, self.commit.base = layers, number
        self._given.clear()
        self.exchange.withdraw()

    def _give(self, orders: list[Order]) -> None:
        for order in orders:
            body = order.body
            if body['order'] == 'plan':
                body = {**body, 'given': {
                    layer: self._offered(layer) for source, target, layers in body['moves']
                    if (source, target) == (TRAINER, order.device) for layer in layers}}
            if (link := self.links.get(order.device)) is not None:  # another thread may drop it
                link.send(body)

    def _offered(self, layer: int) -> str:
        """Let workers fetch a layer of the checkpoint; return its digest."""
        if layer not in self._given:
            packed = partial(pack, {0: self._base[layer]})
            self._given[layer] = hashlib.sha256(packed()).hexdigest()
            self.exchange.offer(given_key(self.commit.base, layer), packed)
        return self._given[layer]

    def _introduce(self, device: str, report: Mapping[str, Any]) -> None:
        """Have the others of a plan know what a device says of itself."""
        commit, plan = self.commit, PlanId(*report['plan'])
        if plan != commit.number or commit.plan is None or \
                device not in commit.plan.participants:
            return
        if plan != self._meeting:
            self._meeting = plan
            self._met.clear()
        self._met[device] = count = self._met.get(device, 0) + 1
        if count > MOST_WORDS:
            return
        order = {**report, 'order': 'meet', 'device': device}
        del order['report']
        for name in commit.plan.participants:
            if name != device and (link := self.links.get(name)) is not None:
                link.send(order)

    def gather(self, enough: Callable[[], bool]) -> None:
        """Let time pass until enough devices are there, then order the first plan."""
        while not enough():
            self._turn()
            self.progress(self.commit)
        self.go_on()

    def begin(self, devices: int, wait: float = 300.0) -> None:
        """
        Wait for as many devices, then order the first plan.

        :raises TrainingError: if they do not come, or one of them ends before.
        """
        end = time.monotonic() + wait

        def enough() -> bool:
            if (there := len(self.commit.alive)) < devices and self._ended:
                raise TrainingError(self.commit.why or f'the process of {self._ended[0]} ended '
                                    'before it was ready')
            if there < devices and time.monotonic() > end:
                raise TrainingError(f'{there} of {devices} devices came within {wait:.0f} s')
            return there >= devices
        self.gather(enough)

    def collect(self, wait: float = 60.0, tag: int | None = None) -> dict[str, torch.Tensor]:
        """
        Return the whole state of a tag, by default that at which all devices stand.

        :raises TrainingError: if a device does not give its part, or nothing more of it comes for
            `wait` seconds.
        """
        found: dict[str, torch.Tensor] = {}
        commit = self.commit
        tag = commit.reached if tag is None else tag
        if tag is None:
            raise TrainingError('the devices of the plan do not stand at one round')
        try:
            holders = commit.holders(tag)
        except KeyError as error:
            raise TrainingError(f'devices left with weights of which nobody else has the newest: '
                                f'{error.args[0]}') from None
        pieces = [(name, piece) for name, has in holders.items()
                  for piece in pieces_of(has, [commit.sizes[k] for k in has])]
        for name, layers in pieces:
            key = f'collect/{commit.number.epoch}/{layers[0]}/{secrets.token_hex(8)}'
            self.exchange.expect(key, most_bytes(commit.sizes))
            try:
                body = self._collected(name, {'order': 'collect', 'key': key, 'tag': tag,
                                              'layers': layers}, wait)
            finally:
                self.exchange.forget(key)
            for state in unpack(body, layers).values():
                found |= state
        return found

    def go_on(self) -> None:
        """Go on after a pause at once; from the thread that runs."""
        self._give(self.commit.resume(time.monotonic()))

    def rest(self, seconds: float) -> None:
        """Take what is reported, for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._turn()
            self.progress(self.commit)

    def _collected(self, device: str, order: Mapping[str, Any], wait: float) -> bytes:
        """Return what a device brings; TrainingError if nothing more of it comes for so long."""
        self.links[device].send(order)
        key = order['key']
        last, came = time.monotonic(), 0
        while True:
            brought, digest = self._brought.get(device, ('', ''))
            if brought == key and (body := self.exchange.taken(key, digest)) is not None:
                return body
            self._turn()
            if (more := self.exchange.arrived(key)) > came:
                last, came = time.monotonic(), more
            if time.monotonic() - last > (
                    wait if device in self.commit.held else min(wait, PARTING)):
                raise TrainingError(f'{device} did not give its weights' + (
                    ': what came in its name is not what it has' if brought == key else ''))

    def close(self) -> None:
        """End all workers."""
        for link in tuple(self.links.values()):
            link.send({'order': 'end'})


def trainer_of(task: TrainingTask, graph: LayerGraph, planner: Planner, timeout: float,
               exchange: Exchange,
               progress: Callable[[RoundCommit], None], base: Checkpoint | None,
               waits: bool = False) -> Trainer:
    """
    Return the trainer of a task over workers that send signs of life.

    It begins with the checkpoint `base` where there is one; `timeout` is a worker's longest wait
    (s), `waits` as in `RoundCommit`.
    """
    sizes = tuple(float(graph.nbytes(k)) for k in range(len(graph.layers)))
    trainer = Trainer(
        RoundCommit(task.rounds, sizes, planner, 2 * timeout + 2, waits, parts_of(task)),
        exchange, beats=True, progress=progress)
    if base is not None:
        trainer.start_from(base.round, by_layer(graph, base.state))
    return trainer
