# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The verbs of ``ros2`` that documents use, where ros2cli, of which there is no wheel, is missing.

``launch`` needs the packages `launch` and `launch_ros`; the others go by rclpy.  Each takes the
words that ros2cli takes and does the same, no more than documents need of it.
"""
from __future__ import annotations

from importlib import import_module
import os
from pathlib import Path
import sys
import time
from typing import Any

import yaml

#: Seconds until what is called must be there, and until it must have answered.
PATIENCE, ANSWER = 60.0, 300.0


def launch(package: str, file: str, *arguments: str) -> int:
    """Include a launch file of a package until it ends, or Ctrl-C."""
    from launch import LaunchDescription, LaunchService
    from launch.actions import IncludeLaunchDescription
    from launch.launch_description_sources import PythonLaunchDescriptionSource
    found = PythonLaunchDescriptionSource(str(
        Path(sys.prefix, 'share', package, 'launch', file)))
    given = [tuple(argument.split(':=', 1)) for argument in arguments]
    service = LaunchService(argv=list(arguments))
    service.include_launch_description(LaunchDescription([
        IncludeLaunchDescription(found, launch_arguments=given)]))
    status: int = service.run()
    return status


def run(package: str, executable: str, *arguments: str) -> int:
    """Become an executable of a package."""
    program = str(Path(sys.prefix, 'lib', package, executable))
    os.execv(program, [program, *arguments])


def interface(name: str) -> Any:
    """Return the class of an interface, such as "std_msgs/msg/String"."""
    package, kind, name = name.split('/')
    return getattr(import_module(f'{package}.{kind}'), name)


def filled(message: Any, text: str) -> Any:
    """Return a message with the fields of a YAML text."""
    def fill(part: Any, fields: dict[str, Any]) -> None:
        for name, value in fields.items():
            if isinstance(value, dict):
                fill(getattr(part, name), value)
            else:
                setattr(part, name, value)
    fill(message, yaml.safe_load(text) or {})
    return message


class Session:
    """A node of this process, spun while something is waited for."""

    def __init__(self) -> None:
        import rclpy
        rclpy.init()
        self.rclpy, self.node = rclpy, rclpy.create_node('ros2_verbs')

    def until(self, found: Any, seconds: float, what: str) -> None:
        """Spin until a condition holds; SystemExit if it never does."""
        deadline = time.monotonic() + seconds
        while not found():
            if time.monotonic() > deadline:
                sys.exit(f'ros2: waited {seconds:g} s in vain for {what}')
            self.rclpy.spin_once(self.node, timeout_sec=0.1)


def topic(verb: str, name: str, *options: str) -> int:
    """Print messages of a topic, or the time between them, until Ctrl-C or `--once`."""
    from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
    session = Session()
    session.until(lambda: session.node.count_publishers(name), PATIENCE, f'a publisher of {name}')
    [end, *_] = session.node.get_publishers_info_by_topic(name)
    latched = end.qos_profile.durability is DurabilityPolicy.TRANSIENT_LOCAL
    qos = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT
                     if not latched else ReliabilityPolicy.RELIABLE,
                     durability=end.qos_profile.durability)
    heard: list[float] = []

    def take(message: Any) -> None:
        heard.append(time.monotonic())
        if verb == 'hz' and len(heard) > 1:
            print(f'average rate: {(len(heard) - 1) / (heard[-1] - heard[0]):.3f}', flush=True)
        elif verb == 'echo':
            print(message, flush=True)

    session.node.create_subscription(interface(end.topic_type), name, take, qos)
    if '--once' in options:
        session.until(lambda: heard, PATIENCE, f'a message on {name}')
    while '--once' not in options:
        session.rclpy.spin_once(session.node)
    return 0


def service(verb: str, name: str, kind: str, request: str = '{}') -> int:
    """Call a service and print what it answers."""
    assert verb == 'call', verb
    session, found = Session(), interface(kind)
    client: Any = session.node.create_client(found, name)
    session.until(client.service_is_ready, PATIENCE, f'the service {name}')
    future = client.call_async(filled(found.Request(), request))
    session.until(future.done, ANSWER, 'an answer')
    print(future.result())
    return 0


def action(verb: str, *words: str) -> int:
    """Send a goal; print its feedback, if asked for, and its result."""
    from rclpy.action.client import ActionClient
    assert verb == 'send_goal', verb
    feedback = '--feedback' in words or '-f' in words
    name, kind, goal = (word for word in words if not word.startswith('-'))
    session, found = Session(), interface(kind)
    client: Any = ActionClient(session.node, found, name)
    session.until(client.server_is_ready, PATIENCE, f'the action {name}')
    sent = client.send_goal_async(
        filled(found.Goal(), goal), lambda m: print('Feedback:', m.feedback, flush=True)
        if feedback else None)
    session.until(sent.done, PATIENCE, 'the goal to be taken')
    if not sent.result().accepted:
        sys.exit('Goal was rejected.')
    result = sent.result().get_result_async()
    session.until(result.done, ANSWER, 'a result')
    print('Result:', result.result().result)
    return 0


def intradp(*words: str) -> int:
    """Run the command `intradp`."""
    from intradp_ros.cli.main import main
    return main(list(words))


VERBS = {f.__name__: f for f in (launch, run, topic, service, action, intradp)}

if __name__ == '__main__':
    try:
        sys.exit(VERBS[sys.argv[1]](*sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(130)
