# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What an inference node takes from a sensor, and shows of a result, by the model's input."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from sensor_msgs.msg import CompressedImage, Image, PointCloud2
import torch

from intradp_ros.nodes.common.bits_in_use import BitsInUse
from intradp_ros.nodes.sensors.image_messages import (
    as_map,
    as_tensor,
    decompressed,
    ImageError,
    read_rgb,
    to_image,
    to_rgb,
)
from intradp_ros.nodes.sensors.points import (
    AXES,
    Grid,
    labels_of,
    occupied,
    PointsError,
    read_points,
    to_cloud,
    to_points,
)
from intradp_ros.perception.card import CardError, InputCard
from intradp_ros.perception.view import as_carded, Region, View
from intradp_ros.runtime.models.model import SharedModel

#: What is raised for messages and files that cannot be used.
UNUSABLE = (ImageError, PointsError)


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture (height, width, 3; uint8 RGB), and how it lies in the model's input."""

    rgb: npt.NDArray[np.uint8]
    view: View


@dataclass(frozen=True, slots=True)
class Taken:
    """The model's input from a message, and the picture that it comes from, if it is one."""

    tensor: torch.Tensor
    scene: Scene | None = None


class Sensor(Protocol):
    """
    Messages of a sensor as the model's input, and results as messages.

    `topic` is where its messages come from, also what the nodes count them
    by; they are of the class `kind`.  What is shown of results are messages
    of the class `shown_kind`.
    """

    @property
    def kind(self) -> type:
        """Return the class of the sensor's messages."""

    shown_kind: ClassVar[type]
    topic: ClassVar[str]

    def take(self, message: Any) -> Taken:
        """Return the model's input; one of `UNUSABLE` is raised if there is none."""

    def example(self, path: str) -> torch.Tensor:
        """Return the input that a file holds; one of `UNUSABLE` is raised if it holds none."""

    def shown(self, output: torch.Tensor) -> Any | None:
        """Return the model's first output as a message, None if it is nothing to look at."""


@dataclass(frozen=True, slots=True)
class Camera:
    """
    Images, for models that take one of 1 x 3 x height x width; shows dense outputs.

    `card` says how they become the input, `region` which part of them;
    `compressed` that they come as such, `bits` how many of 16 are in use.
    """

    shown_kind: ClassVar[type] = Image
    topic: ClassVar[str] = 'image'
    shape: tuple[int, ...]
    dtype: torch.dtype
    card: InputCard
    region: Region | None = None
    compressed: bool = False
    bits: BitsInUse = field(default_factory=BitsInUse, compare=False)

    @property
    def kind(self) -> type:
        """Return the class of the camera's messages."""
        kind: type = CompressedImage if self.compressed else Image
        return kind

    def take(self, message: Image | CompressedImage) -> Taken:
        """Return the pixels, fitted to the input."""
        pixels = decompressed if self.compressed else to_rgb
        return self._fitted(pixels(message, self.bits))

    def example(self, path: str) -> torch.Tensor:
        """Return the pixels of an image file."""
        return self._fitted(read_rgb(path)).tensor

    def shown(self, output: torch.Tensor) -> Image | None:
        """Return a map of floating-point numbers as an image."""
        dense = as_map(output)
        return None if dense is None else to_image(dense)

    def _fitted(self, rgb: npt.NDArray[np.uint8]) -> Taken:
        height, width = self.shape[-2:]
        try:
            pixels, view = as_carded(rgb, (height, width), self.card, self.region)
        except ValueError as error:
            raise ImageError(str(error)) from error
        return Taken(as_tensor(pixels, self.dtype, self.card), Scene(rgb, view))


@dataclass(frozen=True, slots=True)
class Lidar:
    """Point clouds, for models that take a grid of cells; shows a label for each cell."""

    shown_kind: ClassVar[type] = PointCloud2
    topic: ClassVar[str] = 'points'
    shape: tuple[int, ...]
    dtype: torch.dtype
    grid: Grid

    @property
    def kind(self) -> type:
        """Return the class of the lidar's messages."""
        kind: type = PointCloud2
        return kind

    def take(self, message: PointCloud2) -> Taken:
        """Return which cells have points."""
        return Taken(occupied(to_points(message), self.grid, self.shape, self.dtype))

    def example(self, path: str) -> torch.Tensor:
        """Return which cells have points of a file."""
        return occupied(read_points(path), self.grid, self.shape, self.dtype)

    def shown(self, output: torch.Tensor) -> PointCloud2 | None:
        """Return cells with a label above 0 as points."""
        labels = labels_of(output, self.grid)
        return None if labels is None else to_cloud(labels, self.grid)


def camera_for(model: SharedModel, card: InputCard, region: Region | None = None, *,
               compressed: bool = False, count: int = 1, bits: BitsInUse | None = None,
               ) -> Camera:
    """
    Return the camera whose images a model takes, in the way that its card says.

    :param count: how many such cameras there are: their images are one batch,
        or an input each.
    :param bits: of 16-bit images.

    :raises ValueError: if the model's input is not one image of each, or not as the card says.
    """
    shape, dtype = _image_input(model, count)
    if (card.mean or card.std) and not dtype.is_floating_point:
        raise CardError(f'the card normalises, the model takes {dtype}: a model of whole numbers '
                        'normalises inside; leave mean and std out of the card')
    return Camera((1, *shape[1:]), dtype, card, region, compressed, bits or BitsInUse())


def lidar_for(model: SharedModel, axes: str, origin: Sequence[float], cell: float) -> Lidar:
    """
    Return the lidar whose clouds a model takes, as a grid that lies as given (see `Grid`).

    :raises ValueError: if the model's input is not one grid, or there is no such grid.
    """
    shape, dtype = _only_input(model)
    if len(shape) < 3 or any(n != 1 for n in shape[:-3]):
        raise ValueError(f'the model takes {shape}; a grid of cells goes into three dimensions '
                         '(batch 1, such as 1 x 1 x 256 x 32 x 256)')
    if len(origin) != len(AXES):
        raise ValueError(f'the origin of a grid is x, y and z, got {[*origin]}')
    (first, second, third), (x, y, z) = shape[-3:], origin
    return Lidar(shape, dtype, Grid((first, second, third), axes, (x, y, z), cell))


def _image_input(model: SharedModel, count: int) -> tuple[tuple[int, ...], torch.dtype]:
    """Return shape and dtype of the input that images of so many cameras go into."""
    graph = model.split.graph
    values = [graph.values[value] for value in graph.inputs]
    kinds = {(value.shape, value.dtype) for value in values}
    if len(values) == count > 1 and len(kinds) == 1:
        shape, dtype, batch = values[0].shape, values[0].dtype, 1
    else:
        (shape, dtype), batch = _only_input(model), count
    if len(shape) == 4 and shape[:2] == (batch, 3):
        return shape, dtype
    if count > 1:
        raise ValueError(
            f'the model takes {" and ".join(str(value.shape) for value in values)}; images of '
            f'{count} cameras go into {count} x 3 x height x width, or {count} inputs of 1 x 3 x '
            'height x width')
    raise ValueError(
        f'the model takes {shape}; an image goes into 1 x 3 x height x width (batch 1, RGB); '
        'for a batch of several cameras set cameras; for a grid of cells from a point cloud, set '
        'sensor to points')


def _only_input(model: SharedModel) -> tuple[tuple[int, ...], torch.dtype]:
    graph = model.split.graph
    if len(graph.inputs) != 1:
        raise ValueError(f'the model takes {len(graph.inputs)} inputs; this node feeds one')
    value = graph.values[graph.inputs[0]]
    return value.shape, value.dtype
