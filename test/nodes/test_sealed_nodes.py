# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Nodes with a key, and strangers who call whatever service and action they find at them."""
from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from importlib import import_module
from pathlib import Path
import threading
import time
from typing import Any

from action_msgs.srv import CancelGoal
from node_processes import DENSE, end_of
import pytest
import rclpy
from rclpy.action.client import ActionClient
from rclpy.executors import MultiThreadedExecutor, SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from std_srvs.srv import SetBool
from waiting import wait_for

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.nodes import node_modules
from intradp_ros.nodes.common.call_seals import CallSeals, seal_request, serve
from intradp_ros.nodes.common.operator_request import ask
from intradp_ros.nodes.common.sealed_caller import SealedCaller
from intradp_ros.nodes.training.train_request import follow
from intradp_ros.profiling.profile import OperatorTiming, Profile
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.srv import ControlTraining, PlanModel

PATIENCE = 60.0
TASK = f'{Path(__file__).parents[1]}/training_fleet.py:small_sgd'
ended = partial(end_of, seconds=PATIENCE)
#: ROS's own, which has no room for a seal: doc/security.md.
ROS = ('lifecycle_msgs/', 'rcl_interfaces/', 'type_description_interfaces/', 'action_msgs/')


class Side:
    """A node with a key that is active, and one that asks it, both spun by threads."""

    def __init__(self, context: rclpy.Context, key_file: Path, module: str, **given: Any) -> None:
        made = import_module(node_modules()[module])
        kind = next(found for name, found in vars(made).items() if name.lower() == module.replace(
            '_', '') and found.__module__ == made.__name__)
        given |= {'key_file': str(key_file)}
        self.node = kind(context=context, parameter_overrides=[
            Parameter(name, value=value) for name, value in given.items()])
        self.asker = rclpy.create_node('asker', context=context)
        self.executor = MultiThreadedExecutor(4, context=context)
        for node in (self.node, self.asker):
            self.executor.add_node(node)
        threading.Thread(target=self.executor.spin, daemon=True).start()
        assert self.node.trigger_configure() == TransitionCallbackReturn.SUCCESS
        assert self.node.trigger_activate() == TransitionCallbackReturn.SUCCESS

    def close(self) -> None:
        self.node.release()
        self.executor.shutdown()
        for node in (self.node, self.asker):
            node.destroy_node()

    def service(self, kind: Any, name: str) -> Callable[[Any], Any]:
        client = self.asker.create_client(kind, name)
        assert client.wait_for_service(PATIENCE)
        return lambda request: ended(client.call_async(request))

    def services(self) -> dict[str, str]:
        """Return the types of the services that are not ROS's own, of actions their goals'."""
        name, end = self.node.get_name(), time.monotonic() + PATIENCE
        while not (found := self.asker.get_service_names_and_types_by_node(name, '/')):
            assert time.monotonic() < end
            time.sleep(0.05)
        return {service: kind for service, [kind] in found if not kind.startswith(ROS)
                and not kind.endswith('_GetResult')}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    SharedKey.generate().save(tmp_path / 'key')
    return tmp_path / 'key'


@pytest.fixture
def trainer(context: rclpy.Context, tmp_path: Path, key_file: Path) -> Iterator[Side]:
    side = Side(context, key_file, 'trainer_node', tasks=[TASK], folder=str(tmp_path))
    yield side
    side.close()


def refuses_strangers(side: Side) -> set[str]:
    """See that a stranger is refused wherever there is a door; return the doors."""
    for name, kind in side.services().items():
        package, folder, of = kind.split('/')
        before, made = side.node.refused.total, import_module(f'{package}.{folder}')
        if of.endswith('_SendGoal'):
            action = getattr(made, of.removesuffix('_SendGoal'))
            client = ActionClient(side.asker, action, name.removesuffix('/_action/send_goal'))
            assert client.wait_for_server(PATIENCE)
            result = ended(ended(client.send_goal_async(action.Goal())).get_result_async()).result
            client.destroy()
            assert result.fate == 'refused' and 'not sealed' in result.reason, name
        else:
            answer = side.service(getattr(made, of), name)(getattr(made, of).Request())
            said = [getattr(answer, field, '') for field in ('message', 'reason', 'text')]
            assert 'not sealed' in ''.join(said), name
            assert not getattr(answer, 'success', getattr(answer, 'ok', False))
        assert side.node.refused.total == before + 1, f'{name} does not count a stranger'
    assert set(side.node.refused.by_cause()) == {'unsealed'}
    return {name.rpartition('/')[2] if '_action' not in name else name.split('/')[-3]
            for name in side.services()}


def test_a_trainer_refuses_strangers_recordings_and_junk_and_serves_who_has_the_key(
        trainer: Side, key_file: Path) -> None:
    assert refuses_strangers(trainer) == {'train', 'pause', 'control_training'}
    key, node = SharedKey.load(key_file), trainer.node
    control = trainer.service(ControlTraining, 'trainer_node/control_training')
    pause = ControlTraining.Request(what=ControlTraining.Request.PAUSE)
    assert ask({'service': '/trainer_node/control_training', 'kind': 'ControlTraining',
                'fields': {'what': 'pause'}, 'key_file': str(key_file), 'seconds': PATIENCE}
               ) == {'success': True, 'message': 'nothing is trained; goals wait'}
    challenge = control(ControlTraining.Request(number=3)).challenge
    sealed = seal_request(key, deepcopy(pause), challenge)
    assert control(sealed).success
    for request, cause in ((sealed, 'replayed'), (seal_request(SharedKey.generate(), deepcopy(
            pause), challenge), 'forged'), (seal_request(key, deepcopy(pause), 5), 'challenge')):
        answer = control(request)
        assert not answer.success and node.refused.by_cause()[cause] == 1, answer.message

    said, cancelled = list[dict[str, Any]](), threading.Event()
    ends: list[dict[str, Any]] = []
    asked = {'nodes': ['/trainer_node'], 'task': '', 'resume': False, 'deadline': 0.0,
             'seconds': PATIENCE, 'key_file': str(key_file)}
    following = threading.Thread(target=lambda: ends.append(follow(asked, said.append, cancelled)))
    following.start()
    wait_for(lambda: any(each.get('feedback', {}).get('state') == 'paused' for each in said),
             shown=lambda: said)
    cancel = trainer.service(CancelGoal, 'trainer_node/train/_action/cancel_goal')
    before = node.refused.by_cause()['unsealed']
    assert not cancel(CancelGoal.Request()).goals_canceling
    assert not trainer.service(SetBool, 'trainer_node/pause')(SetBool.Request()).success
    assert not control(ControlTraining.Request(what=2, goal=array('B', bytes(16)))).success
    assert node.refused.by_cause()['unsealed'] == before + 3 and not ends
    cancelled.set()
    following.join(PATIENCE)
    [found] = ends
    assert found['result']['fate'] == 'cancelled', found


def test_who_poses_as_the_trainer_is_not_believed(context: rclpy.Context, key_file: Path) -> None:
    liar, asker = (rclpy.create_node(name, context=context) for name in ('liar', 'who_asks'))
    key, spinning, executor = SharedKey.load(key_file), *(
        SingleThreadedExecutor(context=context) for _ in range(2))
    liar.create_service(ControlTraining, 'posed', lambda request, response: ControlTraining.
                        Response(success=True, challenge=7, mac=array('B', bytes(16))))
    spinning.add_node(liar)
    executor.add_node(asker)
    threading.Thread(target=spinning.spin, daemon=True).start()
    caller = SealedCaller(asker, executor, ControlTraining, 'posed', key)
    with pytest.raises(ValueError, match='not sealed with our key'):
        caller.call(ControlTraining.Request(), 0.5)
    serve(liar, ControlTraining, 'posed', CallSeals(key, lambda *refusal: None),
          lambda request: ControlTraining.Response(message='true'),
          lambda reason: ControlTraining.Response(message=reason))
    assert caller.call(ControlTraining.Request(), PATIENCE).message == 'true'
    for each in (spinning, executor):
        each.shutdown()
    for node in (liar, asker):
        node.destroy_node()


@pytest.mark.slow
@pytest.mark.parametrize(('module', 'given', 'doors'), [
    ('coordinator_node', {'system': 'training', 'tasks': [TASK]},
     {'train', 'pause', 'control_training'}),
    ('offload_node', {'models': [DENSE], 'weights_folder': '.'}, {'load_weights'}),
    ('inference_node', {'model': DENSE, 'weights_folder': '.'}, {'load_weights'}),
    ('language_node', {'answers': True},
     {'generate_response', 'generate_chat_completions'}),
    ('device_node', {'models': [DENSE]}, set()), ('planner_node', {}, set()),
    ('client_node', {}, set())])
def test_no_node_has_a_door_without_a_lock(
        context: rclpy.Context, key_file: Path, module: str, given: dict[str, Any],
        doors: set[str]) -> None:
    """`~/infer`: test_serving_nodes.py."""
    side = Side(context, key_file, module, **given)
    try:
        assert refuses_strangers(side) == doors if doors else not side.services()
    finally:
        side.close()


@pytest.mark.slow
def test_plans_are_changed_by_who_has_the_key_and_told_to_all_now_and_then(
        context: rclpy.Context, tmp_path: Path, key_file: Path) -> None:
    (tmp_path / 'fleet.yaml').write_text(
        'devices: {robot: {memory: 1 GB}, box: {memory: 1 GB, speed: 4}}\n'
        'networks: {wifi: {access point: 100 Mbit/s, devices: [robot, box]}}\n')
    operators = ModelSpec.parse(DENSE).load().split.operators
    (tmp_path / 'profile.json').write_text(Profile('d', 2, 'board', 1, tuple(
        OperatorTiming((op.rows,), (0.5 / len(operators),)) for op in operators), 1.0).to_json())
    side = Side(context, key_file, 'coordinator_node', system='stages', model=DENSE,
                source='robot', qoe='latency=400ms', fleet_file=str(tmp_path / 'fleet.yaml'),
                profile=str(tmp_path / 'profile.json'))
    try:
        assert refuses_strangers(side) == {'plan_model'}
        call, request = side.service(PlanModel, 'coordinator_node/plan_model'), PlanModel.Request
        assert 'computed just now' not in call(request(what=request.TELL)).text
        assert 'computed just now' in call(request(what=request.TELL)).text
        asked = {'service': '/coordinator_node/plan_model', 'kind': 'PlanModel',
                 'fields': {'what': 'tell', 'without': ['box']}, 'key_file': str(key_file),
                 'seconds': PATIENCE}
        for _ in range(2):  # as often as it likes
            assert 'computed just now' not in ask(asked)['text']
        assert 'not sealed' not in ask({**asked, 'fields': {'what': 'hold'}})['text']
    finally:
        side.close()
