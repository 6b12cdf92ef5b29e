# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A stranger on the domain at every frame: all are answered, none falsified, sharing returns.

And with a key strangers on every topic of a fleet, a training and a served robot: one who stops
reading, one who says again what he heard, one who serves a gateway's name.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
import json
import os
from pathlib import Path
import signal
import time

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from node_processes import (
    DENSE,
    Nodes,
    nodes,
    Observer,
    own_domain,
    PATIENT,
    picture,
    QUICK_PLANNER,
    relative_difference,
    TIMEOUT,
    unsplit,
)
from policies import check_policy
import pytest
import rclpy
import small_models
from std_msgs.msg import String
from stranger import ATTACKS, changed, PROFILE, spinning_alone, Stranger, strangers_node
from stranger_process import REPEATS, resident, STALLS, stranger_who
from torch import nn
from waiting import wait_for

from intradp_lab.emulation.processes import Child
from intradp_lab.fleet.node_fleet import COORDINATOR, NodeFleet
from intradp_lab.fleet.node_fleet import running as running_fleet
from intradp_ros.core.limits import MAX_MODEL_TEXT
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.msg import InferenceResult
from intradp_ros.nodes.serving.infer_server import QOS
from intradp_ros.srv import Infer
from intradp_ros.wire.texts import packed, unpacked

FRAMES = 8
#: A machine that others keep busy too.
BACK_AFTER = 10.0


@dataclass
class Scene:
    """The three nodes, who watches them, and who disturbs them."""

    observer: Observer
    stranger: Stranger
    model: nn.Module
    children: dict[str, Child]
    keyed: bool
    running: Nodes
    key: dict[str, str]

    def start_robot(self) -> None:
        self.children['inference_node'] = self.running.start('inference_node', {
            'model': DENSE, **PATIENT, 'mode': 'offload', **self.key})


@pytest.fixture(scope='module', params=[False, True], ids=['without a key', 'with a key'])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
          ) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp('red_team')
    key: dict[str, str] = {}
    if request.param:
        SharedKey.generate().save(folder / 'key')
        key = {'key_file': str(folder / 'key')}
    with own_domain(folder, os.environ.get('RED_TEAM_TRANSPORT', '')), \
            nodes(folder / 'logs') as running, strangers_node() as stranger:
        observer = Observer()
        children = {
            'planner_node': running.start('planner_node', {**QUICK_PLANNER, **key}),
            'offload_node': running.start('offload_node', {'models': [DENSE], **key})}
        scene = Scene(observer, stranger, small_models.dense(), children, bool(key), running, key)
        scene.start_robot()
        observer.infer_until(picture(0), scene.model, lambda s: s.shared)
        yield scene
        observer.close()


def resident_mb(pid: int) -> float:
    """Return the memory that a process takes."""
    status = Path(f'/proc/{pid}/status').read_text()
    return int(status.split('VmRSS:')[1].split()[0]) / 1024


def test_a_profile_in_the_servers_name_is_noticed(scene: Scene) -> None:
    """Slow, so that nothing would ever be shared: the server says its own again, and warns."""
    heard = scene.stranger.heard
    good = heard[PROFILE, 'server']
    slow = {**json.loads(unpacked(good.profile, MAX_MODEL_TEXT)), 'scale': 1e3}
    forged = changed(good, profile=packed(json.dumps(slow)), sequence=good.sequence + 1)
    scene.stranger.send(PROFILE, forged)
    scene.children['offload_node'].wait_for_line(
        'WARN.*rejected.*another publishes a profile in the name of /offload_node', TIMEOUT)
    scene.observer.wait(
        lambda: int(scene.observer.status('offload_node').get('rejected_profile', 0)) >= 1,
        'the count')
    scene.observer.wait(lambda: heard[PROFILE, 'server'].sequence > good.sequence,
                        'the profile again')
    said = json.loads(unpacked(heard[PROFILE, 'server'].profile, MAX_MODEL_TEXT))
    assert said['scale'] < 100  # it may have drifted meanwhile


@pytest.mark.parametrize('name', ATTACKS)
def test_every_frame_is_answered_right_and_sharing_returns(scene: Scene, name: str) -> None:
    observer, wanted = scene.observer, unsplit(scene.model, picture(1))
    observer.infer_until(picture(1), scene.model, lambda s: s.shared)
    before = {node: resident_mb(child.pid) for node, child in scene.children.items()}
    sent = scene.stranger.sent
    scene.stranger.react = ATTACKS[name]
    try:
        for _ in range(FRAMES):
            begin = time.monotonic()
            result, stats = observer.infer(picture(1))
            assert relative_difference(result, wanted) <= 1e-4, stats
            assert time.monotonic() - begin < BACK_AFTER
            time.sleep(0.05)
    finally:
        scene.stranger.react = lambda *heard: None
    end = time.monotonic()
    observer.infer_until(picture(1), scene.model, lambda s: s.shared)
    print(f'{name}: {scene.stranger.sent - sent} sent, shared '
          f'{time.monotonic() - end:.1f} s after it')
    assert time.monotonic() - end < BACK_AFTER
    assert scene.stranger.sent > sent
    for node, child in scene.children.items():
        assert child.returncode is None
        assert resident_mb(child.pid) - before[node] < 100


def test_what_went_on_is_reported(scene: Scene) -> None:
    """By cause, in diagnostics; and once, that there is no key."""
    observer = scene.observer
    causes = {'unsealed', 'forged', 'replayed'} if scene.keyed else {'impostor'}
    for node in ('inference_node', 'offload_node'):
        observer.wait(lambda n=node: any(
            f'rejected_{cause}' in observer.status(n) for cause in causes), f'causes of {node}')
    for node in scene.children:
        assert observer.status(node)['authenticated'] == str(scene.keyed)
        assert ('no key_file:' in scene.children[node].output()) != scene.keyed


def test_false_results_are_noticed(scene: Scene) -> None:
    """Listeners cannot know who published a result, so the robot says that another does."""
    observer, robot = scene.observer, scene.children['inference_node']
    observer.wait(lambda: observer.status('inference_node').get('other_publishers') == '0', 'none')
    with observer.publishing(InferenceResult, 'result'):
        robot.wait_for_line('WARN.*another publishes on /result, too', TIMEOUT)
        observer.wait(lambda: observer.status('inference_node')['other_publishers'] == '1',
                      'the count')
    observer.wait(lambda: observer.status('inference_node')['other_publishers'] == '0', 'none')


def test_a_stranger_who_deactivates_the_robot_is_reported(scene: Scene) -> None:
    """ROS lets anybody do that without SROS2; who watches sees it, and can undo it."""
    observer, robot = scene.observer, scene.children['inference_node']
    client = observer.node.create_client(ChangeState, 'inference_node/change_state')
    assert client.wait_for_service(TIMEOUT)

    def change(transition: int) -> None:
        request = ChangeState.Request(transition=Transition(id=transition))
        answer = client.call_async(request)
        wait_for(lambda: answer.done(), TIMEOUT)
        assert answer.result().success

    change(Transition.TRANSITION_DEACTIVATE)
    robot.wait_for_line('WARN.*deactivated by a call of change_state', TIMEOUT)
    observer.wait(lambda: 'inactive' in observer.diagnostics['/inference_node'][0], 'inactive')
    change(Transition.TRANSITION_ACTIVATE)
    observer.infer_until(picture(1), scene.model, lambda s: s.shared)
    observer.wait(lambda: 'inactive' not in observer.diagnostics['/inference_node'][0], 'active')


def test_policies_allow_what_the_nodes_do(scene: Scene) -> None:
    """Every topic and service that the graph shows of a node is in its policy for SROS2."""
    for node in scene.children:
        check_policy(node, scene.observer.node)


@pytest.mark.slow
def test_ten_thousand_forged_frames(scene: Scene) -> None:
    """All attacks at once and recordings, as fast as they go: nothing is falsified or lost."""
    observer, stranger, wanted = scene.observer, scene.stranger, unsplit(scene.model, picture(1))
    observer.infer_until(picture(1), scene.model, lambda s: s.shared)
    before, shared, frames = stranger.sent, 0, 0
    stranger.react = lambda *heard: [attack(*heard) for attack in ATTACKS.values()
                                     for _ in range(5)]
    try:
        while stranger.sent - before < 10_000:
            result, stats = observer.infer(picture(1))
            assert relative_difference(result, wanted) <= 1e-4, stats
            shared, frames = shared + stats.shared, frames + 1
    finally:
        stranger.react = lambda *heard: None
    begin = time.monotonic()
    observer.infer_until(picture(1), scene.model, lambda s: s.shared)
    print(f'{stranger.sent - before} forged: {shared} of {frames} frames shared meanwhile, none '
          f'falsified or lost; shared {time.monotonic() - begin:.1f} s after it')
    assert time.monotonic() - begin < BACK_AFTER


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_robot_that_is_ended_leaves_no_session(scene: Scene, number: signal.Signals) -> None:
    """It says good-bye before the middleware goes down; a new one takes its place."""
    observer, robot = scene.observer, scene.children['inference_node']
    observer.wait(lambda: observer.status('offload_node').get('sessions') == '1', 'a session')
    robot.signal(number)
    observer.wait(lambda: observer.status('offload_node').get('sessions') == '0', 'no session', 10)
    assert robot.wait(TIMEOUT) == 0
    if number == signal.SIGINT:
        scene.start_robot()
        observer.infer_until(picture(1), scene.model, lambda s: s.shared)


#: MB that a victim may take more than before.
MORE_MB = 100
SERVICES = f"""
services:
  dense: {{model: "{DENSE}", deadline: 60 s, batches: [1]}}
"""


@pytest.mark.slow
@pytest.mark.parametrize('transport', ['', 'udp'])
def test_a_fleet_with_a_key_computes_on_among_strangers_on_all_topics(
        tmp_path: Path, transport: str) -> None:
    SharedKey.generate().save(tmp_path / 'key')
    with own_domain(tmp_path, transport, local=True), running_fleet(NodeFleet(
            DENSE, 'a', dict.fromkeys('abc', 1.0), tmp_path, 'a,b,c',
            key_file=str(tmp_path / 'key'))) as run, closing(Observer()) as observer:
        asker = run.asker(interval=0.2, frames=10_000, silence=20.0)
        run.wait_for_plan(asker, 'a, b, c')
        watched = {**run.children, 'asker': asker}
        before = resident(watched)
        with stranger_who(STALLS):
            time.sleep(8.0)
        with stranger_who(REPEATS) as said:
            time.sleep(8.0)
            for name in ('b', 'c', COORDINATOR):
                observer.wait(lambda n=name: {'rejected_forged', 'rejected_replayed'} <= set(
                    observer.status(n)), f'counts of {name}')
            assert said() > 500
        after = resident(watched)
        seen = run.stop_asking(asker)
    assert len(seen) > 50 and all(s.answered and s.difference < 1e-4 for s in seen)
    # on a busy machine a device is silent now and then, which the asker makes up for
    assert sum(s.pipelined for s in seen) >= 0.5 * len(seen)
    assert all(after[name] - before[name] < MORE_MB for name in before), (before, after)


@dataclass
class Served:
    """A gateway and a robot with a key, who watches them, and the key."""

    observer: Observer
    children: dict[str, Child]

    def check(self, frames: int = 10) -> None:
        """Let frames be answered as by the model in one process."""
        sent = []
        for k in range(frames):
            sent.append(self.observer.publish(picture(k)))
            time.sleep(0.1)  # what images come at once the sensor's queue drops
        begin = time.monotonic()
        for number in sent:
            self.observer.answer(number)
        assert time.monotonic() - begin < BACK_AFTER
        last, truth = self.observer.sent, unsplit(small_models.dense(), picture(frames - 1))
        assert relative_difference(self.observer.results[last], truth) <= 1e-6


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    SharedKey.generate().save(folder / 'key')
    (folder / 'services.yaml').write_text(SERVICES)
    key = {'key_file': str(folder / 'key')}
    with own_domain(folder), nodes(folder / 'logs') as start, \
            closing(Observer(robot='client_node')) as observer:
        yield Served(observer, {
            'gateway_node': start.start('gateway_node', {
                'services_file': str(folder / 'services.yaml'), **key}),
            'client_node': start.start('client_node', {
                'service': 'dense', 'deadline_ms': 60_000.0, 'frame_age': 'arrival',
                'keep': 'all', 'max_inflight': 8, **key})})


@pytest.mark.slow
def test_a_served_robot_with_a_key_is_answered_among_strangers(tmp_path: Path) -> None:
    with served(tmp_path) as made:
        observer = made.observer
        observer.meet_robot(picture(0))
        made.check()
        before = resident(made.children)
        for how in (STALLS, REPEATS):
            with stranger_who(how):
                made.check(30)
        with spinning_alone(_Rival) as rival:
            observer.wait(lambda: rival.asked > 0, 'a question to the rival')
            made.check()
            names = rival.node.create_publisher(String, '/client_node/gateways', 10)
            observer.wait(names.get_subscription_count, 'who hears names')
            for turn in range(100):
                names.publish(String(data=','.join(f'x{turn}_{k}' for k in range(16))))
                time.sleep(0.01)
            names.publish(String(data='rival'))
            names.publish(String(data='no name at all'))
            made.check()
            unsealed = rival.node.create_client(Infer, '/gateway_node/infer', qos_profile=QOS)
            assert unsealed.wait_for_service(TIMEOUT)
            for _ in range(1000):
                unsealed.call_async(Infer.Request(service='dense', remaining=1.0))
                time.sleep(0.001)
            made.check()
        observer.wait(lambda: int(observer.status('client_node').get(
            'rejected_of_gateways_unsealed', 0)) > 10, 'the answers of the rival')
        observer.wait(lambda: int(observer.status('client_node').get(
            'rejected_gateways', 0)) > 90, 'the names')
        after = resident(made.children)
    assert all(after[name] - before[name] < MORE_MB for name in before), (before, after)


class _Rival:
    """Serves the gateway's name, too, and answers at once."""

    def __init__(self, context: rclpy.Context) -> None:
        self.node, self.asked = rclpy.create_node('rival', context=context), 0
        self.node.create_service(Infer, '/gateway_node/infer', self._answer, qos_profile=QOS)

    def _answer(self, request: Infer.Request, response: Infer.Response) -> Infer.Response:
        self.asked += 1
        return Infer.Response(fate='in_time', reason='as if')
