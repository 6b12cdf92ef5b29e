# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Pipelines of stages on devices in this process: exact, in order, and never a frame lost."""
from __future__ import annotations

from dataclasses import replace
import queue
import re
import time

from fleets import cell, fleet, images, planner, QUICK, SHORT, TIMEOUT
import pytest
from sharing import assert_equal
from small_models import seeded, UNet
import torch
from waiting import wait_for

from intradp_lab.fleet.local_fleet import LocalFleet
from intradp_ros.cluster.coordinator import CoordinatorTimes
from intradp_ros.cluster.fleet_messages import Heartbeat
from intradp_ros.cluster.membership import MemberTimes
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.runtime.member.fleet_control import to_control
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.runtime.member.planner import Planner, PlannerOf
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.transport.memory_network import MemoryNetwork
from intradp_ros.schedule.stage_plan import StagePlan
from intradp_ros.wire.frames import Control, ControlKind

SHAPE = (1, 3, 32, 48)


@pytest.fixture(scope='module')
def model() -> SharedModel:
    return share_module(seeded(UNet, 32, 48), (torch.zeros(SHAPE),))


def wanted(model: SharedModel, frame: torch.Tensor) -> object:
    return model.results(dict(zip(model.split.captured.output_values,
                                  run_graph(model.split.captured, (frame,)))))


def check(model: SharedModel, frames, answers) -> None:
    """See that all were answered, in order, each with the unsplit model's results."""
    assert [a.inference for a in answers] == sorted(a.inference for a in answers)
    for frame, answer in zip(frames, answers, strict=True):
        assert_equal(answer.outputs, wanted(model, frame))


@pytest.mark.parametrize('stages', [
    'a,b,a,c', 'a*2+b,c+d*2,b', *(pytest.param(text, marks=pytest.mark.slow)
                                  for text in ('b', 'a,b', 'b,c,d', 'b+c,d'))])
def test_every_frame_is_exact_and_in_order(model: SharedModel, stages: str) -> None:
    frames = images(12, SHAPE)
    with fleet(model, stages) as made:
        answers = made.run([(frame,) for frame in frames])
    check(model, frames, answers)
    assert all(answer.pipelined for answer in answers), [a.reason for a in answers]


def test_the_same_in_double_precision_to_rounding() -> None:
    model = share_module(seeded(UNet, 32, 48).double(), (torch.zeros(SHAPE).double(),))
    frames = images(4, SHAPE, torch.float64)
    with fleet(model, 'b,a,c') as made:
        for frame, answer in zip(frames, made.run([(f,) for f in frames]), strict=True):
            assert answer.pipelined
            assert_equal(answer.outputs, wanted(model, frame), tolerance=1e-9)


def test_devices_read_only_the_weights_of_their_stages(model: SharedModel) -> None:
    total = sum(t.nbytes for t in model.parameters.values())
    with fleet(model, 'b,c,d') as made:
        held = [made.stages[name].worker for name in 'abcd']
        read = [worker.programs(made.client.plan).parameter_bytes for worker in held]
    assert read[0] == 0 and sum(read) == total and all(0 < n < total for n in read[1:])


def test_a_plan_that_does_not_fit_a_device_is_refused_there(model: SharedModel) -> None:
    whole = cell()
    small = replace(whole, devices=tuple(
        replace(device, memory_bytes=1e3 if device.name == 'b' else 1e9)
        for device in whole.devices))
    with LocalFleet(small, 'a', dict.fromkeys(small.names, model), planner(model, 'a,b', 'a'),
                    patience=SHORT, times=QUICK, gathering=5.0) as made:
        assert made.wait_ready(TIMEOUT)  # without it
        assert any('b would hold' in text and 'memory_mb' in text
                   for text in made.coordinator.trouble())
        check(model, images(2, SHAPE), made.run([(frame,) for frame in images(2, SHAPE)]))


def test_several_are_in_flight_at_once_and_no_more_than_allowed(model: SharedModel) -> None:
    seen = []
    with fleet(model, 'b,c', mbit=20.0, inflight=3) as made:
        for frame in images(8, SHAPE):
            made.client.ask((frame,))
            seen.append(made.client.counts()['in flight'])
        answers = made.answers(8, TIMEOUT)
    assert max(seen) == 3
    assert sum(a.waited > 0.01 for a in answers) >= 3


def test_what_is_late_is_dropped_first_and_says_why(model: SharedModel) -> None:
    with fleet(model, 'b,c', mbit=2.0, inflight=1, waiting=3) as made:
        frames = images(6, SHAPE)
        made.client.ask((frames[0],))
        made.client.ask((frames[1],), deadline=0.0)
        for frame in frames[2:]:
            made.client.ask((frame,))
        answers = made.answers(6, TIMEOUT)
    assert answers[1].outputs is None and 'late' in answers[1].reason
    assert answers[2].outputs is None and 'dropped: 3 newer ones wait' in answers[2].reason
    kept = [0, 3, 4, 5]
    check(model, [frames[k] for k in kept], [answers[k] for k in kept])


def test_a_deadline_ends_what_is_in_flight(model: SharedModel) -> None:
    mbit, [frame] = 0.1, images(1, SHAPE)
    with fleet(model, 'b,c', mbit=mbit) as made:
        start = time.monotonic()
        made.client.ask((frame,), deadline=0.05)
        [answer] = made.answers(1, TIMEOUT)
        assert time.monotonic() - start < frame.nbytes * 8e-6 / mbit  # before it could be done
        assert answer.outputs is None and answer.reason == 'late: not done within 50 ms'


def test_a_cancelled_inference_is_answered_and_the_next_one_works(model: SharedModel) -> None:
    frames = images(2, SHAPE)
    with fleet(model, 'b,c', mbit=2.0) as made:
        made.client.cancel(made.client.ask((frames[0],)))
        made.client.ask((frames[1],))
        first, second = made.answers(2, TIMEOUT)
    assert first.outputs is None and first.reason == 'cancelled'
    check(model, frames[1:], [second])


def test_wrong_inputs_are_refused(model: SharedModel) -> None:
    with fleet(model, 'b') as made, pytest.raises(ValueError, match='captured with inputs'):
        made.client.ask((torch.zeros(1, 3, 32, 40),))


def keep_asking(model: SharedModel, made, frames, until, seconds: float = 60.0):
    """Ask for one frame after another until a condition holds; return all answers."""
    asked, answers, end = 0, [], time.monotonic() + seconds
    while not until(answers) and time.monotonic() < end:
        made.client.ask((frames[asked % len(frames)],))
        asked += 1
        time.sleep(0.02)
        while True:
            try:
                answers += made.answers(1, 0.0)
            except queue.Empty:
                break
    answers += made.answers(asked - len(answers), TIMEOUT)
    check(model, [frames[k % len(frames)] for k in range(asked)], answers)
    return answers


@pytest.mark.parametrize('victim', ['b', pytest.param('c', marks=pytest.mark.slow)])
def test_a_killed_device_costs_no_frame_and_comes_back(model: SharedModel, victim: str) -> None:
    frames = images(5, SHAPE)
    with fleet(model, 'a,b,c', waiting=1000) as made:
        first = made.client.plan
        made.run([(frame,) for frame in frames])
        for frame in frames[:3]:
            made.client.ask((frame,))
        made.kill(victim)
        answers = made.answers(3, TIMEOUT)
        check(model, frames[:3], answers)
        keep_asking(model, made, frames, lambda got: got and got[-1].pipelined
                    and got[-1].plan > first)
        second = made.client.plan
        plan = made.coordinator.plan
        assert isinstance(plan, StagePlan) and victim not in plan.devices
        made.revive(victim)
        keep_asking(model, made, frames, lambda got: got and got[-1].pipelined
                    and got[-1].plan > second)
        plan = made.coordinator.plan
        assert isinstance(plan, StagePlan) and victim in plan.devices
        assert made.stages[victim].worker.finished


def test_a_device_that_is_cut_off_shortly_keeps_its_plan(model: SharedModel) -> None:
    frames = images(3, SHAPE)
    with fleet(model, 'a,b', waiting=1000) as made:
        made.network.cut('b')
        cut = keep_asking(model, made, frames, lambda got: any(not a.pipelined for a in got))
        assert any('b is silent' in a.reason for a in cut)
        made.network.restore('b')
        back = keep_asking(model, made, frames, lambda got: got and got[-1].pipelined)
        assert back[-1].pipelined


def test_a_device_that_takes_chunks_is_not_silent_though_its_pongs_are_lost(
        model: SharedModel) -> None:
    """As where a link is so full that small messages wait long."""
    frames = images(3, SHAPE)
    with fleet(model, 'a,b,c', waiting=1000) as made:
        device = made.devices['b']
        take = device.handle
        made.network.channel('b').listen(lambda peer, frame: None if isinstance(
            frame, Control) and frame.kind is ControlKind.PING else take(peer, frame))
        end = time.monotonic() + 4 * SHORT.silence
        answers = keep_asking(model, made, frames, lambda got: time.monotonic() > end)
    assert not [a.reason for a in answers if 'silent' in a.reason]


def test_another_candidate_takes_over_from_a_coordinator_that_is_gone(model: SharedModel) -> None:
    frames = images(3, SHAPE)
    with fleet(model, 'a,b', waiting=1000, standby=1) as made:
        first, gone = made.client.plan, made.coordinator
        assert gone.leads and not made.standby[0].leads
        made.network.cut(gone.channel.name)
        answers = keep_asking(model, made, frames, lambda got: got and got[-1].plan > first)
        assert made.standby[0].leads and made.client.plan.term > first.term
        assert all(a.pipelined for a in answers)
        made.network.restore(gone.channel.name)
        back = keep_asking(model, made, frames,
                           lambda got: got and got[-1].plan.term > answers[-1].plan.term)
        assert gone.leads and not made.standby[0].leads, 'the better candidate coordinates again'
        assert all(a.pipelined for a in back)


def test_a_coordinator_that_starts_anew_takes_over(model: SharedModel) -> None:
    frames = images(3, SHAPE)
    with fleet(model, 'a,b', waiting=1000) as made:
        first = made.client.plan
        made.coordinator.close()
        assert all(a.pipelined for a in made.run([(frame,) for frame in frames]))
        made.coordinator = type(made.coordinator)(
            made.coordinator.channel, made.coordinator.planner, print, times=QUICK)
        made.coordinator.expect('abcd')
        answers = keep_asking(model, made, frames, lambda got: got and got[-1].plan > first)
        assert made.client.plan.term > first.term
        assert all(a.pipelined for a in answers)


def test_inferences_before_a_boundary_go_by_the_plan_before(model: SharedModel) -> None:
    frames = images(8, SHAPE)
    with fleet(model, 'a,b', waiting=1000) as made:
        first = made.client.plan
        made.coordinator.propose(planner(model, 'c,d')(frozenset('abcd')), boundary=20)
        wait_for(lambda: made.devices['a'].committed != first)
        answers = [made.run([(frames[k % 8],)])[0] for k in range(24)]
        assert {a.plan for a in answers if a.inference < 20} == {first}
        assert {a.plan for a in answers if a.inference >= 20} == {made.devices['a'].committed}
        assert all(a.pipelined for a in answers)
        wait_for(lambda: first not in made.devices['a'].held())  # none in flight


@pytest.mark.parametrize('silent', ['b', 'c'])
def test_the_first_plan_waits_for_who_was_not_heard_not_for_who_is_gone(silent: str) -> None:
    """Device b was heard and is gone, as a coordinator that starts anew may find it; c was not."""
    network, planned = MemoryNetwork(cell()), queue.SimpleQueue[frozenset[str]]()
    coordinator = FleetCoordinator(network.join('coordinator'), PlannerOf('', planned.put), print,
                                   times=QUICK, gathering=TIMEOUT)
    coordinator.expect(('a', silent))
    begin = time.monotonic()
    for number in range(30):
        for name in 'a' if number > 2 else 'ab':
            network.channel(name).send('coordinator', to_control(Heartbeat(name, 1, number + 1)))
        time.sleep(QUICK.members.heartbeat / 2)
    seen = [planned.get() for _ in range(planned.qsize())]
    assert time.monotonic() - begin < TIMEOUT / 4
    assert set(seen) == ({frozenset('a')} if silent == 'b' else set())
    coordinator.close()
    network.close()


def test_that_there_is_no_plan_is_said_once_and_not_before_devices_had_time(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the figures of the reason change each time."""
    monkeypatch.setattr('intradp_ros.runtime.member.fleet_coordinator.PATIENCE', 1.0)

    class TooLarge(Planner):
        format, devices, count = '', ('a', 'b'), 0  # noqa: A003

        def plan(self, alive: frozenset[str], now: float) -> None:
            self.count += 1
            self.why = f'a is {self.count} MB short'

    network, said = MemoryNetwork(cell()), list[tuple[float, str]]()
    began, planner = time.monotonic(), TooLarge()
    coordinator = FleetCoordinator(
        network.join('coordinator'), planner, lambda text: said.append((time.monotonic(), text)),
        times=CoordinatorTimes(MemberTimes(0.02, 60.0, 120.0, 0.02), rest=0.05))
    coordinator.invite('a')
    number = 0
    while planner.count < 4 or time.monotonic() - began < 1.5:
        number += 1
        network.channel('a').send('coordinator', to_control(Heartbeat('a', 1, number)))
        time.sleep(QUICK.members.heartbeat / 2)
    problems = [(at, text) for at, text in said if text.startswith('no plan')]
    assert len(problems) == 1 and problems[0][0] - began >= 1.0
    assert re.fullmatch(r'no plan: a is \d+ MB short; b did not come', problems[0][1])
    assert coordinator.trouble() and coordinator.trouble()[0].startswith('no plan: a is ')
    coordinator.close()
    network.close()


def test_a_plan_before_the_one_in_use_is_let_go_when_nothing_of_it_is_in_flight(
        model: SharedModel) -> None:
    with fleet(model, 'a,b') as made:
        first = made.client.plan
        made.coordinator.propose(planner(model, 'b,a')(frozenset('abcd')))
        keep_asking(model, made, images(1, SHAPE), lambda got: got and got[-1].plan > first)
        workers = [made.stages[name].worker for name in 'ab']
        wait_for(lambda: all(worker.held == (made.client.plan,) for worker in workers),
                 shown=lambda: [worker.held for worker in workers])


def test_a_device_takes_orders_of_its_coordinators_only(model: SharedModel) -> None:
    with fleet(model, 'a,b') as made:
        device, term = made.devices['b'], made.client.plan.term + 1
        device.handle('c', Control(ControlKind.PREPARE, term, 1, 0,
                                   {'plan': made.coordinator.plan.to_json()}))
        assert device.rejections.by_cause() == {'epoch': 1}
        assert made.run([(images(1, SHAPE)[0],)])[0].pipelined
        assert device.committed == made.client.plan


def test_only_devices_of_its_route_fail_an_inference(model: SharedModel) -> None:
    with fleet(model, 'a,b', mbit=2.0) as made:
        for peer, pipelined in (('c', True), ('b', False)):
            number = made.client.ask((images(1, SHAPE)[0],))
            made.devices['a'].handle(peer, Control(
                ControlKind.FAILED, *made.client.plan, number, {'reason': 'no', 'tampered': True}))
            [answer] = made.answers(1, TIMEOUT)
            assert answer.pipelined is pipelined, (peer, answer.reason)


def test_devices_that_no_plan_has_any_more_are_asked_nothing(model: SharedModel) -> None:
    with fleet(model, 'a,b') as made:
        first = made.client.plan
        made.coordinator.propose(planner(model, 'a,c')(frozenset('abcd')))
        wait_for(lambda: made.client.plan != first)
        assert made.client._peers.keys() == {'c'}
        assert made.run([(images(1, SHAPE)[0],)])[0].pipelined
