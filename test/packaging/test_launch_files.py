# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The launch files describe the right nodes; needs `launch_ros`, of which there is no wheel."""
from __future__ import annotations

import os
from pathlib import Path
import sys

import pytest
import yaml

launch = pytest.importorskip('launch', reason='launch comes with ROS, not from PyPI')
pytest.importorskip('launch_ros', reason='launch_ros comes with ROS, not from PyPI')

from launch.actions import ExecuteLocal, IncludeLaunchDescription  # noqa: E402
from launch.launch_description_sources import PythonLaunchDescriptionSource  # noqa: E402
from launch_ros.actions import LifecycleNode  # noqa: E402

SHARE = Path(sys.prefix, 'share', 'intradp_ros')
NODES = {
    'robot': ['inference_node'],
    'server': ['offload_node', 'planner_node'],
    'demo': ['offload_node', 'planner_node', 'inference_node'],
}


@pytest.fixture(autouse=True)
def _index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('AMENT_PREFIX_PATH', sys.prefix)


def visit(entity: object, context: object) -> list[tuple[LifecycleNode, dict[str, str]]]:
    """Return the nodes that an entity leads to, unstarted, with the environment of each."""
    if isinstance(entity, LifecycleNode):
        entity._perform_substitutions(context)
        ExecuteLocal.prepare(entity, context)
        return [(entity, dict(os.environ))]
    found = []
    for child in entity.visit(context) or ():
        found += visit(child, context)
    return found


def nodes_of(name: str, **arguments: str) -> list[tuple[LifecycleNode, dict[str, str]]]:
    """Return the nodes of a launch file, unstarted, and their environments."""
    source = PythonLaunchDescriptionSource(str(SHARE / 'launch' / f'{name}.launch.py'))
    return visit(IncludeLaunchDescription(source, launch_arguments=arguments.items()),
                 launch.LaunchContext())


@pytest.mark.parametrize('name', NODES)
def test_the_nodes_and_their_namespace(name: str) -> None:
    nodes = [node for node, _ in nodes_of(name, namespace='robot_1')]
    assert [node.node_name for node in nodes] == [f'/robot_1/{n}' for n in NODES[name]]


@pytest.mark.parametrize('transport', ['udp', 'large_data'])
def test_the_transport_names_a_profile_that_exists(transport: str) -> None:
    for _, environment in nodes_of('demo', transport=transport):
        assert Path(environment['FASTDDS_DEFAULT_PROFILES_FILE']).is_file()


def test_parameters_reach_the_nodes() -> None:
    [(node, _)] = nodes_of('robot', autostart='false', use_sim_time='true', log_level='debug')
    words = node.process_details['cmd']
    assert words[words.index('--log-level') + 1] == 'debug'
    files = [Path(file) for word, file in zip(words, words[1:]) if word == '--params-file']
    assert files[0] == SHARE / 'config' / 'robot.yaml'
    [given] = yaml.safe_load(files[1].read_text()).values()
    assert given['ros__parameters'] == {'autostart': False, 'use_sim_time': True}


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(RuntimeError, match='transport'):
        nodes_of('robot', transport='pigeon')
