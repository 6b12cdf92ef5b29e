# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Declaring parameters with description and range, once, from a table."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import ParameterUninitializedException
from rclpy.node import Node


@dataclass(frozen=True, slots=True)
class Parameter:
    """
    One parameter: its default fixes the type; `low` and `high` its range.

    `choices` are named in the description; `check_choice` holds a value to them.
    `formerly` is the name of before, under which files of users may still set it.
    """

    name: str
    default: Any
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    read_only: bool = True
    formerly: str = ''

    def descriptor(self) -> ParameterDescriptor:
        """Return the ROS descriptor."""
        text = self.description
        if self.choices:
            text += f' One of: {", ".join(self.choices)}.'
        descriptor = ParameterDescriptor(description=text, read_only=self.read_only)
        if self.low is not None and self.high is not None:
            if isinstance(self.default, float):
                descriptor.floating_point_range = [
                    FloatingPointRange(from_value=float(self.low), to_value=float(self.high))]
            else:
                descriptor.integer_range = [
                    IntegerRange(from_value=int(self.low), to_value=int(self.high), step=1)]
        return descriptor

    def check_choice(self, value: str) -> None:
        """Raise ValueError if the value is not among the choices."""
        if self.choices and value not in self.choices:
            raise ValueError(
                f'parameter {self.name} is {value!r}, must be one of {", ".join(self.choices)}')


def declare(node: Node, parameters: Sequence[Parameter]) -> None:
    """Declare all parameters of a node; a value set by a former name counts, with a warning."""
    for parameter in parameters:
        default = parameter.default
        if parameter.formerly:
            default = node.declare_parameter(parameter.formerly, default).value
            node.undeclare_parameter(parameter.formerly)
            if default != parameter.default:
                node.get_logger().warning(
                    f'parameter {parameter.formerly} is now called {parameter.name}; the old '
                    'name is still read')
        node.declare_parameter(parameter.name, default, parameter.descriptor())


def _value(node: Node, parameter: Parameter) -> Any:
    try:
        return node.get_parameter(parameter.name).value
    except ParameterUninitializedException:  # what an empty list in a file comes to
        if isinstance(parameter.default, list):
            return []
        raise


def read(node: Node, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """
    Return all values by name.

    :raises ValueError: if a value is not among its choices.
    """
    values = {p.name: _value(node, p) for p in parameters}
    for parameter in parameters:
        parameter.check_choice(values[parameter.name])
    return values
