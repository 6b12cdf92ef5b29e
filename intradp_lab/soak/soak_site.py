# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The processes of a soak, and the link between them: what faults are done to."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from intradp_lab.emulation import slow_device
from intradp_lab.emulation.network import available, shaped_link, ShapedLink
from intradp_lab.emulation.processes import Child, ros_arguments, starter
from intradp_lab.soak.small_disk import small_disk
from intradp_lab.soak.wall_clock import wall_clocks, WallClock
from intradp_lab.zoo.seeding import seeded
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import save_graph

SHAPE = (1, 3, 144, 112)
OTHER_SHAPE = (1, 3, 144, 128)
ROBOT, SERVER, PLANNER, CAMERA = 'robot', 'server', 'planner', 'camera'
#: Planned in seconds, since planners are started again and again.
_GRID = {'grid.points': 4, 'grid.low_mbps': 2.0, 'grid.high_mbps': 200.0}
START_TIMEOUT = 300.0
_CACHE_MB = 32
_WIDTHS = (48,) * 6


@dataclass
class SoakSite:
    """
    Robot, server, planner and camera, and the link between them (None: loopback).

    `own_disk` says whether the cache has one, which can be filled; `clocks` are
    the wall clocks of both sides, where they can be set.
    `server` and `planner` are started again after faults; `robot` and
    `camera` never are, so that what they hold can be followed all along.
    """

    start: Any
    link: ShapedLink | None
    mbps: float
    folder: Path
    own_disk: bool = False
    clocks: Mapping[str, WallClock] = field(default_factory=dict)
    robot: Child = field(init=False)
    camera: Child = field(init=False)
    server: Child = field(init=False)
    planner: Child = field(init=False)

    def __post_init__(self) -> None:
        """Start the three nodes."""
        self.server, self.planner = self.start_server(), self.start_planner()
        self.robot = self._node('inference_node', ROBOT, {
            'model': str(model_file(self.folder, SHAPE)), 'queue_size': 64})

    @property
    def cache(self) -> Path:
        """Where the nodes keep profiles and books."""
        return self.folder / 'cache'

    def start_server(self, shape: tuple[int, ...] = SHAPE, label: str = SERVER) -> Child:
        """Start an offload node with the model for a shape; it need not be ready on return."""
        return self._node('offload_node', label,
                          {'models': [str(model_file(self.folder, shape))]}, SERVER)

    def start_planner(self) -> Child:
        """Start a planner node; it need not be ready on return."""
        return self._node('planner_node', PLANNER, _GRID, SERVER)

    def start_camera(self, seconds: float, report: Path) -> None:
        """Start the camera on the robot's side and wait until a frame was shared."""
        self.camera = self.start(Command('camera', module_arguments(
            'intradp_lab.soak.camera', str(model_file(self.folder, SHAPE)), str(seconds),
            str(report)), self._prefix(ROBOT), environment=self._clock(ROBOT)))
        self.camera.wait_for_line('^begins$', START_TIMEOUT)

    def start_load(self, side: str) -> Child:
        """Start a process that computes without end on a side."""
        child: Child = self.start(Command(
            f'load on {side}', module_arguments('intradp_lab.emulation.other_work'),
            self._prefix(side), cores_of(side)))
        return child

    def nodes(self) -> Mapping[str, Child]:
        """Return the nodes that run, by name."""
        return {ROBOT: self.robot, SERVER: self.server, PLANNER: self.planner,
                CAMERA: self.camera}

    def _prefix(self, side: str) -> Sequence[str]:
        return self.link.exec_prefix(side) if self.link else ()

    def _clock(self, side: str) -> Mapping[str, str]:
        return self.clocks[side].environment() if side in self.clocks else {}

    def _node(self, name: str, label: str, parameters: Mapping[str, Any], side: str = '') -> Child:
        slow = label == ROBOT and not slow_device.available()
        child: Child = self.start(Command(
            label, ros_arguments(f'intradp_ros.nodes.sharing.{name}', parameters=parameters),
            self._prefix(side or label), cores_of(side or label),
            environment={**(slow_device.slow_environment() if slow else {}),
                         **self._clock(side or label)}))
        return child


def cores_of(side: str) -> Sequence[int]:
    """Return the cores of a side: the robot has one for itself where there are several."""
    first, *others = sorted(os.sched_getaffinity(0))
    return [first] if side == ROBOT or not others else others


class Network(nn.Module):
    """
    Convolutions over a picture, with an answer for every pixel; uint8 in, random weights.

    A robot without vector instructions takes about three times as long for
    them as a server, so that the two are faster together; and there are few,
    so that planners, which are started again and again, plan in seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        widths = (3, *_WIDTHS)
        self.layers = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1) for a, b in zip(widths, _WIDTHS))
        self.answer = nn.Conv2d(_WIDTHS[-1], 1, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the answers."""
        value = image.to(torch.float32) / 255
        for layer in self.layers:
            value = torch.relu(layer(value))
        answers: torch.Tensor = self.answer(value)
        return answers


def network() -> nn.Module:
    """Return the network, the same in every process, with weights that keep values' size."""
    made = seeded(Network)()
    with torch.no_grad():
        for layer in made.layers:  # type: ignore[union-attr]
            layer.weight.mul_(6 ** 0.5)
    return made


def model_file(folder: Path, shape: tuple[int, ...]) -> Path:
    """Return where the archive of the model for a shape is."""
    return folder / f'pixels-{shape[2]}x{shape[3]}.graph'


def write_models(folder: Path) -> None:
    """
    Write the archives that all nodes load.

    Calibrated random weights depend on the processor that calibrates them, in
    their last bits: two nodes that make the network themselves may differ.
    """
    for shape in (SHAPE, OTHER_SHAPE):
        save_graph(capture(network(), torch.zeros(shape, dtype=torch.uint8)),
                   model_file(folder, shape))


@contextmanager
def open_site(out: Path, mbps: float) -> Iterator[SoakSite]:
    """Start everything; all has ended, and the link is gone, when the context is left."""
    folder = out.resolve()
    os.environ['INTRADP_CACHE'] = str(folder / 'cache')
    write_models(folder)
    clocks = wall_clocks((ROBOT, SERVER), folder)
    with small_disk(folder / 'cache', _CACHE_MB) as own_disk, starter(out / 'logs') as start:
        if available():
            os.environ |= {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
                           'ROS_DOMAIN_ID': str(os.getpid() % 100 + 1)}
            yield SoakSite(start, None, mbps, folder, own_disk, clocks)
        else:
            with shaped_link(mbps) as link:
                yield SoakSite(start, link, mbps, folder, own_disk, clocks)
