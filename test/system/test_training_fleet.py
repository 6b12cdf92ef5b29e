# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Three device nodes train for a goal to the coordinator; two have the data, one is killed."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
import queue
import secrets
import threading
import time
from typing import Any

from node_processes import nodes, Observer, own_domain
import pytest
from safetensors.torch import load_file
from stranger_process import REPEATS, resident, STALLS, stranger_who
from training_fleet import difference
from waiting import wait_for

from intradp_lab.emulation.processes import Child
from intradp_lab.training.one_process import train_alone
from intradp_ros.nodes.common.operator_request import ask
from intradp_ros.nodes.training.train_request import follow
from intradp_ros.systems.training.base.task import load_task
from intradp_ros.systems.training.layers.checkpoint import (
    Checkpoint,
    read_checkpoint,
    write_checkpoint,
)

PATIENCE, ROUNDS = 400.0, 200
DEVICES = ('a', 'b', 'c')
#: Devices so slow, as planned, that all of them are used.
FLEET = """
devices:
  a: {memory: 1 GB, speed: 0.02}
  b: {memory: 1 GB, speed: 0.02}
  c: {memory: 1 GB, speed: 0.02}
networks:
  site: {access point: 8 Gbit/s, devices: [a, b, c]}
"""
TASK = """
from dataclasses import replace
import os
import sys
sys.path.append({tests!r})
from training_fleet import make_task, Slow


class Here(Slow):
    def take(self, samples):
        device, half = os.environ.get('INTRADP_DEVICE'), len(self.data) // 2
        assert not device or all('ac'.index(device) == (k >= half) for k in samples), device
        return super().take(samples)

    def examples(self, count):
        return self.data.take(range(count))


def task():
    made = make_task(batch=16, grain=2, micro_batches=2, rounds=200)
    return replace(made, data=Here(made.data, {slow!r}))
"""


@dataclass
class Site:
    """Processes by their names, who hears them; rounds take long while `slow` is there."""

    name: str
    slow: Path
    key: Path
    processes: Mapping[str, Child]
    asker: Observer

    def pause(self, node: str, what: str) -> None:
        """Have a coordinator pause or go on."""
        assert ask({'service': f'/{node}/control_training', 'kind': 'ControlTraining',
                    'fields': {'what': what}, 'key_file': str(self.key), 'seconds': PATIENCE}
                   )['success']


class Followed:
    """A goal that goes to whoever coordinates, from a thread of its own."""

    def __init__(self, site: Site) -> None:
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        asked = {'nodes': ['/coordinator', '/standby'], 'task': site.name, 'resume': False,
                 'deadline': 0.0, 'seconds': PATIENCE, 'key_file': str(site.key)}
        threading.Thread(target=lambda: self._said.put(follow(
            asked, self._said.put, threading.Event())), daemon=True).start()

    def until(self, what: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Return the first that is said of which something is true."""
        while not what(line := self._said.get(timeout=PATIENCE)):
            pass
        return line

    def feedback(self, what: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Return the first feedback of which something is true."""
        found: dict[str, Any] = self.until(
            lambda line: 'feedback' in line and what(line['feedback']))['feedback']
        return found


@contextmanager
def site(tmp_path: Path, standby: bool = False) -> Iterator[Site]:
    """Start the devices and their coordinator, with a key, and another that stands by."""
    slow, key = tmp_path / 'slow', tmp_path / 'key'
    slow.touch()  # while it is there rounds take so long that none is missed
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    (tmp_path / 'night.py').write_text(TASK.format(
        tests=str(Path(__file__).parents[1]), slow=str(slow)))
    (tmp_path / 'fleet.yaml').write_text(FLEET)
    name = f'{tmp_path}/night.py:task'
    with own_domain(tmp_path), nodes(tmp_path / 'nodes') as start:
        common = {'fleet': 'night', 'key_file': str(key), 'tasks': [name]}
        names = ('coordinator', 'standby') if standby else ('coordinator',)
        processes = {device: start.start('device_node', {
            **common, 'device_name': device, 'roles': ['training'], 'coordinators': list(names)},
            label=device, node=device, ready='') for device in DEVICES}
        for rank, found in enumerate(names):
            processes[found] = start.start('coordinator_node', {
                **common, 'system': 'training', 'fleet_file': str(tmp_path / 'fleet.yaml'),
                'devices': list(DEVICES), 'timeout_s': 5.0,
                'images': ['a=0.5', 'c=0.5'], 'folder': str(tmp_path / found),
                'coordinator_name': found, 'priority': -rank, 'candidates': [
                    f'{other}={-k}' for k, other in enumerate(names) if other != found] or ['']},
                label=found, node=found)
        asker = Observer()
        yield Site(name, slow, key, processes, asker)
        asker.close()


def test_devices_train_over_dds_though_one_is_killed(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        goal = Followed(made)
        goal.feedback(lambda found: found['round'] > 10 and all(
            device in found['who'] for device in DEVICES))
        made.processes['b'].kill()
        goal.feedback(lambda found: 'b' in found['lost'] and found['state'] == 'training')
        made.slow.unlink()
        result = goal.until(lambda line: 'result' in line)['result']
    assert (result['fate'], result['reason'], result['round']) == ('resumed', '', ROUNDS)
    alone = train_alone(load_task(made.name))
    assert result['loss'] == pytest.approx(alone.loss[-1], rel=1e-9)
    assert difference(load_file(result['checkpoint']), alone) < 1e-10


@pytest.mark.slow
def test_strangers_on_all_topics_change_nothing_of_what_is_trained(tmp_path: Path) -> None:
    """One stops reading, one says all again: what a busy machine loses is recovered."""
    with site(tmp_path) as made:
        goal = Followed(made)
        goal.feedback(lambda found: found['round'] > 3)
        before = resident(made.processes)
        with stranger_who(STALLS), stranger_who(REPEATS) as said:
            wait_for(lambda: said() > 1000, PATIENCE)
            made.slow.unlink()
            result = goal.until(lambda line: 'result' in line)['result']
        after = resident(made.processes)
        for name in (*DEVICES, 'coordinator'):
            made.asker.wait(lambda n=name: made.asker.rejected(n) > 0, f'counts of {name}')
    assert result['fate'] in ('done', 'resumed') and result['round'] == ROUNDS
    assert difference(load_file(result['checkpoint']), train_alone(load_task(made.name))) < 1e-10
    assert all(after[name] - before[name] < 100 for name in before), (before, after)


@pytest.mark.slow
def test_a_pause_outlives_its_coordinator(tmp_path: Path) -> None:
    """Another one saves what devices hold, stays paused, and goes on when it may."""
    with site(tmp_path, standby=True) as made:
        goal = Followed(made)
        goal.feedback(lambda found: found['round'] > 10)
        made.pause('coordinator', 'pause')
        reached = goal.feedback(lambda found: found['state'] == 'paused')['round']
        made.processes['coordinator'].kill()
        status = made.asker.diagnostics

        def says(what: str) -> bool:
            return status.get('/standby', ('', {}))[1].get('training') == what
        made.asker.wait(lambda: says('paused') and 'round' in status['/standby'][1],
                        'the other coordinator', PATIENCE)
        [file] = (tmp_path / 'standby').glob('*.safetensors')
        saved = read_checkpoint(file).round
        assert reached <= saved < ROUNDS
        time.sleep(3.0)
        assert says('paused') and read_checkpoint(file).round == saved
        made.slow.unlink()
        made.pause('standby', 'continue')
        made.asker.wait(lambda: status['/standby'][1]['last_goal'] in ('done', 'resumed'),
                        'the end', PATIENCE)
    assert read_checkpoint(file).round == ROUNDS
    assert difference(load_file(file), train_alone(load_task(made.name))) < 1e-10


@pytest.mark.slow
def test_a_client_whose_coordinator_is_killed_joins_what_another_goes_on_with(
        tmp_path: Path) -> None:
    with site(tmp_path, standby=True) as made:
        task = load_task(made.name)
        write_checkpoint(tmp_path / 'standby' / 'task-20250101-000000.safetensors', Checkpoint(
            {}, made.name, ROUNDS - 1, task.seed, task.batch, 0.5, len(task.data), 7))
        goal = Followed(made)
        goal.feedback(lambda found: found['round'] > 10)
        made.processes['coordinator'].kill()
        assert goal.until(lambda line: 'lost' in line) == {
            'lost': 'the node that serves /coordinator/train is gone'}
        goal.feedback(lambda found: found['state'] == 'training')
        made.slow.unlink()
        end = goal.until(lambda line: 'result' in line)
    result = end['result']
    assert (end['node'], result['round'], result['reason']) == ('/standby', ROUNDS, '')
    assert result['fate'] in ('done', 'resumed')
    assert result['checkpoint'].startswith(f'{tmp_path}/standby/task-0')
    assert '20250101' not in result['checkpoint']  # it is of another training
    assert difference(load_file(result['checkpoint']), train_alone(task)) < 1e-10
