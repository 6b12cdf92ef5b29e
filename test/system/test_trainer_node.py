# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The trainer node as a process: goal, feedback, pause, cancel, resume; one process' result."""
from __future__ import annotations

from functools import partial
from pathlib import Path
import queue
import threading
from typing import Any

from action_msgs.msg import GoalStatus
from node_processes import end_of, nodes, Observer, own_domain
import pytest
from rclpy.action.client import ActionClient
from safetensors.torch import load_file
from std_srvs.srv import SetBool
from training_fleet import difference

from intradp_lab.training.one_process import train_alone
from intradp_ros.action import Train
from intradp_ros.nodes.training.train_request import follow
from intradp_ros.systems.training.base.task import load_task
from intradp_ros.systems.training.layers.checkpoint import read_checkpoint

PATIENCE = 240.0
ended = partial(end_of, seconds=PATIENCE)
TASK = """
from dataclasses import replace
import sys
sys.path.append({tests!r})
from training_fleet import make_task, Slow


def task():
    made = make_task(batch=16, grain=2, micro_batches=2, rounds=600)
    return replace(made, data=Slow(made.data, {slow!r}))
"""


def seen(feedback: queue.Queue[Any], what: Any) -> Any:
    """Return the first feedback of which something is true."""
    while True:
        message = feedback.get(timeout=PATIENCE)
        if what(message):
            return message


def test_a_goal_is_paused_cancelled_and_resumed_with_the_result_of_one_process(tmp_path: Path):
    slow = tmp_path / 'slow'  # while it is there rounds take so long that none is missed
    slow.touch()
    (tmp_path / 'night.py').write_text(TASK.format(
        tests=str(Path(__file__).parents[1]), slow=str(slow)))
    name = f'{tmp_path}/night.py:task'
    with own_domain(tmp_path), nodes(tmp_path / 'nodes') as start:
        start.start('trainer_node', {'tasks': [name], 'folder': str(tmp_path / 'found'),
                                     'processes': 2, 'timeout_s': 20.0})
        asker = Observer()
        client = ActionClient(asker.node, Train, 'trainer_node/train')
        pause = asker.node.create_client(SetBool, 'trainer_node/pause')
        assert client.wait_for_server(PATIENCE) and pause.wait_for_service(PATIENCE)
        feedback: queue.Queue[Any] = queue.Queue()

        def send(**fields: Any) -> Any:
            return ended(client.send_goal_async(
                Train.Goal(**fields), lambda m: feedback.put(m.feedback)))

        stranger = ended(send(task='os:getcwd').get_result_async()).result
        assert stranger.fate == 'refused' and 'none of the tasks' in stranger.reason
        goal = send(task=name)
        assert seen(feedback, lambda m: m.round > 0).rounds == 600
        second = ended(send(task=name).get_result_async()).result
        assert second.fate == 'refused' and 'a goal with resume joins it' in second.reason
        joined = send(task=name, resume=True)
        assert ended(pause.call_async(SetBool.Request(data=True))).success
        paused = seen(feedback, lambda m: m.state == 'paused')
        assert 0 < paused.round < 600 and 'process' in paused.who
        asker.wait(lambda: asker.diagnostics.get('/trainer_node', ('', {}))[0] == 'paused',
                   'diagnostics')
        with pytest.raises(queue.Empty):  # nothing goes on
            while True:
                assert feedback.get(timeout=1.0).round == paused.round
        [file] = (tmp_path / 'found').glob('task-*.safetensors')
        assert read_checkpoint(file).round == paused.round
        assert ended(pause.call_async(SetBool.Request(data=False))).success
        seen(feedback, lambda m: m.state == 'training' and m.round > paused.round)
        ended(joined.cancel_goal_async())
        assert ended(goal.get_result_async()).result.fate == 'cancelled'
        answer = ended(joined.get_result_async())
        assert answer.status == GoalStatus.STATUS_CANCELED
        assert answer.result.fate == 'cancelled' and answer.result.checkpoint == str(file)
        assert paused.round < read_checkpoint(file).round == answer.result.round < 600

        slow.unlink()
        said = list[dict[str, Any]]()
        end = follow({'nodes': ['/nobody', '/trainer_node'], 'task': '', 'resume': True,
                      'deadline': 0.0, 'seconds': PATIENCE}, said.append, threading.Event())
        while 'waiting' in said[0]:  # a node that is found late is waited for, and that is said
            said.pop(0)
        assert said[0] == {'sent': '/trainer_node'} and end['node'] == '/trainer_node'
        assert 'feedback' in said[1]
        result = Train.Result(**end['result'])
        client.destroy()
        asker.close()
    alone = train_alone(load_task(name))
    # a process that the machine lets wait counts as lost for a while
    assert result.fate in ('done', 'resumed') and (result.reason, result.round) == ('', 600)
    assert result.checkpoint == str(file) and len(result.digest) == 64
    assert result.loss == pytest.approx(alone.loss[-1], rel=1e-9)
    assert difference(load_file(file), alone) < 1e-10
