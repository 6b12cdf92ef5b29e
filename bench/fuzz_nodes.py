# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A stranger sends mutated messages to every topic of every node (Linux, as root).

``python bench/fuzz_nodes.py --messages 1000000``

Planner, server and robot share one network; two devices and a coordinator run
another as a pipeline: processes with their default settings, in a network
namespace of their own.  What they subscribe to is read off the ROS graph.
The stranger hears real messages on each topic and sends ones like them (see
`mutation.py`) with the quality of service of the topic.  Between batches real
images are sent, answered, and compared with the unsplit network.

Reliable topics get messages that cannot be decoded, too.  Each of these must
be counted by the node that it was sent to, no more and no less; the next batch
follows when they are.  (Where a process is not let run for seconds, a topic's
history may overwrite one; those not counted are reported, and may be one of
10,000.)  Exits with 1 if a node ends, grows by more than 100 MB, does not
count, answers falsely, or does not share again afterwards.
"""
from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
import json
import os
from pathlib import Path
from random import Random
import sys
import tempfile
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from mutation import mutated
import numpy as np
import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image
import torch

from intradp_lab.emulation.namespaces import run
from intradp_lab.emulation.processes import Child, ros_arguments, starter
from intradp_lab.zoo.dense import depth
from intradp_ros.cli.output_paths import result_file, result_folder
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.processes import Command
from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import save_graph
from intradp_ros.msg import InferenceResult, InferenceStats
from intradp_ros.nodes.sensors.image_messages import rgb_to_image

HEIGHT, WIDTH = 64, 96
#: Messages of a batch on a topic, by the end of its name: well below its history.
BATCHES = {'chunks_up': 80, 'chunks_down': 80, 'acks_up': 150, 'acks_down': 150}
BATCH = 40
#: Of topics whose history is short, or whose messages take long.
FEW = 3
#: Seconds in which a batch is counted, a node starts, and sharing comes back.
PATIENCE = 60.0
MOST_GROWTH = 100.0
#: Topics that rclpy subscribes to for itself.
_OWN = ('/parameter_events', '/rosout', '/clock')
_SLOW = ('schedule_book', 'operator_profiles', 'image', 'fleet_image', 'devices')
PLANNER = {'grid.points': 3, 'grid.low_mbps': 20.0, 'grid.high_mbps': 2000.0}


@dataclass
class Target:
    """A topic that a node subscribes to, and the real messages that were heard there, by kind."""

    kind: type
    qos: QoSProfile
    node: str
    heard: dict[int, Any] = field(default_factory=dict)

    @property
    def reliable(self) -> bool:
        """Return whether what is sent arrives."""
        return bool(self.qos.reliability == ReliabilityPolicy.RELIABLE)


class World:
    """A participant that hears and speaks on all topics of the others."""

    def __init__(self) -> None:
        self.context = rclpy.Context()
        rclpy.init(context=self.context)
        self.node = rclpy.create_node('stranger', context=self.context)
        self.diagnostics: dict[str, tuple[str, dict[str, str]]] = {}
        self.results: dict[int, InferenceResult] = {}
        self.stats: dict[int, InferenceStats] = {}
        self.targets: dict[str, Target] = {}
        self.publishers: dict[str, Any] = {}
        self.changed = threading.Condition()
        self.hearing = True
        self.images = self.node.create_publisher(Image, '/image', 10)
        self.node.create_subscription(DiagnosticArray, '/diagnostics', self._diagnosed, 100)
        self.node.create_subscription(
            InferenceResult, '/result', lambda m: self._keep(self.results, m), 10)
        self.node.create_subscription(
            InferenceStats, '/inference_node/stats', lambda m: self._keep(self.stats, m), 10)
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._executor.shutdown()
        self._thread.join()
        self.context.try_shutdown()

    def wait(self, condition: Callable[[], Any], seconds: float) -> bool:
        """Wait for what messages bring about; return whether they did."""
        with self.changed:
            return bool(self.changed.wait_for(condition, seconds))

    def look_round(self, owners: Mapping[str, str]) -> None:
        """Find what the nodes subscribe to; `owners` says whose diagnostics count for a node."""
        for name, owner in owners.items():
            for topic, (kind, *_) in self.node.get_subscriber_names_and_types_by_node(name, '/'):
                if topic not in _OWN and topic not in self.targets:
                    qos = next(info.qos_profile
                               for info in self.node.get_subscriptions_info_by_topic(topic)
                               if info.node_name == name)
                    self._join(topic, kind, qos, owner)

    def _join(self, topic: str, name: str, found: QoSProfile, owner: str) -> None:
        room, _, kind = name.split('/')
        qos = QoSProfile(depth=1000, reliability=found.reliability, durability=found.durability)
        target = Target(getattr(import_module(f'{room}.msg'), kind), qos, owner)
        self.targets[topic] = target
        self.publishers[topic] = self.node.create_publisher(target.kind, topic, qos)

        def hear(message: Any) -> None:  # before anything of ours is sent
            if self.hearing:
                target.heard.setdefault(getattr(message, 'kind', 0), message)

        self.node.create_subscription(target.kind, topic, hear, qos)

    def infer(self, number: int, pixels: np.ndarray) -> bool:
        """Send an image with this number; return whether it was answered in time."""
        message = rgb_to_image(pixels)
        message.header.stamp.sec, message.header.frame_id = number, 'camera'
        self.images.publish(message)
        return self.wait(lambda: number in self.results and number in self.stats, PATIENCE)

    def count(self, node: str, cause: str = '') -> int:
        """Return how many messages a node has counted, of one cause or of all."""
        values = self.diagnostics.get(f'/{node}', ('', {}))[1]
        return sum(int(n) for key, n in values.items()
                   if key == f'rejected_{cause}' or not cause and (
                       key.startswith('rejected_') or key == 'frames_of_other_sessions'))

    def _keep(self, store: dict[int, Any], message: Any) -> None:
        with self.changed:
            store[message.header.stamp.sec] = message
            self.changed.notify_all()

    def _diagnosed(self, message: DiagnosticArray) -> None:
        with self.changed:
            for status in message.status:
                self.diagnostics[status.name] = (
                    status.message, {v.key: v.value for v in status.values})
            self.changed.notify_all()

    def _spin(self) -> None:
        try:
            self._executor.spin()
        except ExternalShutdownException:
            return


class Fuzz:
    """Sends batches and sees that they are counted."""

    def __init__(self, world: World, children: Mapping[str, Child], random: Random) -> None:
        self.world, self.children, self.random = world, children, random
        self.sent: Counter[str] = Counter()
        #: Messages that cannot be decoded, by node.
        self.broken: Counter[str] = Counter()
        self.uncounted: Counter[str] = Counter()

    def batch(self, most: int) -> int:
        """Send up to so many messages, and wait until they are counted; return how many."""
        sent = 0
        for topic, target in self.world.targets.items():
            name = topic.rpartition('/')[2]
            wanted = FEW if name in _SLOW else BATCHES.get(name, BATCH)
            for _ in range(min(wanted, most - sent)):
                sent += self._send(topic, target)
        for node in self.children:
            if not self.world.wait(partial(self._counted, node), 15.0):
                counted = self.world.count(node, 'undecodable')
                self.uncounted[node] += self.broken[node] - counted
                self.broken[node] = counted
        return sent

    def begin(self) -> None:
        """Send what is not counted yet: discovery takes a while."""
        self.batch(1 << 20)
        self.uncounted.clear()
        time.sleep(5.0)
        for node in self.children:
            self.broken[node] = self.world.count(node, 'undecodable')

    def _counted(self, node: str) -> bool:
        return self.world.count(node, 'undecodable') >= self.broken[node]

    def _send(self, topic: str, target: Target) -> bool:
        good = target.heard[self.random.choice(list(target.heard))] if target.heard \
            else target.kind()
        data = mutated(good, self.random)
        data += bytes(-len(data) % 4)  # as the middleware pads it
        broken = not decodes(data, target.kind)
        if broken and not target.reliable:
            return False
        self.broken[target.node] += broken
        self.world.publishers[topic].publish(data)
        self.sent[topic] += 1
        return True


def decodes(data: bytes, kind: type) -> bool:
    """Return whether bytes are a message."""
    try:
        deserialize_message(data, kind)
    except Exception:  # rclpy has no common class for what the middleware raises
        return False
    return True


def memory(child: Child) -> tuple[float, float]:
    """Return the memory that a process takes and the most that it took, in MB."""
    status = Path(f'/proc/{child.pid}/status').read_text()
    now, most = (int(status.split(f'{name}:')[1].split()[0]) / 1024 for name in ('VmRSS', 'VmHWM'))
    return now, most


@contextmanager
def nodes(folder: Path) -> Iterator[dict[str, Child]]:
    """Run all nodes while the context lasts, by the names that their diagnostics have."""
    model = str(folder / 'depth.graph')
    save_graph(capture(depth(), torch.zeros(1, 3, HEIGHT, WIDTH, dtype=torch.uint8)), model)
    fleet = {'result': 'fleet_result', 'image': 'fleet_image'}
    with starter(folder / 'logs') as start:
        children = {
            name: start(Command(name, ros_arguments(
                f'intradp_ros.nodes.{module}', node=name, parameters=parameters,
                remappings=names)))
            for name, module, parameters, names in (
                ('planner_node', 'sharing.planner_node', PLANNER, {}),
                ('offload_node', 'sharing.offload_node', {'models': [model]}, {}),
                ('inference_node', 'sharing.inference_node', {'model': model}, {}),
                ('robot', 'fleet.device_node', {
                    'models': [model], 'device_name': 'robot', 'requests': True}, fleet),
                ('box', 'fleet.device_node', {'models': [model], 'device_name': 'box'}, fleet),
                ('coordinator_node', 'fleet.coordinator_node', {
                    'model': model, 'source': 'robot', 'stages': 'robot,box',
                    'devices': ['robot', 'box']}, {}))}
        for child in children.values():
            child.wait_for_line('active', 3 * PATIENCE)
        yield children


def owners() -> dict[str, str]:
    """Return the nodes that subscribe, and whose diagnostics count for them."""
    pairs = (('box', 'robot'), ('box', 'coordinator'), ('coordinator', 'robot'))
    process = {'box': 'box', 'robot': 'robot', 'coordinator': 'coordinator_node'}
    channels = {f'fleet_{a}_{b}_{side}_channel': process[end]
                for a, b in pairs for side, end in (('robot', a), ('server', b))}
    return {**{name: name for name in (
        'planner_node', 'offload_node', 'inference_node', 'robot', 'box', 'coordinator_node')},
        **channels, 'offload_robot_channel': 'inference_node',
        'offload_server_channel': 'offload_node'}


def shares(world: World, numbers: Iterator[int], pixels: np.ndarray, wanted: np.ndarray,
           ) -> tuple[bool, bool]:
    """Send an image; return whether the answer is right, and whether the server took part."""
    number = next(numbers)
    if not world.infer(number, pixels):
        raise SystemExit(f'image {number} was not answered within {PATIENCE:g} s')
    (output,) = world.results.pop(number).outputs
    got = np.frombuffer(output.data, np.float32).reshape(output.shape)
    return bool(np.abs(got - wanted).max() <= 1e-4 * np.ptp(wanted)), world.stats[number].shared


def until_shared(world: World, numbers: Iterator[int], pixels: np.ndarray, wanted: np.ndarray,
                 ) -> float:
    """Send images until one is shared and the fleet has a plan; return the seconds of it."""
    begin = time.monotonic()
    while time.monotonic() - begin < 2 * PATIENCE:
        right, shared = shares(world, numbers, pixels, wanted)
        if not right:
            raise SystemExit('a result is false')
        planned = world.diagnostics.get('/coordinator_node', ('', {}))[0] == 'a plan is in use'
        if shared and planned:
            return time.monotonic() - begin
        time.sleep(0.1)
    raise SystemExit(f'not shared again: {world.diagnostics}')


def fuzz(folder: Path, messages: int, seed: int) -> dict[str, Any]:
    """Run everything; return the figures."""
    pixels = np.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    with torch.no_grad():
        wanted = depth()(torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None]).numpy()
    with nodes(folder) as children:
        world = World()
        for topic, value in (('/inference_node/set_parameters', 'offload'),):
            set_mode(world, topic, value)
        numbers = iter(range(1000, 1 << 30))
        until_shared(world, numbers, pixels, wanted)
        world.look_round(owners())
        for _ in range(20):  # real messages are heard
            shares(world, numbers, pixels, wanted)
            time.sleep(0.2)
        world.hearing = False
        play = Fuzz(world, children, Random(seed))
        play.begin()
        sent, shared, asked, begin = 0, 0, 0, time.monotonic()
        before: dict[str, tuple[float, float]] = {}
        outcome = begin
        while sent < messages:
            sent += play.batch(messages - sent)
            right, took_part = shares(world, numbers, pixels, wanted)
            asked, shared = asked + 1, shared + took_part
            ended = [name for name, child in children.items() if child.returncode is not None]
            if not right or ended:
                raise SystemExit(f'right: {right}, ended: {ended}')
            if not before and sent >= messages / 20:
                before = {name: memory(child) for name, child in children.items()}
            if time.monotonic() - outcome > 20.0:
                outcome = time.monotonic()
                print(f'{sent} sent after {outcome - begin:.0f} s', {
                    n: round(memory(c)[0]) for n, c in children.items()}, flush=True)
        seconds = time.monotonic() - begin
        after = {name: memory(child) for name, child in children.items()}
        back = until_shared(world, numbers, pixels, wanted)
        time.sleep(2.0)
        figures = {
            'messages': sent, 'seconds': seconds, 'images': asked, 'shared': shared,
            'shared_again_after': back, 'by_topic': dict(play.sent),
            'undecodable': {n: [play.broken[n] + play.uncounted[n],
                                world.count(n, 'undecodable')] for n in children},
            'counted': {n: world.count(n) for n in children},
            'causes': {n: {k: v for k, v in world.diagnostics[f'/{n}'][1].items()
                           if k.startswith('rejected_')} for n in children},
            'mb': {n: [before[n][0], after[n][0], after[n][1]] for n in children}}
        world.close()
        return figures


def set_mode(world: World, service: str, value: str) -> None:
    """Let the robot always ask the server."""
    from rcl_interfaces.srv import SetParameters
    from rclpy.parameter import Parameter
    client: Any = world.node.create_client(SetParameters, service)
    if not client.wait_for_service(PATIENCE):
        raise SystemExit('the robot has no parameters')
    done = threading.Event()
    client.call_async(SetParameters.Request(parameters=[
        Parameter('mode', value=value).to_parameter_msg()])).add_done_callback(
            lambda future: done.set())
    done.wait(PATIENCE)


def in_own_network() -> None:
    """Go on in a network namespace, whose only interface carries multicast."""
    if 'INTRADP_FUZZ' not in os.environ:
        os.environ |= {'INTRADP_FUZZ': '1'}
        os.execvp('unshare', ['unshare', '--net', sys.executable, *sys.argv])
    run('ip', 'link', 'set', 'lo', 'up', 'multicast', 'on')
    run('ip', 'route', 'add', '224.0.0.0/4', 'dev', 'lo')


def main() -> None:
    """Run, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--messages', type=int, default=20_000)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--json', type=result_file, help='write the figures here too')
    parser.add_argument('--folder', type=result_folder, help='keep logs here')
    args = parser.parse_args()
    in_own_network()
    with tempfile.TemporaryDirectory() as folder:
        os.environ['INTRADP_CACHE'] = f'{folder}/cache'
        os.environ['ROS_LOG_DIR'] = f'{folder}/ros'
        figures = fuzz(args.folder or Path(folder), args.messages, args.seed)
    print(json.dumps(figures, indent=1))
    if args.json:
        write_atomically(args.json, json.dumps(figures, indent=1))
    missed = sum(sent - counted for sent, counted in figures['undecodable'].values())
    if missed > args.messages / 10_000 or any(
            most - before > MOST_GROWTH for before, _, most in figures['mb'].values()):
        raise SystemExit(1)


if __name__ == '__main__':
    main()
