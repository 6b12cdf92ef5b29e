# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The list of architectures: one a line, with its package, how it is built, and its inputs."""
from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from intradp_ros.runtime.models.catalogue import parse_shape

LIST = Path(__file__).with_name('architectures.txt')
COLUMNS = ('name', 'source', 'builder', 'inputs')
IN_TESTS = 'test'


@dataclass(frozen=True)
class Architecture:
    """One line of the list; `in_tests` marks those that the test suite runs, too."""

    name: str
    source: str
    builder: str
    shapes: tuple[tuple[int, ...], ...]
    in_tests: bool = False

    def call(self) -> tuple[str, dict[str, Any]]:
        """
        Return the name of the builder and its arguments.

        Raises
        ------
        ValueError
            If `builder` is not a name, or a call with literal keyword arguments.

        """
        tree = ast.parse(self.builder, mode='eval').body
        if not isinstance(tree, ast.Call):
            return self.builder, {}
        if tree.args or any(word.arg is None for word in tree.keywords):
            raise ValueError(f'{self.name}: {self.builder!r} has arguments without a keyword')
        arguments = {str(k.arg): ast.literal_eval(k.value) for k in tree.keywords}
        return ast.unparse(tree.func), arguments

    def inputs(self, seed: int) -> tuple[torch.Tensor, ...]:
        """Return random inputs with coarse and fine structure, as images have."""
        source = torch.Generator().manual_seed(seed)
        return tuple(_patches(shape, source) + _noise(shape, source) / 2 for shape in self.shapes)


def read_list(path: Path = LIST) -> list[Architecture]:
    """
    Read a list of architectures; lines that are empty or start with # are skipped.

    Raises
    ------
    ValueError
        If a line lacks columns, or two have the same name.

    """
    lines = [line.strip() for line in path.read_text().splitlines()]
    found = [_parse(line) for line in lines if line and not line.startswith('#')]
    names = [architecture.name for architecture in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f'{path.name} names {", ".join(sorted(twice))} more than once')
    return found


def _parse(line: str) -> Architecture:
    name, source, builder, inputs, *marks = (part.strip() for part in _columns(line))
    shapes = tuple(parse_shape(text) for text in inputs.split())
    return Architecture(name, source, builder, shapes, IN_TESTS in marks)


def _columns(line: str) -> Sequence[str]:
    columns = line.split('|')
    if len(columns) < len(COLUMNS):
        raise ValueError(f'{line!r} must have the columns {" | ".join(COLUMNS)}')
    return columns


def _noise(shape: Sequence[int], source: torch.Generator) -> torch.Tensor:
    return torch.randn(tuple(shape), generator=source)


def _patches(shape: Sequence[int], source: torch.Generator) -> torch.Tensor:
    """Return an image of about five patches along each dimension after the second."""
    values = _noise((*shape[:2], *(5 for _ in shape[2:])), source)
    for dim, size in enumerate(shape[2:], 2):
        values = values.index_select(dim, torch.arange(size) * 5 // size)
    return values
