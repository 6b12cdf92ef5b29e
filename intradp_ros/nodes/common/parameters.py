# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Declaring parameters with description and range, once, from a table."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
import re
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import ParameterUninitializedException
from rclpy.node import Node

_TOPIC = re.compile(r'(~?/)?[A-Za-z_]\w*(/[A-Za-z_]\w*)*', re.ASCII)


@dataclass(frozen=True, slots=True)
class Parameter:
    """
    One parameter: its default fixes the type; `low` and `high` its range.

    `choices` are named in the description; `check_choice` holds a value to them.
    `formerly` is the name of before, under which files of users may still set it.
    `check` raises ValueError or OSError for a text that cannot be; it is not asked of the default.
    """

    name: str
    default: Any
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    read_only: bool = True
    formerly: str = ''
    check: Callable[[str], object] | None = None

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

    def check_value(self, value: Any) -> None:
        """Raise ValueError, which names the parameter, for a value that cannot be."""
        self.check_choice(value)
        if self.check is None or value == self.default:
            return
        for text in filter(None, value) if isinstance(value, list) else (value,):
            try:
                self.check(text)
            except OSError as error:
                raise ValueError(f'parameter {self.name}: {text}: {error.strerror}') from error
            except ValueError as error:
                raise ValueError(f'parameter {self.name}: {error}') from error

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


def check_topic(text: str) -> None:
    """Raise ValueError for what cannot begin the name of a topic."""
    if not _TOPIC.fullmatch(text):
        raise ValueError(f'{text!r} cannot begin the name of a topic: use letters, digits and _, '
                         'a letter first, and / between names')


def naming(text: str, parameters: Sequence[Parameter], values: Mapping[str, Any]) -> str:
    """Return an error that names the parameter whose value it names, if that was set."""
    for parameter in parameters:
        value = values.get(parameter.name)
        if value != parameter.default and any(
                len(word := str(each)) > 1 and word in text
                for each in (value if isinstance(value, list) else (value,))):
            return text if parameter.name in text else f'parameter {parameter.name}: {text}'
    return text


def read(node: Node, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """
    Return all values by name.

    :raises ValueError: if a value cannot be; the text names the parameter.
    """
    values = {p.name: _value(node, p) for p in parameters}
    for parameter in parameters:
        parameter.check_value(values[parameter.name])
    return values
