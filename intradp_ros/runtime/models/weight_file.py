# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Weights from a file for a model: limits first, then the digest, then every name and shape."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
import hashlib
import io
from pathlib import Path
from typing import Any
import zipfile

import safetensors.torch
import torch
from torch import nn

from intradp_ros.core.json_text import parse_json
from intradp_ros.core.plain_file import open_to_read
from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.serialise import graph_to_json, load_graph

#: Bytes of a file's header, and what a file may have beyond its weights: an optimiser's state.
MOST_HEADER, MOST_TIMES = 1 << 24, 8
#: The format of checkpoints of training, and how names of parameters and statistics begin there.
CHECKPOINT, KEPT = 'intradp-checkpoint-1', ('p:', 'b:')
#: Buffers that a checkpoint may lack: nothing is computed with them.
_COUNTS = 'num_batches_tracked'
_ZIP = b'PK'
Weights = Mapping[str, torch.Tensor] | OperatorGraph
"""Tensors by the module's names, or those of an archive, by the names in its graph."""


class WeightsError(ValueError):
    """A file whose weights cannot be used; the text says why."""


def read_weights(path: Path, nbytes: float, sha256: str = '') -> Weights:
    """
    Return the tensors of a safetensors file by the module's names, or an archive.

    :param path: of plain weights, a checkpoint of training, whose optimiser is left out, or an
        archive that `intradp model add` wrote.
    :param nbytes: bytes of the model's weights; a file of more than `MOST_TIMES` of it is not
        read.
    :param sha256: what the file's SHA-256 must be; empty for whatever it is.
    :raises WeightsError: if it is too large, another file, or neither safetensors nor an archive.
    """
    try:
        with open_to_read(path) as stream:
            most = int(MOST_TIMES * nbytes) + MOST_HEADER
            data = stream.read(most + 1)
    except OSError as error:
        raise WeightsError(f'{path} cannot be read: {error.strerror}') from error
    if len(data) > most:
        raise WeightsError(f'{path} has more than {most} bytes: too many for a model whose '
                           f'weights have {nbytes:.0f}')
    if sha256 and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise WeightsError(f'{path} is not the file that is meant: its SHA-256 is '
                           f'{hashlib.sha256(data).hexdigest()}')
    if data.startswith(_ZIP):
        return _archive(data, path)
    facts = file_facts(data, path)
    try:
        found: dict[str, torch.Tensor] = safetensors.torch.load(data)
    except Exception as error:  # of a kind of its own
        raise WeightsError(f'{path} is not a safetensors file: {error}') from error
    return module_state(found) if facts.get('format') == CHECKPOINT else found


def module_state(checkpoint: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the parameters and statistics of a checkpoint's tensors, by the module's names."""
    return {name[2:]: tensor for name, tensor in checkpoint.items() if name.startswith(KEPT)}


def load_weights(module: nn.Module, weights: Weights) -> None:
    """
    Give a module all its weights; where they do not fit it keeps what it has.

    :raises WeightsError: if one is missing or too much, of another shape or kind, or not finite.
    """
    if isinstance(weights, OperatorGraph):
        raise WeightsError('the file is an archive, and the model is made by a factory: give its '
                           'weights as safetensors, or a checkpoint of training')
    wanted: dict[str, torch.Tensor] = module.state_dict()
    difference = _names_apart(
        weights, wanted, [name for name in wanted if not name.endswith(_COUNTS)])
    if difference:
        raise WeightsError(f'the weights are of another model: {difference}')
    _check(weights, wanted)
    module.load_state_dict(weights, strict=False)


def with_weights(graph: OperatorGraph, weights: Weights) -> OperatorGraph:
    """
    Return the graph of an archive with other weights.

    They come from another archive of the same operators; or by names, where the graph has all
    that the file has and nothing else: what an archive computes from weights when it is made
    (batch norm folded into a convolution, say) would be of the weights before.

    :raises WeightsError: if one is missing or too much, of another shape or kind, or not finite.
    """
    if isinstance(weights, OperatorGraph):
        if _structure(weights) != _structure(graph):
            raise WeightsError('the archive is of another model: its operators or shapes are not '
                               'those of the archive in use')
        found = weights.parameters
    else:
        found = {name: tensor for name, tensor in weights.items() if not name.endswith(_COUNTS)}
        difference = _names_apart(found, graph.parameters, graph.parameters)
        if difference:
            raise WeightsError(
                'the model is an archive, and these weights are not all there is in it: '
                f'{difference}. Batch norm and constants are folded when an archive is made: make '
                'one of the new weights (intradp model add) and load that')
    _check(found, graph.parameters)
    return replace(graph, parameters={
        name: found[name].to(like.dtype) for name, like in graph.parameters.items()})


def _structure(graph: OperatorGraph) -> str:
    return graph_to_json(replace(graph, name='', method=''))


def _names_apart(weights: Collection[str], wanted: Collection[str], needed: Iterable[str]) -> str:
    """Return in words which names are missing, and which are too much; empty if none."""
    missing = [name for name in needed if name not in weights]
    others = [name for name in weights if name not in wanted]
    return '; '.join(
        f'{what} {", ".join(names[:3])}{" ..." * (len(names) > 3)}'
        for what, names in (('they lack', missing), ('the model lacks', others)) if names)


def _check(weights: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> None:
    """Refuse tensors of other shapes or kinds, and values that are not finite as the model's."""
    for name, tensor in weights.items():
        like = wanted[name]
        if tensor.shape != like.shape or \
                tensor.is_floating_point() != like.is_floating_point():
            raise WeightsError(f'the weights are of another model: {name} is '
                               f'{tuple(tensor.shape)} {tensor.dtype}, the model has '
                               f'{tuple(like.shape)} {like.dtype}')
        if not bool(torch.isfinite(tensor.to(like.dtype)).all()):
            raise WeightsError(
                f'{name} holds values that are not numbers: training has gone wrong')


def _archive(data: bytes, path: Path) -> OperatorGraph:
    """Return the graph in an archive, which unpacks to no more bytes than it has."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED or member.file_size > len(data)
                   for member in archive.infolist()):
                raise WeightsError(f'{path} is compressed, as no archive of a model is')
        return load_graph(io.BytesIO(data))
    except (zipfile.BadZipFile, GraphFormatError) as error:
        raise WeightsError(f'{path} is neither safetensors nor an archive that intradp model add '
                           f'wrote: {error}') from error


def file_facts(data: bytes, path: Path) -> Mapping[str, Any]:
    """Return the header of a safetensors file; WeightsError if it is not one."""
    length = int.from_bytes(data[:8], 'little')
    if len(data) < 8 or length > min(MOST_HEADER, len(data) - 8):
        raise WeightsError(f'{path} is not a safetensors file')
    try:
        header = parse_json(data[8:8 + length], None)
        facts = header.get('__metadata__', {})
        return facts if isinstance(facts, dict) else {}
    except (ValueError, AttributeError) as error:
        raise WeightsError(f'{path} is not a safetensors file: {error}') from error
