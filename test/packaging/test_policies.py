# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The policy files for SROS2 are of the form that its schema asks for, and name every channel."""
from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parents[2] / 'config' / 'security'
NODES = {'offload_node': 'offload_server_channel', 'inference_node': 'offload_robot_channel',
         'planner_node': None}


@pytest.mark.parametrize('node', NODES)
def test_a_policy_for_every_node(node: str) -> None:
    root = ElementTree.parse(FOLDER / f'{node}.policy.xml').getroot()
    assert (root.tag, root.get('version')) == ('policy', '0.2.0')
    (enclave,) = root.iter('enclave')
    assert enclave.get('path') == f'/intradp/{node}'
    profiles = {p.get('node'): p for p in root.iter('profile')}
    assert set(profiles) == {node, NODES[node]} - {None}
    for profile in profiles.values():
        for group in profile:
            assert group.tag in ('topics', 'services') and len(group)
            assert list(group.attrib.values()) == ['ALLOW'] and len(
                {item.text for item in group}) == len(group)


def topics(node: str, profile: str, way: str) -> set[str | None]:
    root = ElementTree.parse(FOLDER / f'{node}.policy.xml').getroot()
    return {topic.text for p in root.iter('profile') if p.get('node') == profile
            for group in p.iter('topics') if group.get(way) for topic in group}


def test_what_one_side_says_the_other_may_hear() -> None:
    robot, server = (('inference_node', 'offload_robot_channel'),
                     ('offload_node', 'offload_server_channel'))
    own = {'/rosout', '/parameter_events'}
    assert topics(*robot, 'publish') - own == topics(*server, 'subscribe')
    assert topics(*server, 'publish') - own == topics(*robot, 'subscribe')
