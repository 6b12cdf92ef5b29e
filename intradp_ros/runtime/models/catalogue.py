# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Where models come from: a factory in an installed package, or an archive. Never the network."""
from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
import importlib
import math
from pathlib import Path

import numpy as np
import torch

from intradp_ros.core.limits import MAX_DIMENSIONS, MAX_ELEMENTS
from intradp_ros.core.torchvision_import import declare_operators
from intradp_ros.graph.capture import capture
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.module_parts import check_hashable
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.paging import paged
from intradp_ros.graph.serialise import load_graph
from intradp_ros.profiling.machine import release_memory
from intradp_ros.runtime.models.example_picture import example_picture, is_picture
from intradp_ros.runtime.models.model import AS_GRAPH, share_graph, SharedModel
from intradp_ros.runtime.models.weight_file import load_weights, Weights, with_weights
from intradp_ros.split.kernel_device import HOST, KernelDevice


class ModelSpecError(ValueError):
    """A model that cannot be loaded; the text says why and how to fix it."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """
    Names a model: ``package.module:factory`` with an input, or an archive's path.

    The factory is called without arguments and returns a `torch.nn.Module`.
    As text: ``package.module:factory 1x3x224x224 uint8``; the dtype is
    float32 where it is left out.  An archive (written by `save_graph`) needs
    neither shape nor dtype.
    """

    source: str
    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """Read the text form; ModelSpecError if it is none."""
        words = text.split()
        if not 1 <= len(words) <= 3:
            raise ModelSpecError(
                f'{text!r} names no model: write package.module:factory 1x3x224x224 uint8')
        shape = parse_shape(words[1]) if len(words) > 1 else ()
        return cls(words[0], shape, parse_dtype(words[2]) if len(words) > 2 else torch.float32)

    @property
    def is_archive(self) -> bool:
        """Whether the model is an exported archive."""
        return ':' not in self.source

    def module(self) -> torch.nn.Module:
        """
        Call the factory.

        :raises ModelSpecError: if the factory is not found, fails, or returns no module.
        """
        return load_factory(self.source)

    def archive(self) -> OperatorGraph:
        """
        Read the archive.

        :raises ModelSpecError: if it cannot be read.
        """
        try:
            return load_graph(Path(self.source))
        except OSError as error:
            raise ModelSpecError(f'cannot read the archive {self.source}: {error}') from error

    def example(self, seed: int = 0) -> torch.Tensor:
        """
        Return an input of the model's shape and dtype, made at random.

        Where that looks like pictures it is such as `example_picture` makes,
        of levels 0 to 255 as integers, of mean 0 and deviation 1 as floating
        point numbers; else it is noise.
        """
        if not self.shape:
            raise ModelSpecError(f'{self.source} needs an input shape such as 1x3x224x224')
        if is_picture(self.shape) and (self.dtype.is_floating_point or self.dtype is torch.uint8):
            return self._pictures(seed)
        generator = torch.Generator().manual_seed(seed)
        if self.dtype.is_floating_point:
            return torch.randn(self.shape, generator=generator, dtype=self.dtype)
        return torch.randint(0, 256 if self.dtype is torch.uint8 else 2, self.shape,
                             generator=generator).to(self.dtype)

    def _pictures(self, seed: int) -> torch.Tensor:
        random = np.random.default_rng(seed)
        count, channels, height, width = self.shape
        pictures = torch.from_numpy(np.stack([
            example_picture(channels, height, width, random) for _ in range(count)]))
        if self.dtype.is_floating_point:
            pictures = (pictures - pictures.mean()) / pictures.std()
        return pictures.to(self.dtype)

    def load(self, axis: int | None = None, device: KernelDevice = HOST,
             weights: Weights | None = None) -> SharedModel:
        """
        Load the model, make it ready for sharing on a device, and release what that took.

        With `weights` it gets those instead of its own.

        :raises ModelSpecError: if it cannot be loaded.
        :raises WeightsError: if the weights do not fit.
        """
        model = share_graph(paged(self._graph(weights)), axis).on(device)
        release_memory()
        return model

    def _graph(self, weights: Weights | None) -> OperatorGraph:
        if not self.is_archive:
            module = self.module()
            if weights is not None:
                load_weights(module, weights)
            return capture(module, (self.example(),), methods=AS_GRAPH)
        graph = self.archive()
        return graph if weights is None else with_weights(graph, weights)


def example_inputs(model: SharedModel, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Return inputs, made at random, of the shapes and dtypes that a model was captured with."""
    graph = model.split.graph
    return tuple(ModelSpec('', graph.values[v].shape, graph.values[v].dtype).example(seed)
                 for v in graph.inputs)


def load_factory(source: str) -> torch.nn.Module:
    """
    Import ``package.module:factory`` and call it.

    :raises ModelSpecError: if it is not found, fails, or returns no module.
    """
    module_name, _, factory = source.partition(':')
    declare_operators()
    try:
        model = getattr(importlib.import_module(module_name), factory)()
    except (Exception, SystemExit) as error:  # the user's code: whatever it raises is the cause
        raise ModelSpecError(f'cannot load {source!r} (wanted package.module:factory): '
                             f'{type(error).__name__}: {error}{_missing(error)}') from error
    if not isinstance(model, torch.nn.Module):
        raise ModelSpecError(f'{source} returned a {type(model).__name__}, not a torch.nn.Module')
    try:
        check_hashable(model)
    except CaptureError as error:
        raise ModelSpecError(f'cannot load {source!r}: {error}') from error
    with suppress(NotImplementedError):  # an exported program is what it was exported as
        model.eval()
    return model


def _missing(error: BaseException) -> str:
    """Return what to do about a package that is not there, '' if the error is another one."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or '.' in error.name:
        return ''
    return f': start where {error.name} lies, or install it (pip install {error.name}, say)'


def parse_shape(text: str) -> tuple[int, ...]:
    """Read ``1x3x224x224``; ModelSpecError if it is none."""
    try:
        shape = tuple(int(n) for n in text.lower().split('x'))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise ModelSpecError(f'{text!r} is not an input shape: write it like 1x3x224x224')
    if math.prod(shape) > MAX_ELEMENTS or len(shape) > MAX_DIMENSIONS:
        raise ModelSpecError(f'the input shape {text} is too large: at most {MAX_DIMENSIONS} '
                             f'dimensions and {MAX_ELEMENTS} elements')
    return shape


def parse_dtype(text: str) -> torch.dtype:
    """Read ``uint8`` or ``float32``; ModelSpecError if torch has no such dtype."""
    dtype = getattr(torch, text, None)
    if not isinstance(dtype, torch.dtype):
        raise ModelSpecError(f'{text!r} is not a dtype: write uint8, float32, ...')
    return dtype
