# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The policy files for SROS2 are of the form that its schema asks for, and name every channel."""
from __future__ import annotations

from xml.etree import ElementTree

from policies import FOLDER, names_of, profiles
import pytest

from intradp_ros.nodes import node_modules

CHANNELS = {
    'offload_node': ('offload_server_channel',), 'inference_node': ('offload_robot_channel',),
    'planner_node': (), 'player_node': (), 'trainer_node': (), 'gateway_node': (),
    'client_node': (),
    'language_node': ('fleet_coordinator_device_server_channel',
                      'fleet_device_robot_robot_channel'),
    'device_node': ('fleet_coordinator_device_server_channel', 'fleet_device_robot_robot_channel'),
    'coordinator_node': ('fleet_coordinator_device_robot_channel',
                         'fleet_coordinator_robot_robot_channel')}


def test_every_node_of_the_package_has_a_policy() -> None:
    assert {path.name.partition('.')[0] for path in FOLDER.glob('*.policy.xml')} == {*CHANNELS}
    assert {*node_modules()} <= {*CHANNELS}


@pytest.mark.parametrize('node', CHANNELS)
def test_a_policy_for_every_node(node: str) -> None:
    root = ElementTree.parse(FOLDER / f'{node}.policy.xml').getroot()
    assert (root.tag, root.get('version')) == ('policy', '0.2.0')
    (enclave,) = root.iter('enclave')
    assert enclave.get('path') == f'/intradp/{node}'
    assert set(profiles(node)) == {node, *CHANNELS[node]}
    for profile in profiles(node).values():
        for group in profile:
            assert group.tag in ('topics', 'services', 'actions') and len(group)
            assert list(group.attrib.values()) == ['ALLOW'] and len(
                {item.text for item in group}) == len(group)


@pytest.mark.parametrize(('one', 'other'), [
    (('inference_node', 'offload_robot_channel'), ('offload_node', 'offload_server_channel')),
    (('coordinator_node', 'fleet_coordinator_device_robot_channel'),
     ('device_node', 'fleet_coordinator_device_server_channel'))])
def test_what_one_side_says_the_other_may_hear(
        one: tuple[str, str], other: tuple[str, str]) -> None:
    own = {'/rosout', '/parameter_events'}
    for says, hears in ((one, other), (other, one)):
        assert names_of(profiles(says[0])[says[1]], 'topics', 'publish') - own \
            == names_of(profiles(hears[0])[hears[1]], 'topics', 'subscribe')
