# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The service `~/load_weights`: weights of a file for a model in use, tried before they are used.

Only files below a folder of the node's parameters are read, and only those of the digest that
the caller names, whose request is sealed where there is a key.  Nobody can bring weights by it, or
make a model of other operators.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import math
from pathlib import Path
import re
from typing import Any

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
import torch

from intradp_ros.core.plain_file import check_file
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.nodes.common.call_seals import CallSeals, serve, sros2_enforces
from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.nodes.sensors.image_messages import ImageError
from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.models.weight_file import read_weights, Weights
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.schedule import ROBOT
from intradp_ros.srv import LoadWeights
from intradp_ros.systems.sharing.book.program_cache import ProgramCache
from intradp_ros.systems.sharing.partition.partition import local

WEIGHTS = Parameter(
    'weights', '', 'File of weights (safetensors, a checkpoint of intradp train, or an archive '
    'for a model that is one) that the model gets at the start; empty: it keeps those that it '
    'comes with.', check=check_file)
WEIGHTS_FOLDER = Parameter(
    'weights_folder', '', 'Folder below which files lie that ~/load_weights may load; empty: '
    'there is no such service.')
#: Pictures of a trial; more are left out.
MOST_PICTURES = 500
_PICTURES = frozenset(('.png', '.jpg', '.jpeg', '.bmp', '.webp', '.tif', '.tiff'))


class WeightLoading:
    """Serves `~/load_weights` while a node is configured, on a thread of its own."""

    def __init__(self, node: ManagedNode, folder: str, nbytes: Callable[[], float],
                 use: Callable[[Any, Path | None, Weights], Any], key: SharedKey | None) -> None:
        """
        Serve files below `folder`, of models whose weights have so many bytes, to who has the key.

        `use` gets a request, its folder of pictures and the weights, and returns the response; a
        ValueError refuses.
        """
        self._node, self._nbytes, self._use = node, nbytes, use
        self._folder = Path(folder).resolve()
        if not self._folder.is_dir():
            raise ValueError(f'parameter weights_folder: there is no folder {folder}')
        service = serve(node, LoadWeights, '~/load_weights',
                        CallSeals(key, node.refuse, sros2_enforces()), self._loaded, _refused,
                        callback_group=MutuallyExclusiveCallbackGroup())
        node.until_cleanup.callback(node.destroy_service, service)

    def _loaded(self, request: Any) -> Any:
        try:
            if not re.fullmatch('[0-9a-fA-F]{64}', request.sha256):
                raise ValueError('sha256 must be the 64 hex digits of the file that is meant: '
                                 'sha256sum prints them, and intradp train show')
            if not 0 <= request.least_accuracy <= 1:
                raise ValueError('least_accuracy is a share, 0 to 1')
            pictures = self._below(request.pictures) if request.pictures else None
            weights = read_weights(self._below(request.path), self._nbytes(), request.sha256)
            response = self._use(request, pictures, weights)
        except (ValueError, CaptureError) as error:
            response = _refused(str(error))
        log = self._node.info if response.success else self._node.warn
        log(f'load_weights: {response.message}')
        return response

    def _below(self, path: str) -> Path:
        """Return a path as it is on the disk, if it is below the folder."""
        found = (self._folder / path).resolve()
        if not found.is_relative_to(self._folder):
            raise ValueError(f'{path[:200]} is not below weights_folder ({self._folder})')
        return found


def _refused(reason: str) -> Any:
    return LoadWeights.Response(message=reason, accuracy=math.nan, accuracy_before=math.nan)


def weight_bytes(model: SharedModel) -> float:
    """Return the bytes of a model's weights."""
    return float(sum(tensor.nbytes for tensor in model.parameters.values()))


def initial_weights(given: Mapping[str, Any]) -> Weights | None:
    """Return the weights that a parameter names; None if none."""
    if not given[WEIGHTS.name]:
        return None
    spec = ModelSpec.parse(given['model'])
    tensors = spec.archive().parameters if spec.is_archive else spec.module().state_dict()
    return read_weights(Path(given[WEIGHTS.name]), sum(t.nbytes for t in tensors.values()))


def trial(model: SharedModel, before: SharedModel, pictures: Path, labels: Sequence[str],
          inputs: Callable[[str], Sequence[torch.Tensor]], least: float) -> tuple[float, float]:
    """
    Try a model on pictures; return the share of right classes with it and with the one before.

    Both are nan where no picture lies in a folder of a class.  `inputs` makes a model's inputs of
    a picture.

    :raises ValueError: if there is no picture, a result is not finite, or too few classes are
        right; `least` of 0 stands for those of the model before.
    """
    runs = [alone(model), alone(before)]
    right, count, tried = [0, 0], 0, 0
    for file in _files(pictures):
        wanted = _class(file.parent.name, labels) if file.parent != pictures else None
        try:
            given = inputs(str(file))
        except ImageError as error:
            raise ValueError(f'{file.name} cannot be used: {error}') from error
        tried += 1
        for k, run in enumerate(runs if wanted is not None else runs[:1]):
            outputs = run(given)
            if not k and not all(bool(torch.isfinite(x).all()) for x in outputs):
                raise ValueError(f'with these weights the result of {file.name} is not finite')
            if wanted is not None:
                right[k] += _says(outputs[0]) == wanted
        count += wanted is not None
    if not tried:
        raise ValueError(f'there is no picture in {pictures}')
    if not count:
        return math.nan, math.nan
    new, old = right[0] / count, right[1] / count
    if new < (least or old):
        raise ValueError(f'of {count} pictures {new:.1%} are right with these weights; '
                         + (f'{least:.1%} are wanted' if least else
                            f'with those in use {old:.1%} are'))
    return new, old


def alone(model: SharedModel) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """Return what runs a model by itself and gives its output tensors."""
    program = ProgramCache(model, ROBOT).get(local(len(model.split.operators))).program

    def run(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        values = Execution(program, Recorder(ROBOT)).run(
            dict(zip(model.split.graph.inputs, inputs)))
        return [value.cpu() for value in values.values()]
    return run


def _files(folder: Path) -> Iterator[Path]:
    found = sorted(path for path in (*folder.glob('*'), *folder.glob('*/*'))
                   if path.suffix.lower() in _PICTURES and path.is_file())
    yield from found[:MOST_PICTURES]


def _class(name: str, labels: Sequence[str]) -> int:
    if name in labels:
        return labels.index(name)
    if name.isdecimal():
        return int(name)
    raise ValueError(f'the folder {name} is named after no class: give it a number, or a label of '
                     "the model's card")


def _says(output: torch.Tensor) -> int:
    if output.dim() != 2 or len(output) != 1:
        raise ValueError(f'the model gives {tuple(output.shape)}, which is not a choice among '
                         'classes: put the pictures into no folders')
    return int(output.argmax(1))
