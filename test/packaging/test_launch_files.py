# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The launch files start the right nodes; needs `launch_ros`, of which there is no wheel."""
from __future__ import annotations

from pathlib import Path
import sys

import pytest
import yaml

from intradp_ros.dds.transport_profile import transport_in_use

launch = pytest.importorskip('launch', reason='launch comes with ROS, not from PyPI')
launch_ros = pytest.importorskip('launch_ros.actions', reason='launch_ros comes with ROS')

from launch.actions import EmitEvent, IncludeLaunchDescription, RegisterEventHandler  # noqa: E402
from launch.event_handlers import OnProcessStart  # noqa: E402
from launch.events import Shutdown  # noqa: E402
from launch.events.process import ProcessStarted  # noqa: E402
from launch.launch_description_sources import PythonLaunchDescriptionSource  # noqa: E402

SHARE = Path(sys.prefix, 'share', 'intradp_ros')
NODES = {
    'robot': {'inference_node'},
    'server': {'offload_node', 'planner_node'},
    'device': {'device'},
    'coordinator': {'coordinator_node'},
    'demo': {'offload_node', 'planner_node', 'inference_node'},
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv('AMENT_PREFIX_PATH', sys.prefix)
    monkeypatch.setenv('ROS_LOG_DIR', str(tmp_path))


def start(name: str, **arguments: str) -> dict[str, ProcessStarted]:
    """Run a launch file until its nodes have started; return by node what was started how."""
    started: dict[str, ProcessStarted] = {}

    def collect(event: ProcessStarted, _: launch.LaunchContext) -> EmitEvent | None:
        started[event.action.node_name] = event
        complete = len(started) == len(NODES[name])
        return EmitEvent(event=Shutdown(reason='all nodes have started')) if complete else None

    source = PythonLaunchDescriptionSource(str(SHARE / 'launch' / f'{name}.launch.py'))
    service = launch.LaunchService()
    service.include_launch_description(launch.LaunchDescription([
        RegisterEventHandler(OnProcessStart(on_start=collect)),
        IncludeLaunchDescription(source, launch_arguments=arguments.items())]))
    service.run()
    return started


def option(event: ProcessStarted, name: str) -> list[str]:
    """Return the values of a command line option, in order."""
    return [value for word, value in zip(event.cmd, event.cmd[1:]) if word == name]


@pytest.mark.parametrize('name', NODES)
def test_the_nodes_and_their_namespace(name: str) -> None:
    started = start(name, namespace='robot_1')
    assert set(started) == {f'/robot_1/{node}' for node in NODES[name]}


@pytest.mark.parametrize('transport', ['udp', 'large_data'])
def test_the_transport_names_a_profile_that_exists(transport: str) -> None:
    for event in start('demo', transport=transport).values():
        assert transport_in_use(event.env).name == transport
        profile = Path(event.env['FASTDDS_DEFAULT_PROFILES_FILE'])
        assert profile == SHARE / 'config' / f'transport_{transport}.xml'
        assert profile.is_file()


def test_each_node_gets_its_own_parameter_file() -> None:
    for event in start('demo').values():
        content = yaml.safe_load(Path(option(event, '--params-file')[0]).read_text())
        assert [key.split('/')[-1] for key in content] == [event.action.node_name.strip('/')]


def test_arguments_reach_the_node() -> None:
    [event] = start('robot', autostart='false', use_sim_time='true', log_level='debug',
                    image_topic='camera/image_raw').values()
    assert option(event, '--log-level') == ['debug']
    assert 'image:=camera/image_raw' in option(event, '-r')
    [given] = yaml.safe_load(Path(option(event, '--params-file')[1]).read_text()).values()
    assert given['ros__parameters'] == {'autostart': False, 'use_sim_time': True}


def test_an_unknown_transport_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    assert start('robot', transport='pigeon') == {}
    assert 'pigeon' in caplog.text
