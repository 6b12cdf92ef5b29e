# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Nodes with the transports that ship, between network namespaces, among plain ROS 2 neighbours.

The other tests of nodes stay on this machine (LOCALHOST), where the middleware drops the
profile's transports.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
import json
from pathlib import Path
import sys
from typing import Any

from node_processes import DENSE, own_domain, PATIENT, QUICK_PLANNER, TIMEOUT
import pytest

from intradp_lab.emulation.namespaces import run
from intradp_lab.emulation.network import available, shaped_link, ShapedLink
from intradp_lab.emulation.processes import Child, ros_arguments, starter
from intradp_ros.core.processes import Command
from intradp_ros.dds.transport_profile import transport_environment
from intradp_ros.nodes import node_modules

NEIGHBOUR = str(Path(__file__).with_name('plain_neighbour.py'))
MBIT = 1000.0
IMAGES = 3
SIZES = [960, 2_304, 18_000, 230_400, 6_220_800]
pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))


@dataclass(frozen=True)
class Machines:
    """A robot's and another machine, and what starts the package's nodes on them."""

    link: ShapedLink
    start: Callable[[Command], Child]
    environment: Mapping[str, str]

    def node(self, name: str, side: str, parameters: Mapping[str, Any]) -> Child:
        """Start one of our nodes with the transport that was chosen."""
        return self.start(Command(name, ros_arguments(
            node_modules()[name], parameters=parameters, remappings={'image': 'camera'}),
            self.link.exec_prefix(side), environment=self.environment))

    def neighbour(self, side: str, images: str = 'raw', **environment: str) -> dict[str, int]:
        """Return how many images of each size the robot answered to a neighbour."""
        words = [sys.executable, NEIGHBOUR, images, str(IMAGES), *map(str, SIZES)]
        neighbour = self.start(Command(f'neighbour-{side}', words, self.link.exec_prefix(side),
                                       environment=environment))
        counts: dict[str, int] = json.loads(
            neighbour.wait_for_line('^answered (.*)$', TIMEOUT)[1])
        return counts

    def fragments(self, side: str) -> int:
        """Return how many IP fragments a machine has made."""
        text = run(*self.link.exec_prefix(side), 'cat', '/proc/net/snmp')
        names, values = (line.split() for line in text.splitlines() if line.startswith('Ip:'))
        return int(dict(zip(names, values))['FragCreates'])


@pytest.fixture
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    with own_domain(tmp_path), pytest.MonkeyPatch.context() as patch, \
            shaped_link(MBIT, 'intradp-plain') as link, starter(tmp_path / 'logs') as start:
        patch.delenv('ROS_AUTOMATIC_DISCOVERY_RANGE')
        yield Machines(link, start, transport_environment(request.param))


@pytest.mark.parametrize(('machines', 'images'), [
    ('udp', 'raw'), ('large_data', 'compressed'),  # either carries whatever there is
    *(pytest.param(*pair, marks=pytest.mark.slow)
      for pair in (('udp', 'compressed'), ('large_data', 'raw')))], indirect=['machines'])
def test_plain_cameras_are_heard_and_plain_listeners_get_results(
        machines: Machines, images: str) -> None:
    """On the robot's own machine and on another one, from 1 kB to 6 MB."""
    machines.node('inference_node', 'robot', {
        'model': DENSE, 'image_transport': images}).wait_for_line(': active$', TIMEOUT)
    for side in ('robot', 'server'):
        assert machines.neighbour(side, images) == {str(size): IMAGES for size in SIZES}, side


@pytest.mark.slow
@pytest.mark.parametrize('machines', ['udp'], indirect=True)
def test_robot_and_server_share_in_datagrams_of_one_frame(machines: Machines) -> None:
    """Tensors, profiles and books cross without IP fragments (nor does such a camera make any)."""
    machines.node('planner_node', 'server', QUICK_PLANNER)
    machines.node('offload_node', 'server', {'models': [DENSE]})
    robot = machines.node('inference_node', 'robot', {'model': DENSE, 'mode': 'offload',
                                                      **PATIENT})
    robot.wait_for_line(': sharing$', TIMEOUT)
    assert machines.neighbour('robot', **machines.environment) == {
        str(size): IMAGES for size in SIZES}
    assert machines.fragments('robot') == machines.fragments('server') == 0
