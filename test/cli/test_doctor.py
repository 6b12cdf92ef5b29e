# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp doctor``: what it finds here, and what it would say of machines that are not well."""
from __future__ import annotations

import json
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

import pytest

from intradp_ros.cli.finding import ERROR, Finding, OK, WARNING
from intradp_ros.cli.machine_checks import check_machine, check_modules, check_version
from intradp_ros.cli.network_checks import check_network
from intradp_ros.cli.node_request import SETUP
from intradp_ros.dds.transport_profile import transport_environment

ALONE: dict[str, Any] = {
    'rmw': 'rmw_fastrtps_cpp', 'domain': 7, 'others': [], 'nodes': [], 'profiles': [],
    'own': {'address': '10.0.0.1', 'machine': 'a', 'process': 1, 'transport': 'udp'},
    'clock_offsets': {}}
SERVER = {'address': '10.0.0.2', 'machine': 'b', 'process': 2, 'transport': 'udp'}
UDP = {'INTRADP_TRANSPORT': 'udp'}


def found(environment: dict[str, str] = UDP, **seen: Any) -> dict[str, Finding]:
    return {f.name: f for f in check_network({**ALONE, **seen}, environment)}


def test_a_network_in_order() -> None:
    findings = found(others=[SERVER], nodes=['/offload_node'], clock_offsets={'/a': -0.02},
                     profiles=[['robot', 'd1', 'cpu'], ['server', 'd1', 'cuda']])
    assert {f.state for f in findings.values()} == {OK}
    assert not any(f.fix for f in findings.values())


@pytest.mark.parametrize(('seen', 'name', 'state', 'says'), [
    ({'own': None}, 'multicast', ERROR, '224.0.0.0/4'),
    ({'own': {**SERVER, 'transport': ''}}, 'transport profile', ERROR, 'PROFILES_FILE'),
    ({'others': [{**SERVER, 'transport': 'large_data'}]}, 'transport of others', WARNING, 'same'),
    ({'others': [SERVER]}, 'discovery', ERROR, 'firewall'),
    ({}, 'discovery', WARNING, 'ROS_DOMAIN_ID'),
    ({'profiles': [['robot', 'd1', 'cpu'], ['server', 'd2', 'cpu']]}, 'model d1', ERROR,
     'weights'),
    ({'clock_offsets': {'/camera': 30.0}}, 'clocks', WARNING, 'chrony')])
def test_what_is_wrong_comes_with_its_fix(seen: dict[str, Any], name: str, state: str,
                                           says: str) -> None:
    finding = found(**seen)[name]
    assert finding.state == state and says in finding.fix


def test_limited_discovery_and_no_ros() -> None:
    limited = found({**UDP, 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}, own=None)
    assert limited['discovery range'].state == WARNING and 'multicast' not in limited
    [finding] = check_network({'failed': 'No module named rclpy', 'fix': SETUP})
    assert finding.state == ERROR and 'rclpy' in finding.found and finding.fix == SETUP


def test_limits_and_versions_of_a_machine(tmp_path: Path) -> None:
    for name in ('rmem_max', 'wmem_max'):
        (tmp_path / name).write_text('212992')
    empty = tmp_path / 'fastdds_port7003'
    empty.touch()
    os.utime(empty, (0, 0))
    findings = {f.name: f for f in check_machine(
        {'INTRADP_TRANSPORT': 'large_data', 'RMW_IMPLEMENTATION': 'rmw_cyclonedds_cpp'}, tmp_path,
        tmp_path)}
    assert findings['shared memory'].state == ERROR
    assert findings['shared memory'].fix == f'rm {empty}; and start again what hangs'
    assert findings['socket buffers for large_data'].state == ERROR
    assert findings['socket buffers for udp'].state == WARNING
    assert 'sudo sysctl -w net.core.rmem_max=' in findings['socket buffers for udp'].fix
    assert 'unset it' in findings['middleware'].fix
    assert check_version('numpy', (999,)).state == WARNING
    assert check_version('no-such-package', (1,)).state == ERROR


def test_what_is_not_installed_comes_with_its_fix() -> None:
    assert not list(check_modules(lambda name: name))
    findings = {f.name: f for f in check_modules(lambda name: None)}
    assert findings['cv2'] == Finding('cv2', ERROR, 'not installed',
                                      'pip install opencv-python-headless')
    assert findings['sensor_msgs'].fix.endswith('ros-$ROS_DISTRO-sensor-msgs')
    assert findings['vision_msgs'].state == findings['lz4'].state == WARNING


def test_this_machine(tmp_path: Path) -> None:
    """A real node announces the profile that the environment names; exit status and JSON agree."""
    environment = {**os.environ, **transport_environment('udp'), 'ROS_LOG_DIR': str(tmp_path),
                   'ROS_DOMAIN_ID': str(1 + os.getpid() % 100)}
    done = subprocess.run(
        [sys.executable, '-m', 'intradp_ros.cli.main', 'doctor', '--json', '--seconds', '0.5'],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
    findings = {f['name']: f for f in json.loads(done.stdout)['findings']}
    assert findings['transport profile'] == {
        'name': 'transport profile', 'state': OK, 'found': 'announced as udp', 'fix': ''}
    assert findings['multicast']['state'] == findings['torch']['state'] == OK
    assert done.returncode == int(any(f['state'] == ERROR for f in findings.values()))
