# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Training as a role on devices of a fleet: over a network in memory, with workers as threads."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import contextlib
from dataclasses import replace
import json
from pathlib import Path
import threading
import time
from typing import Any

from fleets import cell
from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from safetensors.torch import load_file
import torch
from training_fleet import (
    adam,
    difference,
    fixed,
    Killed,
    layer_table,
    make_task,
)
from training_models import train_alone_drawing
from waiting import wait_for

from intradp_lab.training.one_process import train_alone
from intradp_ros.cluster.coordinator import CoordinatorTimes
from intradp_ros.cluster.membership import MemberTimes
from intradp_ros.cluster.plan_id import PlanError, PlanId
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.runtime.member.fleet_member import FleetMember
from intradp_ros.runtime.transport.memory_network import MemoryNetwork
from intradp_ros.systems.training.base.task import TensorData, TrainingTask
from intradp_ros.systems.training.layers.checkpoint import best_of, read_checkpoint
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.plan.prepared import Prepared
from intradp_ros.systems.training.run.weight_exchange import Exchange, stream_key
from intradp_ros.systems.training.run.worker import Worker
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service import session_fleet
from intradp_ros.systems.training.service.live_planner import TrainingPlanner
from intradp_ros.systems.training.service.messages import read_order, read_report
from intradp_ros.systems.training.service.role import (
    read_state_name,
    state_name,
    TrainingRole,
)
from intradp_ros.systems.training.service.session_fleet import SessionFleet
from intradp_ros.systems.training.service.session_plan import parse_session, TrainingSession
from intradp_ros.systems.training.service.trainer import TrainingError
from intradp_ros.systems.training.service.training_job import JobOptions, Outcome, TrainingJob
from intradp_ros.wire.frames import Control, ControlKind, MalformedFrameError

#: Threads that train leave others little time.
TIMES = CoordinatorTimes(MemberTimes(0.1, 0.8, 1.6, 0.2), rest=0.2)
NAME, ROUNDS, PATIENCE = 'night:task', 300, 90.0
SESSION = TrainingSession(7, NAME, {'loss': 'abc'}, {'a': 3, 'b': 4}, 'coordinator',
                          '127.0.0.1', 4000, 3.0, 5)


class ThreadWorker:
    """A worker in a thread that signs its life; it dies as a process does that is killed."""

    def __init__(self, site: Site, name: str, session: TrainingSession, address: str,
                 take: Callable[[str, Mapping[str, Any] | None], None]) -> None:
        def before(number: int, action: Any) -> None:
            time.sleep(site.rest)
            if site.dies == (name, number, str(action)) or site.left == name and site.copied():
                site.dies, site.left, site.rest = None, '', 0.0  # and who coordinates with it
                site.network.cut(name)
                site.network.cut('coordinator')
                self.dead = True
            if self.dead:
                raise Killed
        self.dead, self.over = False, threading.Event()
        self._take, self._name = take, name
        self.worker = Worker(name, site.task, site.graph, (session.host, session.port),
                             self._report, Settings(session.timeout, session.every, address),
                             before, stream_key(site.key, session.training))
        for run in (self._run, self._beat):
            threading.Thread(target=run, daemon=True).start()

    def _report(self, body: Mapping[str, Any]) -> None:
        self._take(self._name, json.loads(json.dumps(body)))

    def _run(self) -> None:
        self._report({'report': 'joined'})
        try:
            self.worker.run()
        except Killed:
            pass
        finally:
            self.over.set()
            self._take(self._name, None)

    def _beat(self) -> None:
        while not self.over.wait(0.3):
            self._report({'report': 'beat', 'ready': True})

    def send(self, order: Mapping[str, Any]) -> None:
        self.worker.take(json.loads(json.dumps(order)))

    def kill(self) -> None:
        self.dead = True
        self.worker.take({'order': 'end'})


class Lead:
    """A coordinator and what it trains, each training on a thread of its own."""

    def __init__(self, site: Site, name: str, priority: int = 0) -> None:
        self.site, self.results, self.fleets = site, list[Any](), list[SessionFleet]()
        self.timeout = 3.0
        self.planner = TrainingPlanner(self.take_over)
        self._busy = threading.Lock()
        self.coordinator = FleetCoordinator(
            site.channels[name], self.planner, site.log, times=TIMES, priority=priority,
            candidates={other: 0 for other in ('coordinator', 'standby') if other != name})
        self.coordinator.expect('abc')

    def begin(self, names: str) -> None:
        """Train from now on, with devices that join."""
        for name in names:
            self.site.device(name)
        wait_for(lambda: self.coordinator.leads and self.coordinator.alive >= {*names})
        threading.Thread(target=self.train, args=(1,), daemon=True).start()

    def take_over(self, number: int, task: str, paused: bool) -> None:
        assert task == NAME
        if self._busy.acquire(blocking=False):
            threading.Thread(target=self.train, args=(number,), daemon=True).start()

    def train(self, number: int) -> None:
        try:
            self.results.append(self._trained(number))
        except TrainingError as error:
            self.results.append(error)
        self.planner.fleet = None
        self.planner.ended_trainings.add(number)

    def _trained(self, number: int) -> Any:
        site = self.site
        prepared = Prepared(NAME, site.task, site.graph, None, site.topology, {}, None)
        options = JobOptions(None, settings=Settings(self.timeout, 3), training=number)
        with self._fleet(prepared, site.planner, options, lambda commit: None, None) as fleet:
            fleet.trainer.run(PATIENCE)
            return fleet.trainer.collect()

    def _fleet(self, prepared: Prepared, planner: Any, options: JobOptions, progress: Any,
               base: Any) -> SessionFleet:
        site, coordinator = self.site, self.coordinator

        def change() -> None:
            if found := self.planner.plan(coordinator.alive, time.monotonic()):
                coordinator.propose(found.plan)
        fleet = SessionFleet(
            prepared, site.planner, options, progress, base, coordinator=coordinator,
            change=change, rejected=lambda cause, text: site.log(f'rejected {cause}: {text}'),
            log=site.log, address='127.0.0.1', training=options.training, key=site.key)
        self.fleets.append(fleet)
        self.planner.fleet = fleet
        return fleet

    @property
    def committed(self) -> int:
        return self.fleets[-1].trainer.commit.committed if self.fleets else -1


class Job(Lead):
    """Trains as a node does: what is reached is in a file, and what comes of each round."""

    @property
    def path(self) -> Path:
        return self.site.folder / f'{self.coordinator.channel.name}.safetensors'

    def _trained(self, number: int) -> Any:
        return TrainingJob(self.site.prepared, JobOptions(
            self.path, settings=Settings(self.timeout, 3), training=number,
            metrics=self.path.with_suffix('.jsonl')), make=self._fleet).run()


class Site:
    """Devices a, b and c, and those who may coordinate them."""

    def __init__(self, rounds: int, task: TrainingTask | None = None,
                 folder: Path = Path()) -> None:
        self.topology = cell(devices='abc')
        self.network = MemoryNetwork(self.topology)
        self.channels = {name: self.network.join(name) for name in ('coordinator', 'standby')}
        self.key: SharedKey | None = SharedKey.generate()
        self.task, self.folder = task or make_task(rounds=rounds), folder
        self.dies: tuple[str, int, str] | None = None
        self.left = ''
        self.copied: Callable[[], bool] = bool
        self.graph = capture(self.task)
        self.planner = fixed(len(self.graph.layers), self.task)
        self.rest, self.logged = 0.0, list[str]()
        self.members: dict[str, FleetMember] = {}
        self.workers: dict[str, list[ThreadWorker]] = {}
        self.leads: list[Lead] = []

    @property
    def prepared(self) -> Prepared:
        return Prepared(NAME, self.task, self.graph, layer_table(self.graph, 'abc'),
                        cell(8000.0, 'abc'), {}, None)

    def log(self, text: str) -> None:
        self.logged.append(text)

    def lead(self, name: str, priority: int = 0, kind: type[Lead] = Lead) -> Any:
        self.leads.append(kind(self, name, priority))
        return self.leads[-1]

    def device(self, name: str, tasks: tuple[str, ...] = (NAME,), **times: float) -> FleetMember:
        def start(*given: Any) -> ThreadWorker:
            self.workers.setdefault(name, []).append(ThreadWorker(self, *given))
            return self.workers[name][-1]
        self.members[name] = FleetMember(
            self.network.channel(name), [lambda host: TrainingRole(host, tasks, start, **times)],
            self.log,
            coordinators=('coordinator', 'standby'), heartbeat=TIMES.members.heartbeat)
        return self.members[name]

    def kill(self, name: str) -> None:
        """Let a device go without a word, and its worker with it."""
        self.network.cut(name)
        self.workers[name][-1].kill()
        self.members.pop(name).close()

    def close(self) -> None:
        for member in self.members.values():
            member.close()
        for lead in self.leads:
            lead.coordinator.close()
        self.network.close()
        print('\n'.join(self.logged))  # pytest shows it if the test failed


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(getattr(request, 'param', 60))
    yield made
    made.close()


@pytest.mark.parametrize('site', [ROUNDS], indirect=True)
def test_the_result_is_that_of_one_process_though_all_change(site: Site) -> None:
    """One device is killed, one joins, a worker dies, and another coordinator takes over."""
    site.rest = 0.03  # rounds take so long that all of this happens before the last one
    first = site.lead('coordinator', 1)
    first.begin('ab')
    wait_for(lambda: first.committed > 4, PATIENCE)
    kept, commit = site.workers['a'][-1], first.fleets[0].trainer.commit
    site.kill('b')
    site.device('c')

    def goes_on_with_c() -> bool:
        return 'c' in commit.plan.participants and commit.committed > reached
    reached = first.committed
    wait_for(goes_on_with_c, PATIENCE)
    site.workers['c'][-1].kill()
    second = site.lead('standby')  # it claims the fleet before it hears of the first
    second.timeout = 4.0  # another configuration costs nothing
    wait_for(lambda: len(site.workers['c']) == 2, PATIENCE)
    reached = first.committed
    wait_for(goes_on_with_c, PATIENCE)
    wait_for(lambda: first.coordinator.leads and not second.coordinator.leads)
    assert site.workers['a'] == [kept], 'it stays, whoever goes'
    assert not first.results and not second.fleets

    reached = commit.course.safe
    site.network.cut('coordinator')
    wait_for(lambda: second.fleets and second.fleets[0].trainer.commit.plan, PATIENCE)
    site.rest = 0.0
    commit = second.fleets[0].trainer.commit
    assert min(commit.course.stepped.values()) >= reached > 1, 'it went on, not anew'
    assert commit.number.term == second.coordinator.id.term
    wait_for(lambda: second.results, PATIENCE)
    assert commit.committed == ROUNDS
    assert 0 < min(commit.figures) <= reached, 'what came of rounds is known from the last tag on'
    assert site.workers['a'] == [kept]
    assert difference(second.results[0], train_alone(site.task)) < 1e-10
    # nothing is left that anybody would go on with
    wait_for(lambda: not any(m.roles['training/2'].state.tags() for m in site.members.values()))


def test_what_came_of_rounds_that_went_to_nobody_is_said_again(site: Site) -> None:
    """A device that was taken for lost holds rounds that nobody trains again."""
    place = Exchange('127.0.0.1').place
    said = list[Mapping[str, Any]]()
    worker = Worker('a', site.task, site.graph, place, said.append, Settings(3.0, 3))
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    made = site.planner(('a',), None)

    def rounds(since: int) -> list[int]:
        return [one['round'] for one in said[since:] if one['report'] == 'round']
    worker.take({'order': 'plan', 'plan': [1, 1], 'tag': 0, 'what': made.to_json(), 'moves': [],
                 'given': {}})
    wait_for(lambda: len(rounds(0)) == site.task.rounds, PATIENCE)
    for committed, left in ((0, range(60)), (50, range(50, 60))):
        worker.take({'order': 'committed', 'tag': committed})
        begun = len(said)
        worker.take({'order': 'attend', 'host': place[0], 'port': place[1], 'seat': 2,
                     'address': '127.0.0.1', 'timeout': 3.0, 'every': 3})
        wait_for(lambda: len(said) - begun > len(left), PATIENCE)  # noqa: B023
        kinds = [one['report'] for one in said[begun:]]
        assert kinds[0] == 'joined' and rounds(begun) == [*left]
    worker.take({'order': 'end'})
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize('site', [200], indirect=True)
def test_a_coordinator_that_was_cut_off_and_comes_back_goes_on(site: Site) -> None:
    """Another one takes over meanwhile, and goes on further; no round of the two is mixed up."""
    site.rest = 0.03
    first = site.lead('coordinator', 1)
    first.begin('ab')
    wait_for(lambda: first.committed > 4, PATIENCE)
    kept = [site.workers[name][-1] for name in 'ab']
    site.network.cut('coordinator')
    second = site.lead('standby')
    wait_for(lambda: second.committed > first.committed + 12, PATIENCE)
    site.network.restore('coordinator')
    wait_for(lambda: second.results, PATIENCE)
    assert str(second.results[0]) == ('coordinator coordinates the fleet now and goes on with it: '
                                      'a goal with resume there joins it')
    reached = second.committed
    site.rest = 0.0
    wait_for(lambda: first.results, PATIENCE)
    assert first.committed == site.task.rounds and len(second.fleets) == 1
    again = [k for k in first.fleets[0].trainer.commit.figures if 4 < k < reached]
    assert len(again) < reached - 4, 'what another one trained is not trained again'
    assert [site.workers[name][-1] for name in 'ab'] == kept
    assert difference(first.results[0], train_alone(site.task)) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize('action', ['V0', 'V4', 'T1'])
def test_a_validation_is_one_processs_though_a_device_and_the_coordinator_are_lost_in_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """Figures, the best weights and the early end; each file has each round once."""
    task = make_task('small', adam, rounds=60)
    torch.manual_seed(2)
    check = TensorData((torch.randn(31, 1, 8, 8, dtype=torch.float64),),
                       torch.randint(0, 10, (31,)))
    task = replace(task, check=check, validate_every=2, best_by='accuracy', patience=2)
    alone = train_alone_drawing(task)
    end, best, lost = len(alone.loss), alone.best[0], min(alone.check)
    assert lost < best < end < 60, 'there are better weights later, and it ends early'
    monkeypatch.setattr(session_fleet, 'GATHERING', PATIENCE)
    site = Site(60, task, tmp_path)
    site.prepared.played(site.planner(('a', 'b', 'c'), None))  # compiles what plays
    try:
        first = site.lead('coordinator', 1, Job)
        first.timeout = 30.0  # on a busy machine nobody is left out
        site.dies = 'b', lost - 1, action
        first.begin('abc')
        wait_for(lambda: site.dies is None, PATIENCE)
        second = site.lead('standby', 0, Job)  # on a busy machine it might lead before
        wait_for(lambda: second.results, PATIENCE)
        found = second.results[0]
        assert isinstance(found, Outcome) and found.done and found.round == end
        assert found.best == best and read_checkpoint(best_of(second.path)).round == best
        assert difference(load_file(second.path), alone) < 1e-10
        for name, value in read_checkpoint(best_of(second.path)).weights.items():
            assert torch.allclose(value, alone.best[1][name], rtol=1e-10, atol=1e-12)
        seen: dict[int, dict[str, Any]] = {}
        for lead in (first, second):
            path = lead.path.with_suffix('.jsonl')
            lines = [json.loads(line) for line in path.read_text().splitlines()] \
                if path.exists() else []
            assert len({line['round'] for line in lines}) == len(lines)
            seen |= {line['round']: line for line in lines}
        assert sorted(seen) == list(range(1, end + 1))
        assert [seen[k + 1]['loss'] for k in range(end)] == pytest.approx(alone.loss, rel=1e-9)
        assert {k: (line['check_loss'], line['check_accuracy']) for k, line in seen.items()
                if 'check_loss' in line} == {
            k: (pytest.approx(loss, rel=1e-9), accuracy)
            for k, (loss, accuracy) in alone.check.items()}
    finally:
        site.close()


@pytest.mark.parametrize('lost', ['c', pytest.param('coordinator', marks=pytest.mark.slow)])
def test_best_weights_are_there_though_who_had_them_and_a_device_are_lost(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """No later ones are better; what only copies have is lost with the coordinator."""
    task = make_task('small', adam, rounds=40)
    assert isinstance(task.data, TensorData)
    others = TensorData(task.data.inputs, (task.data.targets + 5) % 10)
    task = replace(task, check=others, validate_every=3)
    alone = train_alone_drawing(task)
    best = alone.best[0]
    assert 0 < best < 10, 'it is best long before the end'
    monkeypatch.setattr(session_fleet, 'GATHERING', PATIENCE)
    site = Site(40, task, tmp_path)
    site.prepared.played(site.planner(('a', 'b', 'c'), None))  # compiles what plays
    try:
        first = site.lead('coordinator', 1, Job)
        first.timeout = 30.0  # on a busy machine nobody is left out
        site.rest = 0.01  # copies take no rest
        first.begin('abc')
        wait_for(lambda: first.fleets, PATIENCE)
        commit = first.fleets[0].trainer.commit
        site.copied = lambda: commit.course.safe > best
        if lost == 'c':
            site.left = 'c'
            wait_for(lambda: not site.left, PATIENCE)
        else:
            wait_for(site.copied, PATIENCE)
            site.network.cut('coordinator')
        second = site.lead('standby', 0, Job)
        wait_for(lambda: second.fleets and second.committed >= 0, PATIENCE)
        site.rest = 0.0
        wait_for(lambda: second.results, PATIENCE)
        found, since = second.results[0], second.fleets[0].trainer.commit
        assert isinstance(found, Outcome) and found.done and found.best == best
        assert min(since.figures, default=best) >= best, "the best round was another coordinator's"
        saved = read_checkpoint(best_of(second.path))
        assert saved.round == best
        for name, value in saved.weights.items():
            assert torch.allclose(value, alone.best[1][name], rtol=1e-10, atol=1e-12)
        assert difference(load_file(second.path), alone) < 1e-10
    finally:
        site.close()


def test_a_worker_that_nobody_comes_for_ends_and_drops_what_it_holds(site: Site) -> None:
    site.rest = 0.03
    lead = site.lead('coordinator')
    members = [site.device(name, alone=1.0, orphaned=5.0) for name in 'ab']
    wait_for(lambda: lead.coordinator.alive >= {'a', 'b'})
    threading.Thread(target=lead.train, args=(1,), daemon=True).start()
    wait_for(lambda: lead.committed > 4, PATIENCE)
    workers = [site.workers[name][-1] for name in 'ab']
    site.network.cut('coordinator')
    wait_for(lambda: all(worker.over.is_set() for worker in workers), PATIENCE)
    assert site.logged.count('nobody takes the reports of the worker: it waits') >= 2
    # that it was begun is still said: who comes goes on from a checkpoint
    wait_for(lambda: [member.roles['training/2'].state.tags() for member in members] == [
        {f'training 1 {NAME}': (0,)}] * 2)
    assert [site.workers[name][-1] for name in 'ab'] == workers
    site.network.restore('coordinator')  # the trainer goes on from the beginning: it was not saved
    site.rest = 0.0
    wait_for(lambda: lead.results, PATIENCE)
    assert lead.fleets[0].trainer.commit.recoveries
    assert difference(lead.results[0], train_alone(site.task)) < 1e-10


def test_strangers_and_liars_change_nothing(site: Site) -> None:
    """A device gives orders, forges reports of another's seat, and says what no worker says."""
    lead = site.lead('coordinator')
    for name in 'ab':
        site.device(name)
    wait_for(lambda: lead.coordinator.alive >= {'a', 'b'})
    threading.Thread(target=lead.train, args=(1,), daemon=True).start()
    wait_for(lambda: lead.committed > 3)
    session, id_ = lead.coordinator.plan, lead.coordinator.id
    assert isinstance(session, TrainingSession)
    liar = site.network.channel('c')
    way = lead.fleets[0]._ways['b']
    lines = [json.dumps({'order': 'end', 'child': 1}), json.dumps({'order': 'stop', 'child': 1}),
             json.dumps({'report': 'fault', 'plan': [0, 0], 'error': 'lie', 'child': 1}),
             '[' * 900]
    for number, line in enumerate(lines):
        for target, stream in (('a', session.seats['a']), ('coordinator', session.seats['b'])):
            for ahead in range(1, 8):
                liar.send(target, Control(
                    ControlKind.LINES, id_.term, id_.epoch,
                    way._receiver.acknowledged + number + ahead,
                    {'stream': stream, 'ack': 1 << 40, 'text': line + '\n'}))
    # b itself says what no worker does
    for line in (*lines[3:], '{"report": "round"}', '{"report": "idle", "held": {"x": []}}',
                 '{"report": "round", "plan": [1], "round": -1}', 'null', '{"report": []}',
                 '{"report": "round", "plan": [1, 1], "round": 1, "loss": 1' + '0' * 400 + '}'):
        role = site.members['b'].roles['training/2']
        assert isinstance(role, TrainingRole)
        role._way.put(line)
    role = site.members['a'].roles['training/2']
    with pytest.raises(PlanError, match='only as it was begun: loss '):  # its work is not dropped
        role.load(PlanId(id_.term, 1 << 40), replace(session, facts={
            **session.facts, 'loss': 'another'}))
    wait_for(lambda: lead.results, PATIENCE)
    assert difference(lead.results[0], train_alone(site.task)) < 1e-10
    assert site.members['a'].rejections.by_cause().get('peer', 0) > 0
    assert any('rejected report' in text for text in site.logged)
    assert [len(found) for found in site.workers.values()] == [1, 1]


def test_a_device_refuses_what_it_does_not_train(site: Site) -> None:
    lead = site.lead('coordinator')
    site.device('a')
    site.device('b', ('other:task',))
    wait_for(lambda: lead.coordinator.alive >= {'a', 'b'})
    threading.Thread(target=lead.train, args=(1,), daemon=True).start()
    wait_for(lambda: lead.results, PATIENCE)
    assert difference(lead.results[0], train_alone(site.task)) < 1e-10
    assert any("b does not train 'night:task': add it to the parameter tasks there, which has "
               'other:task' in text for text in site.logged)
    assert 'b' not in site.workers


def test_training_that_no_device_can_do_ends_with_the_reasons(site: Site) -> None:
    lead = site.lead('coordinator')
    site.device('a', ('other:task',))
    site.device('b', ('another:task',))
    wait_for(lambda: lead.coordinator.alive >= {'a', 'b'})
    threading.Thread(target=lead.train, args=(1,), daemon=True).start()
    wait_for(lambda: lead.results, PATIENCE)
    text = str(lead.results[0])
    assert text.startswith('no device can train: a: ') and 'other:task; b: ' in text


@pytest.mark.parametrize('lie', [
    {'format': 'rounds/1'}, {'seats': {}}, {'seats': {'a': -1}}, {'seats': {'a': 1 << 60}},
    {'seats': ['a']}, {'seats': {f'd{k}': k for k in range(300)}}, {'host': 'http://x'},
    {'host': 7}, {'port': 0}, {'port': 70000}, {'port': True}, {'timeout': 0}, {'timeout': 1e9},
    {'timeout': float('nan')}, {'every': 0}, {'task': ''}, {'task': 'x' * 2000}, {'training': 1.5},
    {'coordinator': None}, {'facts': {'x' * 100: ''}}, {'facts': {'loss': 'x' * 5000}},
    {'facts': {'loss': 1}}, {'facts': {str(k): '' for k in range(40)}}, {'facts': 'x'},
    {'paused': ...}])
def test_a_session_is_checked(lie: dict[str, Any]) -> None:
    data = json.loads(json.dumps(SESSION.to_json()))
    assert parse_session(data) == SESSION
    changed = {**data, **lie}
    if lie.get('paused') is ...:
        del changed['paused']
    with pytest.raises(PlanError):
        parse_session(changed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(['report', 'order', 'plan', 'held', 'tag', 'round', 'error', 'moves',
                         'what', 'child', 'cut', '3']), inner, max_size=6), max_leaves=12)


@settings(max_examples=400, deadline=None)
@given(JSON, st.sampled_from(['joined', 'idle', 'round', 'ready', 'replicated', 'fault', 'beat']),
       st.sampled_from(['plan', 'committed', 'stop', 'collect', 'end']))
def test_any_line_is_read_or_refused(data: Any, report: str, order: str) -> None:
    for read, what, kind in ((read_report, 'report', report), (read_order, 'order', order)):
        for made in (data, {**data, what: kind} if isinstance(data, dict) else data):
            with contextlib.suppress(MalformedFrameError):
                assert read(json.dumps(made))[what]


def test_the_name_of_a_state_says_which_training_it_is_of() -> None:
    for paused in (False, True):
        session = replace(SESSION, paused=paused, task='/home/my robot/night.py:task')
        assert read_state_name(state_name(session)) == (paused, 7, session.task)
    for name in ('training', 'first', 'training x night:task', 'training 7', 'training 7 '):
        assert read_state_name(name) is None
