# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Three device nodes train for a goal to the coordinator node; one of them is killed meanwhile."""
from __future__ import annotations

from pathlib import Path
import queue
import secrets
import threading
from typing import Any

from node_processes import nodes, Observer, own_domain
import pytest
from rclpy.action import ActionClient
from safetensors.torch import load_file
from training_fleet import difference

from intradp_ros.action import Train
from intradp_ros.systems.training.one_process import train_alone
from intradp_ros.systems.training.task import load_task

PATIENCE = 150.0
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
from pathlib import Path
import sys
import time
sys.path.append({tests!r})
from training_fleet import make_task


class Slow:
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def take(self, samples):
        time.sleep(0.1 if Path({slow!r}).exists() else 0.0)
        return self.data.take(samples)


def task():
    made = make_task(batch=16, grain=2, micro_batches=2, rounds=200)
    return replace(made, data=Slow(made.data))
"""


def ended(future: Any) -> Any:
    over = threading.Event()
    future.add_done_callback(lambda _: over.set())
    assert over.wait(PATIENCE), 'no end'
    return future.result()


def seen(feedback: queue.Queue[Any], what: Any) -> Any:
    """Return the first feedback of which something is true."""
    while True:
        message = feedback.get(timeout=PATIENCE)
        if what(message):
            return message


def test_devices_train_over_dds_though_one_is_killed(tmp_path: Path) -> None:
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
        devices = {device: start.start('device_node', {
            **common, 'device_name': device, 'roles': ['training']}, label=device,
            node=device, ready='') for device in DEVICES}
        start.start('coordinator_node', {
            **common, 'system': 'training', 'fleet_file': str(tmp_path / 'fleet.yaml'),
            'devices': list(DEVICES), 'timeout_s': 5.0, 'folder': str(tmp_path / 'found')})
        asker = Observer()
        client = ActionClient(asker.node, Train, 'coordinator_node/train')
        assert client.wait_for_server(PATIENCE)
        feedback: queue.Queue[Any] = queue.Queue()
        goal = ended(client.send_goal_async(Train.Goal(task=name),
                                            lambda m: feedback.put(m.feedback)))
        first = seen(feedback, lambda m: m.round > 10)
        assert all(device in first.who for device in DEVICES)
        devices['b'].kill()
        seen(feedback, lambda m: list(m.lost) == ['b'] and m.state == 'training')
        slow.unlink()
        answer = ended(goal.get_result_async())
        client.destroy()
        asker.close()
    result = answer.result
    assert (result.fate, result.reason, result.round) == ('resumed', '', 200)
    alone = train_alone(load_task(name))
    assert result.loss == pytest.approx(alone.loss[-1], rel=1e-9)
    assert difference(load_file(result.checkpoint), alone) < 1e-10
