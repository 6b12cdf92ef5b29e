# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""No error ends a loop that others live from: whatever call fails, the next turn comes."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
import queue
import threading
import time
from types import SimpleNamespace
from typing import Any

from fleets import cell, fleet, images
from hypothesis import given, Phase, settings
from hypothesis import strategies as st
import pytest
from sharing import assert_equal
from small_models import seeded, UNet
import torch
from waiting import wait_for

from intradp_ros.blobs.fetch_state import FetchTimes
from intradp_ros.blobs.store import BlobStore
from intradp_ros.core.steady import Steady
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.power.meter import EnergyMeter
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.runtime.member.fleet_member import FleetMember
from intradp_ros.runtime.member.heartbeats import Condition
from intradp_ros.runtime.member.planner import PlannerOf
from intradp_ros.runtime.member.role import Role
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.pipeline.interleaved_executor import InterleavedExecutor
from intradp_ros.runtime.requests.worker_thread import Worker
from intradp_ros.runtime.transport.memory_channel import memory_pair
from intradp_ros.runtime.transport.memory_network import MemoryNetwork
from intradp_ros.runtime.transport.sealed_stream import connect, SealedListener, SealedStream
from intradp_ros.runtime.transport.serial_executor import SerialExecutor
from intradp_ros.runtime.weights.fetcher import Wanted, WeightFetcher
from intradp_ros.runtime.weights.state import State
from intradp_ros.systems.language.slots import BlockSlot, Loader
from intradp_ros.systems.sharing.session import connection as connection_module
from intradp_ros.systems.sharing.session.connection import Connection
from intradp_ros.systems.training.run import worker_process
from intradp_ros.systems.training.run.tunnels import Tunnels
from intradp_ros.systems.training.service.session_fleet import SessionFleet
from intradp_ros.wire.frames import Control, ControlKind

#: Errors as they come where files, memory or threads are used up, and of mistakes.
ERRORS = (OSError(24, 'Too many open files'), MemoryError(), KeyError('x'), ValueError('odd'),
          RuntimeError("can't start new thread"), ZeroDivisionError(), RecursionError())
TURNS = st.lists(st.one_of(st.none(), st.sampled_from(ERRORS)), max_size=12)
SHAPE = (1, 3, 16, 24)


class Faults:
    """Lets calls fail as drawn: one after the other, whoever calls; then all work."""

    def __init__(self, drawn: list[Exception | None] | None = None) -> None:
        self._drawn, self._lock = list(drawn or []), threading.Lock()
        self.calls = 0

    @property
    def over(self) -> bool:
        return not self._drawn

    def wrap(self, true: Callable[..., Any], but: threading.Thread | None = None,
             ) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            if threading.current_thread() is but:
                return true(*given, **named)
            with self._lock:
                self.calls += 1
                error = self._drawn.pop(0) if self._drawn else None
            if error is not None:
                raise error
            return true(*given, **named)
        return run

    def on(self, owner: Any, *names: str, but: threading.Thread | None = None) -> None:
        for name in names:
            setattr(owner, name, self.wrap(getattr(owner, name), but))


@pytest.fixture(scope='module')
def model() -> SharedModel:
    return share_module(seeded(UNet, 16, 24), (torch.zeros(SHAPE),))


@given(TURNS)
@settings(max_examples=50, phases=[Phase.generate])
def test_a_turn_that_fails_is_counted_and_logged_and_the_next_one_comes(drawn: Any) -> None:
    faults, logged = Faults(drawn), list[str]()
    steady = Steady('a loop', faults.wrap(logged.append))
    work = faults.wrap(lambda: 'done')
    found = []
    while not faults.over or not found or found[-1] != 'done':
        found.append(steady.do(work, 'failed'))
    assert found.count('failed') == steady.failures
    assert all('a loop failed and goes on' in text for text in logged)
    assert len(logged) <= max(1, len(drawn))


def test_the_same_error_is_logged_once_and_names_its_place() -> None:
    logged: list[str] = []
    steady = Steady('a loop', logged.append)
    for _ in range(1000):
        steady.do(lambda: 1 // 0, 0)
    assert steady.failures == 1000 and len(logged) == 1
    assert 'ZeroDivisionError' in logged[0] and 'test_steady_loops.py' in logged[0]
    with pytest.raises(KeyboardInterrupt):
        steady.do(lambda: (_ for _ in ()).throw(KeyboardInterrupt), None)


@contextmanager
def network() -> Iterator[MemoryNetwork]:
    made = MemoryNetwork(cell(devices='ab'))
    try:
        yield made
    finally:
        made.close()


class Idle(Role):
    """Does nothing."""

    format = 'idle/1'  # noqa: A003

    def __init__(self) -> None:
        self.state = State()

    parse = lacking = load = use = keep = handle = close = lambda *given: None

    def busy(self) -> float:
        return 0.0


@given(TURNS)
@settings(max_examples=12, phases=[Phase.generate])
def test_a_heartbeat_comes_again(drawn: Any) -> None:
    """Whatever a device asks of its machine, its roles and its channels fails."""
    faults, heard = Faults(drawn), queue.SimpleQueue[Any]()
    with network() as made:
        channel, role = made.join('d'), Idle()
        made.join('coordinator').listen(lambda peer, frame: heard.put(frame))
        for name in ('busy', 'latencies'):
            faults.on(role, name)
        faults.on(channel, 'send', 'report')
        member = FleetMember(channel, [lambda host: role], faults.wrap(lambda text: None),
                             heartbeat=0.002, condition=faults.wrap(Condition))
        wait_for(lambda: faults.over)
        while not heard.empty():
            heard.get()
        heard.get(timeout=60)
        heard.get(timeout=60)
        member.close()


def test_a_plan_that_is_ordered_again_while_it_is_loaded_is_used() -> None:
    """As where PREPARE comes a second time after ABORT."""
    begun, go, used = threading.Event(), threading.Event(), list[Any]()

    class Slow(Idle):
        def parse(self, data: Any) -> Any:
            return SimpleNamespace(participants=('d',))

        def load(self, id_: Any, plan: Any) -> None:
            begun.set()
            go.wait(60)

        def use(self, id_: Any, boundary: int) -> None:
            used.append((id_, boundary))
    with network() as made:
        made.join('coordinator')
        member = FleetMember(made.join('d'), [lambda host: Slow()], lambda text: None)

        def order(kind: ControlKind, boundary: int = 0) -> None:
            member.handle('coordinator', Control(
                kind, 5, 1, boundary, {'plan': {'format': Idle.format}}))
        order(ControlKind.PREPARE)
        assert begun.wait(60)
        order(ControlKind.ABORT)
        order(ControlKind.PREPARE)
        go.set()
        wait_for(lambda: member.held() == ((5, 1),))
        order(ControlKind.COMMIT, 7)
        assert used == [((5, 1), 7)]
        member.close()


@given(TURNS)
@settings(max_examples=12, phases=[Phase.generate])
def test_a_coordinator_goes_on_beating_and_planning(drawn: Any) -> None:
    faults, heard, planned = Faults(drawn), queue.SimpleQueue[Any](), queue.SimpleQueue[Any]()

    class Planner(PlannerOf):
        def __init__(self) -> None:
            self.rests = False

        def plan(self, alive: Any, now: float) -> None:
            planned.put(alive)

        def look(self, now: float) -> None:
            return None

        def heard(self, message: Any, now: float) -> None:
            return None
    with network() as made:
        channel, planner = made.join('coordinator'), Planner()
        made.join('standby').listen(lambda peer, frame: heard.put(frame))
        faults.on(channel, 'send')
        faults.on(planner, 'plan', 'look', 'heard')
        coordinator = FleetCoordinator(
            channel, planner, faults.wrap(lambda text: None), candidates={'standby': 0},
            changed=faults.wrap(lambda: None), gathering=0.0)
        coordinator.expect('a')
        member = FleetMember(made.channel('a'), [lambda host: Idle()], lambda text: None,
                             heartbeat=0.01)
        wait_for(lambda: faults.over and coordinator.leads)
        for source in (heard, planned):
            while not source.empty():
                source.get()
            source.get(timeout=60)
        member.close()
        coordinator.close()


@given(TURNS)
@settings(max_examples=30, phases=[Phase.generate])
def test_threads_that_do_what_they_are_given_go_on(drawn: Any) -> None:
    faults, done = Faults(drawn), queue.SimpleQueue[str]()
    work = faults.wrap(lambda: done.put('work'))
    worker = Worker(lambda item: work(), faults.wrap(lambda error: None), 100)
    serial, runs = SerialExecutor('serial'), InterleavedExecutor('runs')
    for _ in range(len(drawn) + 1):
        worker.put('item')
        serial.put(work)
        runs.call(work)
    wait_for(lambda: faults.over)
    while not done.empty():
        done.get()
    for put in (lambda: worker.put('item'), lambda: serial.put(work), lambda: runs.call(work)):
        put()
        assert done.get(timeout=60) == 'work'
    worker.close()
    serial.close()
    runs.close()


@given(TURNS)
@settings(max_examples=10, phases=[Phase.generate])
def test_blobs_are_fetched_again(tmp_path_factory: Any, drawn: Any) -> None:
    faults, ended = Faults(drawn), queue.SimpleQueue[str]()
    store = BlobStore(tmp_path_factory.mktemp('store'), 1 << 20)
    with network() as made:
        channel = made.channel('a')
        faults.on(channel, 'send')
        faults.on(store, 'nbytes', 'check_room')
        fetcher = WeightFetcher(channel, store, faults.wrap(lambda text: None),
                                FetchTimes(hopeless=0.05))
        done = faults.wrap(ended.put)
        for _ in range(len(drawn) + 1):
            fetcher.want(Wanted({'0' * 64: 10}, frozenset('b'), frozenset(), done))
            time.sleep(0.005)
        with suppress(AssertionError):
            wait_for(lambda: faults.over, 2.0)
        faults._drawn.clear()
        last = Wanted({}, frozenset('b'), frozenset(), lambda reason: ended.put('last'))
        fetcher.want(last)
        end = time.monotonic() + 60
        while ended.get(timeout=max(0.1, end - time.monotonic())) != 'last':
            pass
        fetcher.close()


@given(TURNS)
@settings(max_examples=15, phases=[Phase.generate])
def test_a_loader_reads_on(tmp_path_factory: Any, drawn: Any) -> None:
    faults, store = Faults(drawn), BlobStore(tmp_path_factory.mktemp('store'), 1 << 20)
    digest = store.put(torch.arange(64, dtype=torch.uint8))
    loader, slot = Loader(store, 'test'), BlockSlot(store, 64)
    faults.on(store, 'read_into')
    loader.reading = faults.wrap(lambda *given: None)
    file: Any = SimpleNamespace(digest=digest, nbytes=64)
    for number in range(len(drawn) + 1):
        loader.load(slot, number, file)
        with suppress(Exception):
            loader.wait(slot, number, lambda: False)
    loader.load(slot, 99, file)
    assert loader.wait(slot, 99, lambda: False)
    lost: Any = SimpleNamespace(digest='f' * 64, nbytes=64)
    loader.load(slot, 100, lost)
    with pytest.raises(OSError, match='is not in'):
        loader.wait(slot, 100, lambda: False)
    loader.close()


@given(TURNS)
@settings(max_examples=8, phases=[Phase.generate])
def test_the_connection_to_a_server_beats_on(model: SharedModel, drawn: Any) -> None:
    faults, heard = Faults(drawn), queue.SimpleQueue[Any]()
    robot, server = memory_pair()
    server.listen(heard.put)
    faults.on(robot, 'send', 'report')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection_module, 'HEARTBEAT', 0.005)
        connection = Connection(model, robot, faults.wrap(lambda text: None))
        connection.start()
        wait_for(lambda: faults.over)
        while not heard.empty():
            heard.get()
        heard.get(timeout=60)
        connection.close()
    robot.close()
    server.close()


@given(TURNS)
@settings(max_examples=12, phases=[Phase.generate])
def test_a_meter_reads_on(drawn: Any) -> None:
    faults = Faults(drawn)
    meter = EnergyMeter(SimpleNamespace(source='meter', joules=faults.wrap(lambda now: now)), 1e-3)
    wait_for(lambda: faults.over)

    def reads() -> bool:
        now = time.monotonic()
        time.sleep(0.01)
        return meter.drawn(now, now + 0.005) is not None
    wait_for(reads)
    meter.close()


@given(TURNS)
@settings(max_examples=12, phases=[Phase.generate])
def test_lines_of_a_training_are_sent_again(drawn: Any) -> None:
    faults, ticks = Faults(drawn), [0, 0]

    def tick(which: int) -> None:
        ticks[which] += 1
    held = SimpleNamespace(
        _stop=threading.Event(), _log=faults.wrap(lambda text: None),
        _ways={name: SimpleNamespace(tick=faults.wrap(lambda k=k: tick(k)))
               for k, name in enumerate('ab')})
    thread = threading.Thread(target=SessionFleet._tick, args=(held,))
    thread.start()
    wait_for(lambda: faults.over)
    seen = tuple(ticks)
    wait_for(lambda: all(now > before for now, before in zip(ticks, seen)))
    held._stop.set()
    thread.join()


@given(TURNS)
@settings(max_examples=12, phases=[Phase.generate])
def test_a_training_process_shows_life_and_takes_orders(drawn: Any) -> None:
    faults, beats, orders = Faults(drawn), queue.SimpleQueue[Any](), list[Any]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_process, 'BEAT', 1e-3)
        over = threading.Event()

        def report(body: Any) -> None:
            if not over.is_set():  # the thread ends with the process
                beats.put(body)
        threading.Thread(target=worker_process._beat,
                         args=(faults.wrap(report), threading.Event()), daemon=True).start()
        wait_for(lambda: faults.over)
        while not beats.empty():
            beats.get()
        beats.get(timeout=60)
        over.set()
        lines = iter(['no json\n', '[]\n', '{"order": 1}\n', *['{"order": "x"}\n'] * (
            len(drawn) + 1), ''])
        taken = Faults(drawn).wrap(orders.append)
        patch.setattr('sys.stdin', SimpleNamespace(
            readline=lambda most: next(lines)))
        patch.setattr('os._exit', orders.append)
        worker_process._listen(SimpleNamespace(take=taken))
    assert orders[-2:] == [{'order': 'x'}, 0]


def test_a_tunnel_takes_connections_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where threads were used up for a while."""
    import socket
    tunnels = Tunnels('a', '127.0.0.1', bytes(32))
    end = tunnels.reach('b', ('127.0.0.1', 9), '127.9.8.7', 40123)
    faults = Faults(list(ERRORS))
    monkeypatch.setattr(tunnels, '_join', lambda own, place, purpose: own.close())
    monkeypatch.setattr(threading.Thread, 'start', faults.wrap(threading.Thread.start))
    until = time.monotonic() + 60
    while not faults.over and time.monotonic() < until:
        with suppress(OSError), socket.create_connection(('127.9.8.7', 40123), 1):
            pass
    with socket.create_connection(('127.9.8.7', 40123), 1) as one:
        one.settimeout(60)
        assert one.recv(1) == b''  # it was taken, and joined
    end()
    tunnels.close()


def test_a_listener_takes_streams_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where threads were used up for a while, and whatever fails of who takes a stream."""
    key, taken, failing = bytes(32), queue.SimpleQueue[str](), list(ERRORS)

    def take(purpose: str, stream: SealedStream) -> None:
        if failing:
            raise failing.pop()
        taken.put(purpose)
    monkeypatch.setattr(threading, 'excepthook', lambda given: None)
    listener = SealedListener('127.0.0.1', key, lambda purpose: True, take, 'listener')
    faults = Faults(list(ERRORS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, 'start', faults.wrap(threading.Thread.start))
        until = time.monotonic() + 60
        while not faults.over and time.monotonic() < until:
            with suppress(OSError):
                connect(listener.place, key, 'lost', 0.1).close()
    while failing and time.monotonic() < until:
        with suppress(OSError):
            connect(listener.place, key, 'fails', 1.0).close()
            time.sleep(0.01)
    assert faults.over and not failing
    connect(listener.place, key, 'last', 10.0)
    while taken.get(timeout=60) != 'last':
        pass
    wait_for(lambda: listener.streams == 0)
    listener.close()


@pytest.mark.parametrize('seed', range(3))
def test_a_pipeline_answers_every_frame_though_all_fails_for_a_while(model: SharedModel,
                                                                      seed: int) -> None:
    """What threads of all devices, their asker and the coordinator call of their channels."""
    frames = images(12, SHAPE)
    wanted = [model.results(dict(zip(model.split.captured.output_values, run_graph(
        model.split.captured, (frame,))))) for frame in frames]
    generator = torch.Generator().manual_seed(seed)
    drawn = [ERRORS[k] if k < len(ERRORS) else None for k in torch.randint(
        0, 3 * len(ERRORS), (300,), generator=generator).tolist()]
    with fleet(model, 'b,a,c') as made:
        faults = Faults(drawn)
        for channel in made.network._channels.values():
            faults.on(channel, 'send', 'report', but=threading.current_thread())
        answers = made.run([(frame,) for frame in frames[:6]])
        for answer, right in zip(answers, wanted):
            assert_equal(answer.outputs, right)
        faults._drawn.clear()

        def pipelined() -> bool:
            later = made.run([(frame,) for frame in frames])
            for answer, right in zip(later, wanted):
                assert_equal(answer.outputs, right)
            return all(answer.pipelined for answer in later)
        wait_for(pipelined, 60.0)
