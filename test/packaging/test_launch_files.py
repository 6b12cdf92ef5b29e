# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The launch files start the right nodes, which become active with their defaults.

Needs `launch` and `launch_ros`, of which there are no wheels; `.ci/run` finds them.
"""
from __future__ import annotations

import os
from pathlib import Path
import re
import signal
import sys
from typing import Any

from node_processes import domain_of_process
import pytest
import yaml

from intradp_ros.dds.transport_profile import transport_in_use

launch = pytest.importorskip('launch', reason='launch comes with ROS, not from PyPI')
launch_ros = pytest.importorskip('launch_ros.actions', reason='launch_ros comes with ROS')

from launch import LaunchContext  # noqa: E402
from launch.actions import (  # noqa: E402
    EmitEvent,
    IncludeLaunchDescription,
    RegisterEventHandler,
    TimerAction,
)
from launch.event_handlers import OnProcessIO, OnProcessStart  # noqa: E402
from launch.events import Shutdown  # noqa: E402
from launch.events.process import ProcessIO, ProcessStarted  # noqa: E402
from launch.launch_description_sources import PythonLaunchDescriptionSource  # noqa: E402

SHARE = Path(sys.prefix, 'share', 'intradp_ros')
#: Longest seconds until the nodes of a file are active: models are measured meanwhile.
PATIENCE = 300.0
NODES = {
    'robot': {'inference_node'},
    'server': {'offload_node', 'planner_node'},
    'device': {'device'},
    'coordinator': {'coordinator_node'},
    'language': {'board'},
    'trainer': {'trainer_node'},
    'gateway': {'gateway_node'},
    'client': {'client_node'},
    'demo': {'offload_node', 'planner_node', 'inference_node'},
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv('AMENT_PREFIX_PATH', sys.prefix)
    monkeypatch.setenv('ROS_LOG_DIR', str(tmp_path))


def start(name: str, **arguments: str) -> dict[str, ProcessStarted]:
    """
    Run a launch file until its nodes have started; return by node what was started how.

    They are killed before they import anything.
    """
    started: dict[str, ProcessStarted] = {}

    def collect(event: ProcessStarted, _: LaunchContext) -> EmitEvent | None:
        started[event.action.node_name] = event
        if len(started) < len(NODES[name]):
            return None
        for each in started.values():
            os.kill(each.pid, signal.SIGKILL)
        return EmitEvent(event=Shutdown(reason='all nodes have started'))

    source = PythonLaunchDescriptionSource(str(SHARE / 'launch' / f'{name}.launch.py'))
    service = launch.LaunchService()
    service.include_launch_description(launch.LaunchDescription([
        RegisterEventHandler(OnProcessStart(on_start=collect)),
        IncludeLaunchDescription(source, launch_arguments=arguments.items())]))
    service.run()
    return started


def active(name: str) -> tuple[set[str], str]:
    """
    Run a launch file as it is until its nodes are active, at most `PATIENCE` seconds.

    Returns those that became so, and what all wrote.
    """
    found: set[str] = set()
    written: list[str] = []

    def read(event: ProcessIO) -> EmitEvent | None:
        text = event.text.decode(errors='replace')
        written.append(text)
        if re.search(r'\]: active$', text, re.MULTILINE):
            found.add(event.action.node_name.strip('/'))
        return EmitEvent(event=Shutdown(reason='all are active')) if found == NODES[name] else None

    source = PythonLaunchDescriptionSource(str(SHARE / 'launch' / f'{name}.launch.py'))
    service = launch.LaunchService()
    service.include_launch_description(launch.LaunchDescription([
        RegisterEventHandler(OnProcessIO(on_stdout=read, on_stderr=read)),
        TimerAction(period=PATIENCE, actions=[EmitEvent(event=Shutdown(reason='too long'))]),
        IncludeLaunchDescription(source)]))
    service.run()
    return found, ''.join(written)


def option(event: ProcessStarted, name: str) -> list[str]:
    """Return the values of a command line option, in order."""
    return [value for word, value in zip(event.cmd, event.cmd[1:]) if word == name]


def nothing_starts(name: str, caplog: pytest.LogCaptureFixture, **arguments: str) -> str:
    """Run a launch file that must fail before a node starts; return what was logged."""
    assert start(name, **arguments) == {}
    return caplog.text


def given(event: ProcessStarted) -> dict[str, Any]:
    """Return the parameters that launch arguments set."""
    [section] = yaml.safe_load(Path(option(event, '--params-file')[1]).read_text()).values()
    return {name: value for name, value in section['ros__parameters'].items()
            if name not in ('autostart', 'use_sim_time')}


@pytest.fixture(scope='module')
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where nodes keep profiles: what one has measured the next one takes."""
    return tmp_path_factory.mktemp('cache')


@pytest.mark.parametrize('name', [
    pytest.param(name, marks=pytest.mark.slow) if NODES[name] < NODES['demo'] else name
    for name in NODES])  # `demo` starts the same nodes with the same files
def test_with_its_defaults_a_launch_file_comes_to_active_nodes(
        name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('INTRADP_CACHE', str(cache))
    monkeypatch.setenv('ROS_DOMAIN_ID', domain_of_process())
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    monkeypatch.setenv('OMP_NUM_THREADS', '1')
    found, written = active(name)
    assert found == NODES[name] and 'Traceback' not in written, written


@pytest.mark.parametrize('transport', ['udp', 'large_data'])
def test_the_transport_names_a_profile_that_exists(transport: str) -> None:
    for event in start('demo', transport=transport).values():
        assert transport_in_use(event.env).name == transport
        [profile] = [Path(value) for name, value in event.env.items()
                     if name.endswith('_DEFAULT_PROFILES_FILE')]
        assert profile.parent == SHARE / 'config' and profile.is_file()
        assert profile.name.startswith(f'transport_{transport}')


def test_each_node_gets_its_own_parameter_file() -> None:
    for event in start('demo').values():
        content = yaml.safe_load(Path(option(event, '--params-file')[0]).read_text())
        assert [key.split('/')[-1] for key in content] == [event.action.node_name.strip('/')]


def test_arguments_reach_the_node() -> None:
    [event] = start('robot', autostart='false', use_sim_time='true', log_level='debug',
                    image_topic='camera/image_raw').values()
    assert option(event, '--log-level') == ['debug']
    assert 'image:=camera/image_raw' in option(event, '-r')
    [section] = yaml.safe_load(Path(option(event, '--params-file')[1]).read_text()).values()
    assert section['ros__parameters'] == {'autostart': False, 'use_sim_time': True}


def test_parameters_can_be_given_as_arguments() -> None:
    """Model, server and device go to both sides; what is not given stays as the file says."""
    nodes = start('demo', model='a.b:c 1x3x8x8 uint8', server='lab', mode='offload', device='cpu',
                  weights_folder='/night')
    assert given(nodes['/inference_node']) == {
        'model': 'a.b:c 1x3x8x8 uint8', 'server': 'lab', 'mode': 'offload', 'device': 'cpu',
        'weights_folder': '/night'}
    assert given(nodes['/offload_node']) == {
        'models': ['a.b:c 1x3x8x8 uint8'], 'server': 'lab', 'device': 'cpu',
        'weights_folder': '/night'}
    assert given(nodes['/planner_node']) == {}
    assert given(start('robot')['/inference_node']) == {}


@pytest.mark.parametrize('name', NODES)
def test_the_nodes_their_namespace_and_arguments(name: str, monkeypatch: pytest.MonkeyPatch,
                                                 caplog: pytest.LogCaptureFixture) -> None:
    """Nothing but what the nodes take is declared; what is misspelt is warned of."""
    source = PythonLaunchDescriptionSource(str(SHARE / 'launch' / f'{name}.launch.py'))
    description = source.get_launch_description(launch.LaunchContext())
    names = {argument.name for argument in description.get_launch_arguments()}
    pair = name in ('robot', 'server', 'demo')
    assert {'namespace', 'transport'} <= names
    assert names & {'model', 'server', 'device'} == ({'model', 'server', 'device'} if pair
                                                     else set())
    assert ('mode' in names) == ('points_topic' in names) == ('inference_node' in NODES[name])
    assert ('params_file' in names) == (name != 'demo')
    monkeypatch.setattr(sys, 'argv', ['ros2', 'launch', 'intradp_ros', f'{name}.launch.py'])
    monkeypatch.setattr(launch.logging.get_logger('intradp_ros'), 'handlers', [caplog.handler])
    started = start(name, namespace='robot_1', transprot='udp', colour='red')
    assert set(started) == {f'/robot_1/{node}' for node in NODES[name]}
    assert 'no launch argument transprot: is transport meant?' in caplog.text
    assert 'no launch argument colour; there are namespace' in caplog.text


def test_wrong_values_end_the_start(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    assert 'pigeon' in nothing_starts('robot', caplog, transport='pigeon')
    assert 'sideways' in nothing_starts('robot', caplog, mode='sideways')
    missing = tmp_path / 'none.yaml'
    assert f'params_file:={missing}: there is no such file' in nothing_starts(
        'robot', caplog, params_file=str(missing))
