# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The trainer's decisions: who is left out and for how long, and where training goes on."""
from __future__ import annotations

import pytest
from training_fleet import difference, fixed, make_task, train

from intradp_lab.training.one_process import train_alone
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.plan.training_plan import (
    DataGoneError,
    TrainingPlan,
    TrainingStage,
)
from intradp_ros.systems.training.run.snapshots import moves, TRAINER
from intradp_ros.systems.training.run.stage_runner import by_layer
from intradp_ros.systems.training.service.round_commit import Phase, RoundCommit

PATIENCE = 4.0


def pipeline(devices, before):
    """Return one stage of one layer for each device."""
    return TrainingPlan(tuple(TrainingStage(k, k + 1, ((name, 2),))
                              for k, name in enumerate(devices)), 4, 2)


def alone_first(devices, before):
    return TrainingPlan((TrainingStage(0, 3, tuple((name, 1) for name in devices)),),
                        2 * len(devices), 2) if devices else None


class World:
    """Devices that obey; links between some of which are cut."""

    def __init__(self, names='abc', planner=alone_first):
        self.commit = RoundCommit(1000, (1.0, 1.0, 1.0), planner, PATIENCE)
        self.now, self.cut, self.plans = 0.0, set(), []
        for name in names:
            self.commit.joined(name, 0.0)
        self.give(self.commit.resume(0.0))

    def give(self, orders):
        if any(order.body['order'] == 'plan' for order in orders):
            self.plans.append((self.now, self.commit.plan.participants))

    def report(self, device, kind, **more):
        self.give(self.commit.reported(
            device, {'report': kind, 'plan': list(self.commit.number), **more}, self.now))

    def turn(self):
        """Let all train a round, or find that they cannot."""
        commit, number = self.commit, self.commit.number
        self.now += 1.0
        self.give(commit.tick(self.now))
        if commit.number != number or commit.phase is Phase.FAILED:
            return
        names = commit.plan.participants
        lost = {a: [b for b in names if {a, b} in self.cut] for a in names}
        tag = commit.committed
        held = {tag: [0, 1, 2]}
        for name in names:
            if any(lost.values()):
                self.report(name, 'idle', round=tag, error='time-out', peer='', held=held,
                            cut=lost[name])
            elif commit.phase is Phase.ENDING:
                self.report(name, 'idle', round=tag, error='', peer='', held=held, cut=[])
            else:
                self.report(name, 'round', round=tag, loss=0.0, norm=0.0, samples=4, seconds=1.0)
        if commit.number == number and commit.phase is Phase.TRAINING and tag % 5 == 0:
            for name in names:
                self.report(name, 'replicated', tag=tag)


def test_one_end_of_a_cut_link_is_left_out_at_once_and_comes_back_when_it_is_whole():
    world = World()
    for _ in range(5):
        world.turn()
    world.cut = [{'a', 'b'}]
    world.turn()
    assert len(world.plans) == 2 and len(world.commit.plan.participants) == 2
    assert 'c' in world.commit.plan.participants
    world.cut = []
    for _ in range(40):
        world.turn()
    assert set(world.commit.plan.participants) == set('abc')
    assert world.commit.committed > 35


def test_a_link_that_stays_cut_costs_less_and_less():
    """Every beat of the device says that it is there; it is tried at times that double."""
    world = World()
    world.cut = [{'a', 'b'}]
    for _ in range(2000):
        world.turn()
        for name in 'abc':
            if name not in world.commit.alive:
                world.give(world.commit.joined(name, world.now))  # as its beats do
    tried = [now for now, names in world.plans if len(names) == 3]
    assert world.commit.phase is not Phase.FAILED and world.commit.committed > 900
    assert 5 <= len(tried) <= 14
    assert all(later - now > 1.5 * (now - before) or later - now > 2 ** 7 * PATIENCE
               for before, now, later in zip(tried[2:], tried[3:], tried[4:]))


def test_the_device_that_most_cannot_reach_is_left_out():
    world = World('abcd')
    world.cut = [{'c', name} for name in 'abd']
    world.turn()
    assert world.commit.plan.participants == ('a', 'b', 'd')


def test_those_left_out_are_taken_when_nobody_else_is_left():
    world = World('ab')
    world.cut = [{'a', 'b'}]
    world.turn()
    left = world.commit.plan.participants
    assert len(left) == 1
    world.give(world.commit.lost(left[0], world.now))
    assert world.commit.phase is Phase.TRAINING
    assert set(world.commit.plan.participants) == set('ab') - set(left)


def test_devices_with_long_rounds_are_not_lost_while_they_leave():
    def slow(devices, before):
        plan = alone_first(devices, before)
        return TrainingPlan(plan.stages, plan.grains, plan.micro_batches, 60.0)
    world = World('ab', slow)
    world.commit.joined('c', 1.0)
    assert world.commit.phase is Phase.ENDING
    world.commit.tick(200.0)
    assert world.commit.alive == set('abc')
    world.commit.tick(1000.0)
    assert world.commit.alive == {'c'}


def test_what_no_device_holds_comes_from_the_trainer():
    plan = pipeline('abc', None)
    held = {'a': {4: [0]}, 'b': {4: [1]}, 'c': {}}
    assert [(m.source, m.target) for m in moves(held, 4, plan, (1, 1, 1))] == [(TRAINER, 'c')]


@pytest.mark.parametrize('fails', [{}, {'a': (12, 'F0'), 'b': (12, 'F0'), 'c': (14, 'B0')}])
def test_a_training_goes_on_from_a_checkpoint_and_back_to_it(fails):
    """All that hold the newest state die at once: those left begin at the checkpoint."""
    task = make_task()
    graph, alone = capture(task), train_alone(task)
    half = make_task(rounds=10)
    _, state = train(half, 'ab', fixed(len(graph.layers), half), graph=graph)
    trainer, found = train(task, ('a', 'b', 'c', 'd'), fixed(len(graph.layers), task), fails,
                           graph=graph, every=50, base=(10, by_layer(graph, state)))
    assert difference(found, alone) < 1e-10
    assert sorted(trainer.commit.figures) == list(range(10, 20))
    assert all(recovery.tag == 10 for recovery in trainer.commit.recoveries)


def idle(commit, device, now, held):
    return commit.reported(device, {'report': 'idle', 'plan': list(commit.number), 'round': 7,
                                    'error': 'gone', 'peer': '', 'cut': [], 'held': held}, now)


def test_a_device_that_comes_back_while_a_plan_ends_is_not_waited_for():
    commit = World('abc').commit
    assert not commit.lost('c', 1.0) and not commit.joined('c', 1.2)
    assert not idle(commit, 'a', 1.3, {5: [0, 1, 2]})
    orders = idle(commit, 'b', 1.4, {5: [0, 1, 2]})
    assert [order.body['order'] for order in orders] == ['plan'] * 3
    assert commit.held['c'] == {} and commit.phase is Phase.TRAINING


def test_a_device_that_begins_anew_before_its_end_is_noticed_holds_nothing():
    commit = World('ab').commit
    commit.held['b'] = {5: [0, 1, 2]}
    assert not commit.joined('b', 1.0)
    idle(commit, 'a', 1.1, {5: [0, 1, 2]})
    assert commit.phase is Phase.TRAINING and commit.plan.participants == ('a', 'b')
    assert commit.held['b'] == {}


def test_who_does_not_leave_in_time_costs_only_itself():
    commit = World('abcd').commit
    commit.joined('e', 1.0)
    for name in 'abd':
        idle(commit, name, 1.1, {5: [0, 1, 2]})
    commit.tick(60.0)
    assert commit.phase is Phase.TRAINING and commit.plan.participants == ('a', 'b', 'd', 'e')
    assert commit.course.within == set('abde') and set(commit.away.left_out) == {'c'}


def test_what_a_lost_device_holds_is_forgotten_when_it_ends():
    """Its last report may come after it was lost."""
    commit = World('ab').commit
    commit.lost('b', 1.0)
    idle(commit, 'b', 1.1, {5: [0, 1, 2]})
    commit.lost('b', 1.2)
    commit.joined('b', 1.3)
    assert commit.held['b'] == {}


def test_what_fails_wherever_it_is_computed_ends_the_training_with_the_reason():
    """A sample that nobody can read: workers fail, come back and fail again at its round."""
    commit = RoundCommit(100, (1.0, 1.0, 1.0), alone_first, PATIENCE, waits=True)
    now, attempts = 0.0, 0
    commit.joined('a', now)
    commit.resume(now)
    while commit.phase is not Phase.FAILED:
        now, attempts = now + 1, attempts + 1
        assert attempts < 100, 'it never ends'
        for number in range(commit.committed, 57):
            commit.reported('a', {'report': 'round', 'plan': list(commit.number), 'loss': 0.0,
                                  'round': number, 'norm': 0.0, 'samples': 4, 'seconds': 1.0},
                            now)
        commit.reported('a', {'report': 'fault', 'plan': [0, 0], 'error': f'image {attempts}'},
                        now)
        commit.joined('a', now)
    assert commit.why == ('no round after 57 could be trained, 11 times something failed before; '
                          'the last was a: image 11')


def test_failures_with_new_rounds_between_them_end_nothing():
    commit = RoundCommit(1000, (1.0, 1.0, 1.0), alone_first, PATIENCE, waits=True)
    commit.joined('a', 0.0)
    commit.resume(0.0)
    for number in range(60):
        commit.reported('a', {'report': 'round', 'plan': list(commit.number), 'loss': 0.0,
                              'round': number, 'norm': 0.0, 'samples': 4, 'seconds': 1.0}, 1.0)
        commit.reported('a', {'report': 'fault', 'plan': [0, 0], 'error': 'flaky'}, 1.0)
        commit.joined('a', 1.0, {number + 1: [0, 1, 2], 1 << 30: [0, 1, 2]})
        assert commit.phase is Phase.TRAINING and commit.committed == number + 1


def test_devices_that_are_lost_whenever_they_train_together_do_not_stop_the_training():
    """A link that the training itself fills: signs of life are late, and all count as lost."""
    commit = RoundCommit(400, (1.0, 1.0, 1.0), alone_first, PATIENCE, waits=True)
    now = 0.0
    for name in 'abc':
        commit.joined(name, now)
    commit.resume(now)
    while commit.committed < 400 and now < 2000:
        now += 1.0
        commit.tick(now)
        if commit.phase is not Phase.TRAINING:
            for name in 'abc':
                commit.joined(name, now)
        elif len(commit.plan.participants) > 1:
            for name in commit.plan.participants:
                commit.lost(name, now)
        else:
            [name] = commit.plan.participants
            commit.reported(name, {'report': 'round', 'plan': list(commit.number), 'loss': 0.0,
                                   'round': commit.committed, 'norm': 0.0, 'samples': 4,
                                   'seconds': 1.0}, now)
            commit.reported(name, {'report': 'replicated', 'plan': list(commit.number),
                                   'tag': commit.committed}, now)
            commit.held[name] = {commit.committed: [0, 1, 2]}
            for other in set('abc') - commit.alive - set(commit.away.left_out):
                commit.joined(other, now)
            if commit.phase is Phase.ENDING:
                commit.reported(name, {'report': 'idle', 'plan': list(commit.number), 'error': '',
                                       'round': commit.committed, 'peer': '', 'cut': [],
                                       'held': commit.held[name]}, now)
    assert commit.phase is not Phase.FAILED, commit.why
    assert commit.committed == 400 and now < 800


def test_nobody_is_left_out_while_there_is_nothing_to_go_on_with():
    """Data lie on two devices, and strangers fill the network: all are lost again and again."""
    def with_data(devices, before):
        if not {'a', 'c'} <= {*devices}:
            raise DataGoneError('data are away')
        return alone_first(devices, before)
    commit = RoundCommit(100, (1.0, 1.0, 1.0), with_data, PATIENCE, waits=True)
    for name in 'abc':
        commit.joined(name, 0.0)
    commit.resume(0.0)
    for now in range(1, 9):
        for name in 'abc':
            commit.lost(name, float(now), silent=True)
        assert commit.phase is Phase.PAUSED
        for name in 'abc':
            commit.joined(name, now + 0.5)
        assert commit.phase is Phase.TRAINING, f'after {now} losses'
        assert {'a', 'c'} <= {*commit.plan.participants}


def silenced(held):
    """Return the decisions on three devices of a pipeline that have all gone silent."""
    commit = RoundCommit(100, (1.0, 1.0, 1.0), pipeline, PATIENCE, waits=True)
    for name in 'abc':
        commit.joined(name, 0.0)
    commit.resume(0.0)
    for name in 'abc':
        commit.reported(name, {'report': 'replicated', 'plan': list(commit.number), 'tag': 10},
                        1.0)
        commit.held[name] = dict(held[name])
    for name in 'abc':
        commit.lost(name, 2.0, silent=True)
    assert commit.phase is Phase.PAUSED and not commit.alive
    return commit


#: Own layers, and copies of the next one's; round 12 was the last that all stepped.
HELD = {'a': {10: [0, 1], 12: [0]}, 'b': {10: [1, 2], 12: [1]}, 'c': {10: [2, 0], 12: [2]}}


def test_the_first_of_those_that_were_silent_waits_for_what_the_others_hold():
    """The trainer's own network may have been away: nothing is lost then."""
    commit = silenced(HELD)
    assert not commit.joined('b', 3.0) and not commit.tick(3.0 + PATIENCE / 2)
    assert not commit.joined('a', 3.5) and commit.phase is Phase.PAUSED  # 12 may be whole
    orders = commit.joined('c', 4.0)
    assert [(o.device, o.body['tag'], o.body['moves']) for o in orders] == [
        ('a', 12, []), ('b', 12, []), ('c', 12, [])]


def test_those_that_were_silent_go_on_without_one_that_does_not_come_back():
    commit = silenced(HELD)
    assert not commit.joined('b', 3.0) and not commit.joined('a', 3.5)
    orders = commit.tick(3.0 + PATIENCE)
    assert [(o.device, o.body['tag']) for o in orders] == [('a', 10), ('b', 10)]
    assert not commit.tick(100.0) and commit.phase is Phase.TRAINING


def test_one_that_holds_all_of_the_newest_state_waits_for_nobody():
    commit = silenced(HELD | {'b': {10: [0, 1, 2]}})
    assert [(o.device, o.body['tag']) for o in commit.joined('b', 3.0)] == [('b', 10)]


def test_what_a_silent_device_held_is_forgotten_when_it_ends():
    commit = silenced(HELD)
    commit.lost('b', 2.5)
    assert not commit.joined('b', 3.0)
    assert commit.held['b'] == {} and commit.away.silent.keys() == {'a', 'c'}
