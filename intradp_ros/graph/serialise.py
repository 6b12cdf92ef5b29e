# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Operator graphs as JSON, as archives, and their digest.

JSON holds the structure: enough to plan with.  An archive is a zip file of
``graph.json``, ``parameters.safetensors`` and, if there are notes for those
who use the model, ``card.json``.  Reading any of them executes nothing: names
of operators are looked up among ATen's and torchvision's.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
import hashlib
import json
import os
from pathlib import Path
import re
from typing import Any, BinaryIO
import zipfile

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
import torch

from intradp_ros.blobs.digests import flat_bytes
from intradp_ros.core.atomic_write import replacing
from intradp_ros.core.json_text import parse_json
from intradp_ros.core.plain_file import open_to_read
from intradp_ros.graph.checks import check_graph
from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.reference_evaluation import describe
from intradp_ros.graph.structure import graph_of, Json, structure_of

LARGEST_JSON = 256 * 2**20
"""Bytes of structure above which an archive is refused."""
LARGEST_NOTES = 2**20
"""Bytes of notes above which they are."""
GRAPH, PARAMETERS, NOTES = 'graph.json', 'parameters.safetensors', 'card.json'
#: What graphs for batches have of their own (`batch_ladder.py`).
BATCH_PARAMETERS = 'batches.safetensors'
_BATCH = re.compile(r'batch_[1-9]\d{0,2}\.json')
MOST_MEMBERS = 16


def graph_to_json(graph: OperatorGraph) -> str:
    """
    Return the graph's structure as JSON: without the data of parameters, always the same text.

    :raises GraphFormatError: if the graph was captured as one opaque operator, which only its own
        process can run.
    """
    return _dump(structure_of(graph))


def graph_from_json(
        text: str, parameters: Mapping[str, torch.Tensor] | None = None) -> OperatorGraph:
    """
    Return the graph that a JSON text describes.

    Without `parameters` the graph is good for planning: its parameters have
    shapes and dtypes, but no data (they are on the ``meta`` device).

    :raises GraphFormatError: if the text does not describe a valid graph, or other parameters than
        those given.
    """
    graph = graph_of_document(parse_document(text))
    return graph if parameters is None else _with_parameters(graph, parameters)


def save_graph(graph: OperatorGraph, path: str | os.PathLike[str], notes: str = '') -> None:
    """
    Write graph and parameters to one archive; equal graphs give equal bytes.

    `notes` are text for those who use the model; its digest does not depend on them.

    :raises GraphFormatError: if the graph cannot be serialised, or holds no parameter data.
    """
    _check_data(graph)
    members = {GRAPH: graph_to_json(graph).encode()}
    if notes:
        members[NOTES] = notes.encode()
    try:
        members[PARAMETERS] = save_tensors(
            {name: _own_memory(tensor) for name, tensor in sorted(graph.parameters.items())})
    except KeyError as error:
        raise GraphFormatError(f'safetensors cannot hold parameters of {error}') from error
    with replacing(Path(path)) as part, zipfile.ZipFile(part, 'w') as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # dated 1980, so as to be equal


def load_graph(path: str | os.PathLike[str] | BinaryIO) -> OperatorGraph:
    """
    Read an archive that `save_graph` wrote, by its path or from an open file.

    :raises GraphFormatError: if the file is not such an archive.
    :raises OSError: if it cannot be read.
    """
    try:
        with _opened(path) as archive:
            _check_members(archive, path)
            graph = graph_from_json(member(archive, GRAPH, LARGEST_JSON).decode())
            size = sum(tensor.nbytes for tensor in graph.parameters.values())
            data = member(archive, PARAMETERS, size + LARGEST_JSON)
        return _with_parameters(graph, load_tensors(data))
    except (zipfile.BadZipFile, SafetensorError, UnicodeDecodeError, RuntimeError) as error:
        # RuntimeError: a member that is encrypted, or compressed in an unknown way
        raise GraphFormatError(f'{path} is not an archive of a graph: {error}') from error


@contextmanager
def _opened(path: str | os.PathLike[str] | BinaryIO) -> Iterator[zipfile.ZipFile]:
    with open_to_read(Path(path)) if isinstance(path, (str, os.PathLike)) else nullcontext(path) \
            as file, zipfile.ZipFile(file) as archive:
        yield archive


def load_notes(path: str | os.PathLike[str]) -> str:
    """
    Return the notes in an archive that `save_graph` wrote, '' if there are none.

    :raises GraphFormatError: if the file is not such an archive.
    :raises OSError: if it cannot be read.
    """
    try:
        with _opened(path) as archive:
            _check_members(archive, path)
            if NOTES not in archive.namelist():
                return ''
            return member(archive, NOTES, LARGEST_NOTES).decode()
    except (zipfile.BadZipFile, UnicodeDecodeError, RuntimeError) as error:
        raise GraphFormatError(f'{path} is not an archive of a graph: {error}') from error


def digest(graph: OperatorGraph) -> str:
    """
    Return the SHA-256 (hex) of structure and parameters: of the text of the graph's manifest.

    Two graphs with the same digest compute the same.  It does not depend on
    the graph's name, on memory formats, on the machine or the process.

    :raises GraphFormatError: if the graph cannot be serialised, or holds no parameter data.
    """
    return hashlib.sha256(manifest_text(graph).encode()).hexdigest()


def manifest_text(graph: OperatorGraph) -> str:
    """
    Return the structure as JSON with the SHA-256 of each parameter's bytes, always the same text.

    Who knows its digest can check any parameter by itself (`graph/manifest.py`).

    :raises GraphFormatError: if the graph cannot be serialised, or holds no parameter data.
    """
    _check_data(graph)
    return _dump({
        'graph': {**structure_of(graph), 'name': '', 'method': ''},
        'weights': {name: hashlib.sha256(flat_bytes(tensor).cpu().numpy().data).hexdigest()
                    for name, tensor in graph.parameters.items()}})


def graph_of_document(document: Any) -> OperatorGraph:
    """Return the graph without data that a parsed document describes; GraphFormatError if none."""
    try:
        graph = graph_of(document)
        check_graph(graph)
    except RecursionError as error:
        raise GraphFormatError('graph is nested too deep') from error
    return graph


def _dump(document: Json) -> str:
    return json.dumps(document, sort_keys=True, separators=(',', ':'), allow_nan=False)


def parse_document(text: str) -> Any:
    """Return what a JSON text says; GraphFormatError if it is not JSON, or ambiguous."""
    try:
        return parse_json(text, None, constant=_refuse)
    except GraphFormatError:
        raise
    except ValueError as error:
        raise GraphFormatError(f'graph is not understood: {error}') from error


def _refuse(constant: str) -> Any:
    raise GraphFormatError(f'graph holds the number {constant}, which JSON lacks')


def _with_parameters(
        graph: OperatorGraph, parameters: Mapping[str, torch.Tensor]) -> OperatorGraph:
    if set(parameters) != set(graph.parameters):
        names = sorted(set(parameters) ^ set(graph.parameters))
        raise GraphFormatError(f'graph and parameters differ in names, first in {names[0]!r}')
    for name, expected in graph.parameters.items():
        given = parameters[name]
        if given.shape != expected.shape or given.dtype != expected.dtype:
            raise GraphFormatError(
                f'parameter {name!r} is {describe(given)}, the graph needs {describe(expected)}')
    return replace(graph, parameters={name: parameters[name] for name in graph.parameters})


def _check_data(graph: OperatorGraph) -> None:
    for name, tensor in graph.parameters.items():
        if tensor.is_meta:
            raise GraphFormatError(
                f'parameter {name!r} has no data: the graph was read from JSON alone, which is '
                'good for planning only')


def _check_members(archive: zipfile.ZipFile, path: object) -> None:
    names = archive.namelist()
    own = [name for name in names if name != BATCH_PARAMETERS and not _BATCH.fullmatch(name)]
    if sorted(set(own) | {NOTES}) != sorted((GRAPH, PARAMETERS, NOTES)) or len(own) > 3 or \
            len(names) > MOST_MEMBERS or len(set(names)) < len(names):
        raise GraphFormatError(f'{path} is not an archive of a graph: it holds other files')


def _own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in row-major order, in memory that it shares with no other."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def batch_member(b: int) -> str:
    """Return the name of the file that holds the graph for batches of b rows."""
    return f'batch_{b}.json'


def member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Read a member, refusing one that claims or unfolds to more bytes than `limit`."""
    if archive.getinfo(name).file_size > limit:
        raise GraphFormatError(f'{name} is larger than {limit} bytes')
    return archive.read(name)
