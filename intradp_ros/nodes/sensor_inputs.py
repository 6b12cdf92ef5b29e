# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What an inference node takes from a sensor, and shows of a result, by the model's input."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from sensor_msgs.msg import Image, PointCloud2
import torch

from intradp_ros.nodes.image_messages import (
    as_map,
    ImageError,
    read_rgb,
    to_image,
    to_input,
    to_rgb,
)
from intradp_ros.nodes.points import (
    AXES,
    Grid,
    labels_of,
    occupied,
    PointsError,
    read_points,
    to_cloud,
    to_points,
)
from intradp_ros.runtime.catalogue import example_inputs
from intradp_ros.runtime.model import SharedModel

#: What is raised for messages and files that cannot be used.
UNUSABLE = (ImageError, PointsError)


class Sensor(Protocol):
    """
    Messages of a sensor as the model's input, and results as messages of the same kind.

    `topic` is where its messages come from, also what the nodes count them
    by; they are of the class `kind`.
    """

    kind: ClassVar[type]
    topic: ClassVar[str]

    def tensor(self, message: Any) -> torch.Tensor:
        """Return the model's input; one of `UNUSABLE` is raised if there is none."""

    def example(self, path: str) -> torch.Tensor:
        """Return the input that a file holds; one of `UNUSABLE` is raised if it holds none."""

    def shown(self, output: torch.Tensor) -> Any | None:
        """Return the model's first output as a message, None if it is nothing to look at."""


@dataclass(frozen=True, slots=True)
class Camera:
    """Images, for models that take one of 1 x 3 x height x width; shows dense outputs."""

    kind: ClassVar[type] = Image
    topic: ClassVar[str] = 'image'
    shape: tuple[int, ...]
    dtype: torch.dtype

    def tensor(self, message: Image) -> torch.Tensor:
        """Return the pixels, resized to the input."""
        return to_input(to_rgb(message), self.shape, self.dtype)

    def example(self, path: str) -> torch.Tensor:
        """Return the pixels of an image file."""
        return to_input(read_rgb(path), self.shape, self.dtype)

    def shown(self, output: torch.Tensor) -> Image | None:
        """Return a map of floating-point numbers as an image."""
        dense = as_map(output)
        return None if dense is None else to_image(dense)


@dataclass(frozen=True, slots=True)
class Lidar:
    """Point clouds, for models that take a grid of cells; shows a label for each cell."""

    kind: ClassVar[type] = PointCloud2
    topic: ClassVar[str] = 'points'
    shape: tuple[int, ...]
    dtype: torch.dtype
    grid: Grid

    def tensor(self, message: PointCloud2) -> torch.Tensor:
        """Return which cells have points."""
        return occupied(to_points(message), self.grid, self.shape, self.dtype)

    def example(self, path: str) -> torch.Tensor:
        """Return which cells have points of a file."""
        return occupied(read_points(path), self.grid, self.shape, self.dtype)

    def shown(self, output: torch.Tensor) -> PointCloud2 | None:
        """Return cells with a label above 0 as points."""
        labels = labels_of(output, self.grid)
        return None if labels is None else to_cloud(labels, self.grid)


def camera_for(model: SharedModel) -> Camera:
    """
    Return the camera whose images a model takes.

    Raises
    ------
    ValueError
        If the model's input is not one image.

    """
    shape, dtype = _only_input(model)
    if len(shape) != 4 or shape[:2] != (1, 3):
        raise ValueError(
            f'the model takes {shape}; an image goes into 1 x 3 x height x width (batch 1, RGB); '
            'for a grid of cells from a point cloud, set sensor to points')
    return Camera(shape, dtype)


def lidar_for(model: SharedModel, axes: str, origin: Sequence[float], cell: float) -> Lidar:
    """
    Return the lidar whose clouds a model takes, as a grid that lies as told (see `Grid`).

    Raises
    ------
    ValueError
        If the model's input is not one grid, or there is no such grid.

    """
    shape, dtype = _only_input(model)
    if len(shape) < 3 or any(n != 1 for n in shape[:-3]):
        raise ValueError(f'the model takes {shape}; a grid of cells goes into three dimensions '
                         '(batch 1, such as 1 x 1 x 256 x 32 x 256)')
    if len(origin) != len(AXES):
        raise ValueError(f'the origin of a grid is x, y and z, got {[*origin]}')
    (first, second, third), (x, y, z) = shape[-3:], origin
    return Lidar(shape, dtype, Grid((first, second, third), axes, (x, y, z), cell))


def _only_input(model: SharedModel) -> tuple[tuple[int, ...], torch.dtype]:
    graph = model.split.graph
    if len(graph.inputs) != 1:
        raise ValueError(f'the model takes {len(graph.inputs)} inputs; this node feeds one')
    value = graph.values[graph.inputs[0]]
    return value.shape, value.dtype


def example_of(sensor: Sensor, path: str, model: SharedModel) -> tuple[torch.Tensor, ...]:
    """Return example inputs: what a file holds, or noise if none is named."""
    return (sensor.example(path),) if path else example_inputs(model)
