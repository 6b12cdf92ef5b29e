# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The model that a command is about: its arguments on the command line, and loading it."""
from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from intradp_ros.cli.arguments import checked, looked_at, MOST_SEED, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.inputs import input_text, load_inputs, random_tensor, spatial_size
from intradp_ros.cli.output import Output
from intradp_ros.core.limits import MAX_DIMENSIONS
from intradp_ros.graph.graph_errors import CaptureError, GraphFormatError
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.serialise import load_graph
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.runtime.models.catalogue import (
    load_factory,
    ModelSpec,
    ModelSpecError,
    parse_dtype,
)
from intradp_ros.runtime.models.model import share_graph, share_module, SharedModel
from intradp_ros.split.calls.accelerator import DeviceError, open_device
from intradp_ros.split.kernel_device import HOST

MODEL_HELP = """\
MODEL is one of
  package.module:factory   a function or class, called without arguments, that returns a
                           torch.nn.Module; also from the working directory
  model.graph              an archive that `intradp model add` wrote; it needs no --input"""


@dataclass(frozen=True)
class Subject:
    """A model with an input: `model` computes unsplit what `shared` is ready to share."""

    name: str
    model: nn.Module
    shared: SharedModel
    inputs: tuple[torch.Tensor, ...]

    @property
    def graph(self) -> OperatorGraph:
        """The captured model."""
        return self.shared.split.captured

    def unsplit(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tensors among the unsplit model's results."""
        with torch.inference_mode():
            return tensors_of(self.model(*inputs))


def varied_frames(inputs: Sequence[torch.Tensor], count: int,
                  ) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield inputs that differ from frame to frame, so that an old answer cannot pass."""
    for frame in range(count):
        yield tuple(x.roll(frame, -1) if x.dim() else x for x in inputs)


class GraphModel(nn.Module):
    """A graph from an archive as a module, evaluated operator by operator."""

    def __init__(self, graph: OperatorGraph) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, *inputs: torch.Tensor) -> list[Any]:
        """Return the graph's flattened results."""
        return run_graph(self.graph, inputs)


def tensors_of(results: Any) -> list[torch.Tensor]:
    """Return the tensors in nested results, in order."""
    return [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]


def add_model(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL and the options that say how it is loaded, run and split."""
    parser.add_argument('model', metavar='MODEL', help='package.module:factory, or an archive')
    parser.add_argument(
        '--input', action='append', default=[], type=checked(input_text), metavar='SHAPE|IMAGE',
        help='input as a shape such as 1x3x224x224, made up, or an image file; again '
             'for each further input of the model')
    parser.add_argument('--size', type=spatial_size, metavar='HxW',
                        help="scale an image to this height and width (default: the image's own)")
    parser.add_argument(
        '--dtype', action='append', type=looked_at(parse_dtype), metavar='DTYPE',
        help='dtype of the inputs (default float32), or again for each of them; an image has '
             'values from 0 to 255 as uint8, and from 0 to 1 in a floating point dtype')
    parser.add_argument('--seed', type=whole(0, MOST_SEED), default=0, metavar='N',
                        help='seed of random weights, inputs and searches (default 0)')
    parser.add_argument(
        '--axis', type=whole(0, MAX_DIMENSIONS - 1), metavar='DIM',
        help='dimension of the input to split along (default: see inspect)')
    parser.add_argument('--threads', type=whole(1, 256), default=1, metavar='N',
                        help='threads that torch computes with (default 1)')
    parser.add_argument('--device', default=HOST.name, metavar='NAME',
                        help='what operators run on: cpu (default), or a device of PyTorch with '
                             'memory of its own, such as cuda')


def load_subject(args: argparse.Namespace, out: Output) -> Subject:
    """
    Load, capture and split the model that the arguments name.

    :raises CommandError: if that fails; the text says what is at fault.
    """
    prepare_process(args.threads)
    try:
        device = open_device(args.device)
    except DeviceError as error:
        raise CommandError(f'--device: {error}') from error
    with out.status(f'loading {args.model}'):
        spec = ModelSpec(args.model)
        subject = _from_archive(args) if spec.is_archive else _from_factory(args)
        return replace(subject, shared=subject.shared.on(device))


def captured(name: str, model: nn.Module, inputs: tuple[torch.Tensor, ...],
             axis: int | None) -> Subject:
    """
    Capture a module and split it.

    :raises CommandError: if it cannot be captured, or not be split along `axis`.
    """
    try:
        return Subject(name, model, share_module(model, inputs, axis), inputs)
    except (CaptureError, GraphFormatError) as error:
        raise CommandError(f'{name} cannot be captured: {error}') from error
    except ValueError as error:
        raise CommandError(str(error)) from error


def _from_factory(args: argparse.Namespace) -> Subject:
    inputs = load_inputs(args.input, [parse_dtype(text) for text in args.dtype or ['float32']],
                         args.size, args.seed)
    if args.axis is not None and args.axis >= inputs[0].dim():
        raise CommandError(f'--axis: there is no split axis {args.axis}, the input has dimensions '
                           f'0 to {inputs[0].dim() - 1}')
    torch.manual_seed(args.seed)
    try:
        model = load_factory(args.model)
    except ModelSpecError as error:
        raise CommandError(str(error)) from error
    return captured(args.model, model, inputs, args.axis)


def _from_archive(args: argparse.Namespace) -> Subject:
    path = Path(args.model)
    if not path.is_file():
        found = 'it is a folder' if path.is_dir() else 'it is no regular file' if path.exists() \
            else 'there is no such file'
        raise CommandError(
            f'{args.model!r} names no model: {found}; give package.module:factory, or the path '
            'of an archive')
    try:
        graph = load_graph(path)
        shared = share_graph(graph, args.axis)
    except (GraphFormatError, ValueError) as error:
        raise CommandError(str(error)) from error
    values = [graph.values[v] for v in graph.inputs]
    if args.input:
        inputs = load_inputs(args.input, [v.dtype for v in values], args.size, args.seed)
        _check_inputs(args.model, inputs, [(v.shape, v.dtype) for v in values])
    else:
        inputs = tuple(random_tensor(v.shape, v.dtype, args.seed + k)
                       for k, v in enumerate(values))
    return Subject(args.model, GraphModel(graph), shared, inputs)


def _check_inputs(name: str, inputs: Sequence[torch.Tensor],
                  wanted: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> None:
    given = [(tuple(x.shape), x.dtype) for x in inputs]
    if given != list(wanted):
        raise CommandError(f'{name} was captured for {_shapes(wanted)}, --input gives '
                           f'{_shapes(given)}')


def _shapes(tensors: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> str:
    return ', '.join(f'{"x".join(map(str, shape))} {str(dtype).removeprefix("torch.")}'
                     for shape, dtype in tensors)
