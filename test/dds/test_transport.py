# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Transports: their variables, their checks, and profiles that Fast DDS accepts."""
from __future__ import annotations

from collections.abc import Mapping
import os
from pathlib import Path
import subprocess
import sys

import pytest

from intradp_lab.emulation.transport_choice import AUTO, usable_environment
from intradp_ros.dds.middleware import (
    fast_dds_version,
    LEAST_FAST_DDS,
    library_folders,
    middleware_problem,
)
from intradp_ros.dds.transport_profile import (
    buffer_problem,
    find_transport,
    possible_environment,
    transport_environment,
    transport_in_use,
    TransportError,
    TRANSPORTS,
    VARIABLE,
)

_START_NODE = """
import os, rclpy
from intradp_ros.dds.announcements import Listening
with Listening(int(os.environ['ROS_DOMAIN_ID'])) as listening:
    rclpy.init()
    node = rclpy.create_node('probe')
    print('started with', getattr(listening.own(5.0), 'transport', None))
node.destroy_node()
"""


#: Version of the Fast DDS that the tests run with.
INSTALLED = fast_dds_version(library_folders()) or (0, 0)


def named_profile(variables: Mapping[str, str]) -> str:
    """Return the profile's file that the environment names, '' if none."""
    return Path(next((value for name, value in variables.items()
                      if name.endswith('_DEFAULT_PROFILES_FILE')), '')).name


@pytest.fixture
def limits(tmp_path: Path) -> Path:
    """Return a directory of limits as Linux has them unless told otherwise."""
    for name in ('rmem_max', 'wmem_max'):
        (tmp_path / name).write_text('212992\n')
    return tmp_path


@pytest.mark.parametrize('name', ['udp', 'large_data', 'air'])
def test_fast_dds_accepts_the_profile(name: str, domain: int) -> None:
    """It reports no element it does not know, and announces the profile's property."""
    environment = {**os.environ, **transport_environment(name, environment={})}
    del environment['ROS_AUTOMATIC_DISCOVERY_RANGE']
    done = subprocess.run([sys.executable, '-c', _START_NODE], env=environment, text=True,
                          capture_output=True, timeout=60, check=True)
    assert f'started with {name}\n' in done.stdout
    assert 'XMLPARSER' not in done.stdout + done.stderr


@pytest.mark.parametrize('name', TRANSPORTS)
def test_the_environment_names_the_transport(name: str, tmp_path: Path) -> None:
    """A channel of the same process reads back which transport was chosen."""
    variables = transport_environment(name, environment={}, limits=tmp_path)
    assert transport_in_use(variables) is TRANSPORTS[name]
    assert transport_in_use({}).name == 'default'
    assert named_profile(variables) == (
        TRANSPORTS[name].profile if INSTALLED >= (3, 0) else TRANSPORTS[name].profile_2)


def test_each_version_has_its_profile(tmp_path: Path) -> None:
    """Fast DDS 2 reads another variable, and other words."""
    (tmp_path / 'libfastrtps.so.2.14').touch()
    variables = transport_environment('udp', {'LD_LIBRARY_PATH': str(tmp_path)})
    assert Path(variables['FASTRTPS_DEFAULT_PROFILES_FILE']).name == 'transport_udp_fastdds2.xml'
    (tmp_path / 'libfastrtps.so.2.14').rename(tmp_path / 'libfastdds.so.3.3.0')
    variables = transport_environment('udp', {'LD_LIBRARY_PATH': str(tmp_path)})
    assert Path(variables['FASTDDS_DEFAULT_PROFILES_FILE']).name == 'transport_udp.xml'


def test_low_buffers_are_reported_with_the_fix(limits: Path) -> None:
    """Where nothing would arrive the transport is refused; else it is a warning."""
    with pytest.raises(TransportError, match='net.core.rmem_max=212992.*sudo sysctl -w'):
        transport_environment('large_data', environment={}, limits=limits)
    assert named_profile(transport_environment('udp', {}, limits))
    assert 'would be lost' in buffer_problem(find_transport('udp'), limits)
    for name in ('rmem_max', 'wmem_max'):
        (limits / name).write_text('4194304\n')
    assert buffer_problem(find_transport('udp'), limits) == ''
    assert transport_environment('large_data', {}, limits)


def test_a_range_that_overrides_the_profile_is_refused(tmp_path: Path) -> None:
    """With LOCALHOST the middleware would take another transport, silently."""
    with pytest.raises(TransportError, match='LOCALHOST'):
        transport_environment('large_data', {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'},
                              tmp_path)


def test_unknown_names_are_refused() -> None:
    """The error lists what there is."""
    with pytest.raises(ValueError, match='udp, large_data, default'):
        transport_environment('carrier pigeon')


def test_the_best_transport_that_works_is_found(limits: Path, tmp_path: Path) -> None:
    variables, reason = usable_environment(AUTO, {}, limits)
    assert variables == transport_environment('udp', {}, limits) and 'rmem_max' in reason
    assert usable_environment('udp', {}, limits) == (variables, '')
    with pytest.raises(TransportError, match='rmem_max'):
        usable_environment('large_data', {}, limits)
    unlimited = tmp_path / 'unlimited'
    variables, reason = usable_environment(AUTO, {}, unlimited)
    assert variables[VARIABLE] == 'large_data' and not reason


def test_other_middlewares_are_refused_by_name(tmp_path: Path) -> None:
    """A profile of Fast DDS would be ignored without a word."""
    with pytest.raises(TransportError, match='rmw_cyclonedds_cpp.*transport default'):
        transport_environment('udp', {'RMW_IMPLEMENTATION': 'rmw_cyclonedds_cpp'})
    assert transport_environment('default', {'RMW_IMPLEMENTATION': 'rmw_cyclonedds_cpp'})
    variables, warning = possible_environment('udp', {'RMW_IMPLEMENTATION': 'rmw_zenoh_cpp'})
    assert variables == {VARIABLE: 'default'} and 'rmw_zenoh_cpp' in warning
    assert possible_environment('udp', {}) == (transport_environment('udp', {}), '')
    (tmp_path / 'libfastrtps.so.2.6').touch()
    assert 'Fast DDS 2.6' in middleware_problem({}, [tmp_path])
    (tmp_path / 'libfastrtps.so.2.6').rename(tmp_path / 'libfastrtps.so.2.14.5')
    assert middleware_problem({}, [tmp_path]) == ''


def test_the_installed_middleware_is_found() -> None:
    assert INSTALLED >= LEAST_FAST_DDS
