# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What one inference takes: a message of one topic, or one of each of several cameras."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from intradp_ros.nodes.common.bits_in_use import BitsInUse, FEWEST, MOST
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.nodes.sensors.sensor_inputs import (
    Camera,
    camera_for,
    Lidar,
    lidar_for,
    Scene,
    Sensor,
)
from intradp_ros.perception.approximate_time import ApproximateTime
from intradp_ros.perception.card import InputCard
from intradp_ros.perception.view import Region
from intradp_ros.runtime.models.catalogue import example_inputs
from intradp_ros.runtime.models.model import SharedModel

_MOST_CAMERAS = 16
INTAKE = (
    Parameter('sensor', Camera.topic, 'What the model sees: images, or grids of the cells '
              'that have points.', choices=(Camera.topic, Lidar.topic)),
    Parameter('cameras', [''], 'Names of several cameras, whose images go into the model '
              'together: each is below its name (front/image). Empty for one.'),
    Parameter('cameras_slop_ms', 30.0, 'How far stamps of images may lie apart that are taken '
              'together; less than half a period.', 0.0, 10000.0),
    Parameter('image_bits', MOST, 'How many bits of 16-bit images the camera uses, from the '
              'lowest on: 10 to 14 for many infrared and industrial ones.', FEWEST, MOST),
    Parameter('voxels.axes', 'xyz', "The cloud's axes that the last three dimensions of the "
              'input of a model of grids go along.'),
    Parameter('voxels.origin_m', [0.0, -25.6, -2.0],
              "The lowest corner of the grid in the cloud's frame: x, y, z."),
    Parameter('voxels.size_m', 0.2, 'The edge of a cell.', 1e-3, 100.0),
)


@dataclass(frozen=True)
class Intake:
    """
    The messages that an inference is made of, and the model's inputs from them.

    `topics` are relative names, each with messages of the `sensor`; several
    are of `cameras`, in their order.  `batched` means that their images are
    one input, each in its place of the batch; else each is an input of its own.
    """

    sensor: Sensor
    topics: tuple[str, ...]
    cameras: tuple[str, ...] = ()
    batched: bool = False
    slop: float = 0.0
    bits: BitsInUse = field(default_factory=BitsInUse)

    def together(self) -> ApproximateTime[Any]:
        """Return what puts messages of the topics together."""
        return ApproximateTime(len(self.topics), self.slop)

    def inputs(self, messages: Sequence[Any]) -> tuple[tuple[torch.Tensor, ...], list[Scene]]:
        """Return the model's inputs, and the pictures that they come from, if they are such."""
        taken = [self.sensor.take(message) for message in messages]
        tensors = tuple(each.tensor for each in taken)
        return ((torch.cat(tensors),) if self.batched else tensors,
                [each.scene for each in taken if each.scene])

    def findings(self) -> list[str]:
        """Return what the messages taken so far show not to fit the parameters."""
        return [self.bits.finding] if self.bits.finding else []

    def part(self, outputs: Mapping[str, torch.Tensor], number: int) -> dict[str, torch.Tensor]:
        """Return what outputs say of the image of a camera, as they would of it alone."""
        return {name: output[number:number + 1] if self.batched else output
                for name, output in outputs.items()}

    def example(self, path: str, model: SharedModel) -> tuple[torch.Tensor, ...]:
        """Return example inputs: what a file holds, or made-up ones if none is named."""
        if not path:
            return example_inputs(model)
        tensors = (self.sensor.example(path),) * len(self.topics)
        return (torch.cat(tensors),) if self.batched else tensors


def intake_for(model: SharedModel, parameters: Mapping[str, Any], card: InputCard,
               region: Region | None) -> Intake:
    """
    Return what a model takes, by parameters and card.

    :raises ValueError: if the model cannot take it.
    """
    if parameters['sensor'] == Lidar.topic:
        return Intake(lidar_for(model, *(parameters[f'voxels.{name}'] for name in (
            'axes', 'origin_m', 'size_m'))), (Lidar.topic,))
    compressed = parameters['image_transport'] == 'compressed'
    names = _names(parameters['cameras'])
    count = len(names) or 1
    inputs = model.split.graph.inputs
    batched = count > 1 and len(inputs) == 1
    bits = BitsInUse(parameters['image_bits'])
    camera = camera_for(model, card, region, compressed=compressed, count=count, bits=bits)
    if not names:
        return Intake(camera, (Camera.topic,), bits=bits)
    return Intake(camera, tuple(f'{name}/{Camera.topic}' for name in names), names, batched,
                  parameters['cameras_slop_ms'] / 1e3, bits)


def _names(given: Sequence[str]) -> tuple[str, ...]:
    """Return the names of cameras; ValueError if they cannot be parts of topics."""
    names = tuple(name for name in given if name)
    if len(set(names)) != len(names) or len(names) > _MOST_CAMERAS or not all(
            name.isidentifier() and name.isascii() for name in names):
        raise ValueError(f'cameras are up to {_MOST_CAMERAS} different names of letters, digits '
                         f'and _, got {list(given)}')
    return names
