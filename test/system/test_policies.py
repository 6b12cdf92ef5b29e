# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Policy files allow what a fleet's nodes and the player do; with a key a plan is made, too."""
from __future__ import annotations

from pathlib import Path

from node_processes import DENSE, nodes, Observer, own_domain, TIMEOUT
from policies import check_policy, profiles

from intradp_lab.emulation.processes import ros_arguments, starter
from intradp_ros.core.processes import Command
from intradp_ros.core.shared_key import SharedKey

DEVICES = {'device': 'device_node', 'robot': 'robot_node'}


def test_policies_allow_what_language_and_trainer_nodes_do(tmp_path: Path) -> None:
    """Two boards that a coordinator of another system greets, and a trainer with its action."""
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as running:
        for device, node in (('device', 'language_node'), ('robot', 'robot_node')):
            running.start('language_node', {'device_name': device, 'answers': True}, node=node)
        running.start('trainer_node', {'tasks': ['intradp_ros.systems.training.shapes:shapes']})
        running.start('coordinator_node', {
            'model': DENSE, 'source': 'device', 'stages': 'device', 'devices': list(DEVICES)})
        observer = Observer()
        try:
            observer.wait(lambda: {'language_node', 'trainer_node'} <= {
                *observer.node.get_node_names()}, 'the nodes')
            observer.wait(lambda: 'fleet_coordinator_device_server_channel' in
                          observer.node.get_node_names(), 'the channel to the coordinator')
            check_policy('trainer_node', observer.node)
            check_policy('language_node', observer.node,
                         without=('fleet_device_robot_robot_channel',))
        finally:
            observer.close()


def test_policies_allow_what_the_nodes_do(tmp_path: Path) -> None:
    SharedKey.generate().save(tmp_path / 'key')
    key = {'key_file': str(tmp_path / 'key')}
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as running, starter(
            tmp_path / 'more') as start:
        start(Command('player', ros_arguments('intradp_lab.player_node', parameters={
            'model': DENSE, 'frames': 1, 'output': str(tmp_path)})))
        for device, node in DEVICES.items():
            start(Command(node, ros_arguments(
                'intradp_ros.nodes.fleet.device_node', node=node, parameters={
                    'models': [DENSE], 'device_name': device, 'asks': True, **key})))
        running.start('coordinator_node', {
            'model': DENSE, 'source': 'device', 'stages': 'device,robot',
            'devices': list(DEVICES), **key}).wait_for_line('active', TIMEOUT)
        observer = Observer()
        try:
            observer.wait(lambda: observer.diagnostics.get('/coordinator_node', ('',))[0]
                          == 'a plan is in use', 'a plan')
            for node in ('coordinator_node', *DEVICES.values()):
                observer.wait(lambda n=node: observer.status(n).get('authenticated') == 'True',
                              f'{node} to take frames with our key only')
            observer.wait(lambda: 'player_node' in observer.node.get_node_names(), 'the player')
            policies = ('device_node', 'coordinator_node', 'player_node')
            channels = {name for name in observer.node.get_node_names() if 'channel' in name}
            assert {name for policy in policies for name in profiles(policy)} - {*policies} \
                <= channels
            for policy in policies:
                check_policy(policy, observer.node)
        finally:
            observer.close()
