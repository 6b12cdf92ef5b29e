# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Devices that come, go, stop, lose links and are paused, at any moment, in model time.

Devices are models of `worker.py`: they form a group, move layers, step rounds together, copy
snapshots and leave, with messages and copies that take a while; the trainer's decisions are the
real ones.  A device that lacks a layer when a plan begins would train something else.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
import heapq
import itertools
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from training_fleet import shuffled

from intradp_ros.systems.training.plan.training_plan import (
    parse_plan,
    Planner,
    TrainingPlan,
    TrainingStage,
)
from intradp_ros.systems.training.run.snapshots import backups, TRAINER
from intradp_ros.systems.training.service.round_commit import Phase, RoundCommit
from intradp_ros.systems.training.service.trainer import SILENCE, Trainer

NAMES = ('a', 'b', 'c', 'd')
LAYERS, ROUNDS, EVERY, TIMEOUT, ROUND = 6, 120, 5, 3.0, 0.1
#: The longest in which no round may count, though several things happen at once.
STILL = 4 * TIMEOUT


@dataclass
class Figures:
    grains: int = 8
    micro_batches: int = 2


@dataclass
class Device:
    """A worker's process: what it holds and where it stands."""

    name: str
    world: World
    up: bool = True
    stopped: bool = False
    kept: dict[int, set[int]] = field(default_factory=dict)
    orders: list[Any] = field(default_factory=list)
    waiting: list[Callable[[], None]] = field(default_factory=list)
    group: Group | None = None
    round: int = 0
    leaving: bool = False
    waits: frozenset[str] = frozenset()  # for whom
    mark: int = 0

    def soon(self, what: Callable[[], None], low: float = 0.0, high: float = 0.02) -> None:
        """Do something in a while, if this process is still there; later where it is stopped."""
        def run() -> None:
            if self.up:
                if self.stopped:
                    self.waiting.append(run)
                else:
                    what()
        self.world.at(self.world.now + self.world.rng.uniform(low, high), run)

    def report(self, kind: str, **more: Any) -> None:
        assert self.group is not None
        self.world.to_trainer(self.name, {'report': kind, 'plan': list(self.group.number),
                                          **more})

    def ordered(self, body: Any) -> None:
        self.orders.append(body)
        if self.group is None:
            self.soon(self.next_order)

    def next_order(self) -> None:
        """Take orders while there is no plan."""
        while self.orders and self.group is None:
            order = self.orders.pop(0)
            if order['order'] == 'plan':
                self.begin(order)
            elif order['order'] == 'committed':
                self.forget(order['tag'])

    def forget(self, before: int) -> None:
        self.kept = {tag: has for tag, has in self.kept.items() if tag >= before}

    def begin(self, order: Any) -> None:
        self.leaving, self.round = False, order['tag']
        self.kept = {tag: has for tag, has in self.kept.items() if tag <= self.round}
        self.group = self.world.group(order)
        group = self.group
        self.soon(lambda: group.meet(self), 0.01, 0.3)

    def hear(self) -> bool:
        """Take orders between two rounds; return whether the plan goes on."""
        while self.orders:
            if self.orders[0]['order'] == 'plan':
                self.leave('')
                return False
            order = self.orders.pop(0)
            if order['order'] == 'committed':
                self.forget(order['tag'])
            elif order['order'] == 'stop':
                self.leaving = True
        return True

    def leave(self, error: str) -> None:
        """Report that the plan has ended here, and take the next order."""
        group, self.group, self.waits = self.group, None, frozenset()
        self.mark += 1
        assert group is not None
        cut = [name for name in group.plan.participants
               if error and not self.world.reach(self.name, name)]
        self.world.to_trainer(self.name, {
            'report': 'idle', 'plan': list(group.number), 'round': self.round, 'error': error,
            'peer': '', 'cut': cut, 'held': {tag: sorted(has) for tag, has in self.kept.items()}})
        group.left(self.name)
        self.soon(self.next_order)


@dataclass
class Group:
    """The connections of one plan: those that met, who waits for the end of a round, copies."""

    world: World
    number: Any
    plan: Any
    moves: Any
    tag: int
    met: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    arrived: dict[int, set[str]] = field(default_factory=dict)
    copying: dict[int, set[str]] = field(default_factory=dict)
    copied: dict[str, int] = field(default_factory=dict)
    last_copy: dict[str, int] = field(default_factory=dict)
    stop_at: int = ROUNDS

    def device(self, name: str) -> Device:
        return self.world.devices[name]

    def whole(self, names: Any) -> bool:
        """Whether all of them are in this group, compute, and reach each other."""
        return all(self.device(n).group is self and not self.device(n).stopped
                   for n in names) and all(
            self.world.reach(a, b) for a, b in itertools.combinations(sorted(names), 2))

    def left(self, name: str) -> None:
        """Who waits for this one learns that it is gone, where a link is left to learn by."""
        self.gone.add(name)
        for other in self.plan.participants:
            device = self.device(other)
            if device.group is self and self.world.reach(name, other):
                device.soon(lambda device=device: device.leave('someone left')
                            if device.group is self and name in device.waits else None)

    def wait(self, device: Device, names: Collection[str]) -> None:
        """Wait for others; that ends at once where one is gone, else with the time-out."""
        device.waits, device.mark = frozenset(names), device.mark + 1
        mark = device.mark

        def over() -> None:
            if device.group is self and device.mark == mark:
                device.leave('time-out')
        if any(self.world.reach(name, device.name) for name in device.waits & self.gone):
            device.leave('someone left')
        else:
            device.soon(over, TIMEOUT, TIMEOUT + 0.05)

    def goes_on(self, device: Device, what: Callable[[], None], longest: float = 0.02) -> None:
        """Let a device go on: what it waited for is on its way, whoever leaves now."""
        device.waits, device.mark = frozenset(), device.mark + 1
        device.soon(lambda: what() if device.group is self else None, 0.0, longest)

    def meet(self, device: Device) -> None:
        if device.group is not self:
            return
        self.met.add(device.name)
        self.wait(device, self.plan.participants)
        if self.met == set(self.plan.participants) and self.whole(self.met):
            for name in sorted(self.met):
                self.goes_on(self.device(name), lambda name=name: self.send(
                    self.device(name)), 0.5)

    def send(self, device: Device) -> None:
        """Send layers, and wait for those that are to come."""
        for source, _, layers in self.moves:
            assert source != TRAINER
            assert source != device.name or device.kept.get(self.tag, set()) >= set(layers), \
                f'{source} does not hold {layers} of {self.tag}'
        self.sent.add(device.name)
        self.wait(device, {a for a, b, _ in self.moves if b == device.name} - self.sent)
        for name in sorted(self.sent):
            other = self.device(name)
            if other.group is self and other.waits <= self.sent and name not in self.begun and \
                    all(self.world.reach(a, name) for a in other.waits):
                self.begun.add(name)
                self.goes_on(other, lambda other=other: self.moved(other))

    def moved(self, device: Device) -> None:
        """Begin with the layers of the tag."""
        for _, target, layers in self.moves:
            if target == device.name:
                device.kept.setdefault(self.tag, set()).update(layers)
        assert not self.tag or device.kept.get(self.tag, set()) >= self.layers(device), \
            f'{device.name} lacks layers of tag {self.tag}'
        device.report('ready')
        self.play(device)

    def play(self, device: Device) -> None:
        """Compute a round; its end is one for all."""
        if not device.hear():
            return
        if device.round >= self.stop_at:
            self.finish(device)
            return
        number = device.round
        device.soon(lambda: self.arrive(device, number), 0.5 * ROUND, ROUND)

    def arrive(self, device: Device, number: int) -> None:
        if device.group is not self:
            return
        there, names = self.arrived.setdefault(number, set()), self.plan.participants
        there.add(device.name)
        self.wait(device, names)
        if there == set(names) and self.whole(names):
            if any(self.device(name).leaving for name in names):
                self.stop_at = number + 1
            for name in names:
                self.goes_on(self.device(name), lambda name=name: self.step(
                    self.device(name), number))

    def step(self, device: Device, number: int) -> None:
        if device.group is not self:
            return
        device.round = number + 1
        device.report('round', round=number, loss=0.0, norm=0.0, samples=4, seconds=ROUND)
        if device.round % EVERY == 0 and device.round < ROUNDS:
            if self.last_copy.get(device.name, 0) != self.copied.get(device.name, 0):
                device.leave('the copy before did not come')
                return
            self.keep(device)
            self.last_copy[device.name] = device.round
            self.copying.setdefault(device.round, set()).add(device.name)
            tag = device.round
            device.soon(lambda: self.copy(device, tag), 0.0, EVERY * ROUND / 4)
        self.play(device)

    def layers(self, device: Device) -> set[int]:
        """Return what a device trains: nothing, where it only holds a copy."""
        place = self.plan.stage_of(device.name)
        return set() if place is None else set(range(self.plan.stages[place].first,
                                                     self.plan.stages[place].last))

    def keep(self, device: Device) -> None:
        if layers := self.layers(device):
            device.kept.setdefault(device.round, set()).update(layers)

    def copy(self, device: Device, tag: int) -> None:
        """Exchange copies with those that are to have them, if they are still there."""
        pairs = backups(self.plan)
        with_me = [b for a, b in pairs.items() if a == device.name] + [
            a for a, b in pairs.items() if b == device.name]
        if not all(name in self.copying[tag] and self.world.reach(name, device.name)
                   and self.device(name).up for name in with_me):
            return
        for source in [a for a, b in pairs.items() if b == device.name]:
            device.kept.setdefault(tag, set()).update(self.layers(self.device(source)))
        self.copied[device.name] = tag
        if device.group is self:
            device.report('replicated', tag=tag)

    def finish(self, device: Device) -> None:
        self.keep(device)
        device.leave('')


def some_alone(seed: int) -> Planner:
    """Return a planner of random plans, some of one device, of which another holds copies."""
    others = shuffled(seed, LAYERS, Figures())

    def plan(devices: tuple[str, ...], before: TrainingPlan | None) -> TrainingPlan | None:
        rng = random.Random(f'{seed} alone {devices}')
        if rng.random() < 0.6:
            return others(devices, before)
        name, *rest = rng.sample(devices, len(devices))
        return TrainingPlan((TrainingStage(0, LAYERS, ((name, 4),)),), 8, 2,
                            keepers=tuple(rest[:1]))
    return plan


class World:
    """Devices, links, the trainer, and a clock."""

    def __init__(self, seed: int, there: int, waits: bool) -> None:
        self.rng, self.now, self._queue = random.Random(seed), 0.0, list[Any]()
        self._numbers = itertools.count()
        self.devices: dict[str, Device] = {}
        self.groups: dict[Any, Group] = {}
        self.cut: set[frozenset[str]] = set()
        self.last_heard: dict[str, float] = {}
        self._quiet: dict[str, float] = {}
        self.commit = RoundCommit(ROUNDS, (1.0,) * LAYERS,
                                  some_alone(seed), 2 * TIMEOUT + 2,
                                  waits=waits)
        self.trainer = Trainer(self.commit, None, beats=True)
        self.still = self.reached = 0.0
        self.nobody: bool | None = None  # was there when it failed
        self.since = 0.0
        for name in NAMES[:there]:
            self.start(name)
        while len(self.commit.alive) < there:
            self.next()
        self.give(self.commit.resume(self.now))

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (when, next(self._numbers), what))

    def reach(self, a: str, b: str) -> bool:
        return frozenset((a, b)) not in self.cut

    def group(self, order: Any) -> Group:
        number = tuple(order['plan'])
        return self.groups.setdefault(number, Group(
            self, order['plan'], parse_plan(order['what']), order['moves'], order['tag']))

    def to_trainer(self, name: str, report: Any) -> None:
        """Carry a report, after those before it."""
        self._quiet[name] = max(self._quiet.get(name, 0.0),
                                self.now + self.rng.choice([0.001, 0.01, 0.3]))
        self.at(self._quiet[name], lambda: self.take(name, report))

    def take(self, name: str, report: Any) -> None:
        self.give(self.trainer._take(name, report, self.now))

    def give(self, orders: Any) -> None:
        if self.commit.phase is Phase.FAILED and self.nobody is None:
            self.nobody = not self.commit.alive
        for order in orders:
            device: Any = self.trainer.links[order.device]
            self.at(self.now + 0.001, lambda order=order, device=device: (
                device.ordered(order.body) if device.up else None))

    def start(self, name: str) -> None:
        """Start a device's process, ending one before."""
        self.kill(name)
        device = Device(name, self)
        self.devices[name] = device

        def begin() -> None:
            self.to_trainer(name, {'report': 'joined', 'link': device})
            self.beat(device)
        device.soon(begin, 0.5, 3.0)

    def beat(self, device: Device) -> None:
        self.to_trainer(device.name, {'report': 'beat', 'ready': True})
        device.soon(lambda: self.beat(device), 0.5, 0.5)

    def kill(self, name: str) -> None:
        device = self.devices.get(name)
        if device is None or not device.up:
            return
        device.up, group, device.group = False, device.group, None
        self.to_trainer(name, None)
        if group is not None:
            group.left(name)

    def stop(self, name: str, stopped: bool) -> None:
        if (device := self.devices.get(name)) is None:
            return
        device.stopped = stopped
        if not stopped:
            waiting, device.waiting = device.waiting, []
            for what in waiting:
                self.at(self.now, what)

    def next(self) -> None:
        """Let a moment pass: what is due, and a turn of the trainer."""
        when = self.now + 0.1
        while self._queue and self._queue[0][0] <= when:
            self.now, _, what = heapq.heappop(self._queue)
            what()
        self.now = when
        self.give(self.commit.tick(when))
        for name in [n for n in sorted(self.commit.alive)
                     if when - self.trainer._heard.get(n, when) > SILENCE]:
            self.give(self.commit.lost(name, when))
        if self.commit.committed > self.reached or self.commit.phase in (
                Phase.PAUSED, Phase.DONE, Phase.FAILED) or not self.commit.alive:
            self.since = when
        self.reached = self.commit.committed
        self.still = max(self.still, when - self.since)


Event = tuple[float, str, str, str]
KINDS = ('start', 'start', 'kill', 'stop', 'go on', 'cut', 'join', 'pause', 'resume')


def happen(world: World, event: Event) -> None:
    _, kind, name, other = event
    if kind == 'start':
        world.start(name)
    elif kind == 'kill':
        world.kill(name)
    elif kind in ('stop', 'go on'):
        world.stop(name, kind == 'stop')
    elif kind in ('cut', 'join'):
        change = world.cut.add if kind == 'cut' else world.cut.discard
        if name != other:
            change(frozenset((name, other)))
    else:
        world.give(getattr(world.commit, kind)(world.now))


def check(seed: int, there: int, events: list[Event], heals: bool, waits: bool) -> World:
    """Let it all happen; training ends, unless no device was left at some moment."""
    world, left = World(seed, there, waits), list(events)
    after = world.now + left[0][0] if left else 0.0
    while world.now < 2000.0 and world.commit.phase not in (Phase.DONE, Phase.FAILED):
        while left and world.now >= after:
            happen(world, left.pop(0))
            after += left[0][0] if left else 0.0
        if not left and events:
            events = []
            world.give(world.commit.resume(world.now))
            if heals:
                world.cut.clear()
                for name in world.devices:
                    world.stop(name, False)
        if not left and all(one.stopped or not one.up for one in world.devices.values()):
            break  # nobody is there, and nobody comes
        world.next()
    else:
        assert world.commit.phase is Phase.DONE or world.nobody and not waits, (
            world.commit.phase, world.commit.why, world.commit.committed)
    if world.commit.phase is Phase.DONE:
        assert sorted(world.commit.figures) == list(range(ROUNDS))
    return world


def events() -> st.SearchStrategy[list[Event]]:
    return st.lists(st.tuples(st.floats(0.0, 4.0), st.sampled_from(KINDS),
                              st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=14)


@settings(max_examples=100, derandomize=True)
@given(st.integers(0, 9999), st.integers(1, 4), events(), st.booleans(), st.booleans())
def test_whoever_comes_and_goes_training_ends_and_never_stands_still(seed, there, events, heals,
                                                                     waits):
    assert check(seed, there, events, heals, waits).still <= STILL
