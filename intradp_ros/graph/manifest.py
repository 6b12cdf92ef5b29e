# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A graph whose weights lie elsewhere: its structure, and the SHA-256 of each parameter's bytes.

The digest of a model is that of its manifest's text.  So anyone who has the digest
by somebody that it trusts may get the text, and then each weight that it needs, from
anyone: whatever is not what it should be is noticed before it is used.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
import hashlib

import torch

from intradp_ros.blobs.digests import is_digest
from intradp_ros.core.limits import check_text, MAX_MODEL_TEXT
from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.serialise import graph_of_document, parse_document


@dataclass(frozen=True)
class Manifest:
    """A graph without data, and the digests of its parameters by name."""

    digest: str
    graph: OperatorGraph
    weights: Mapping[str, str]

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Return the bytes of some parameters by their digests, of those that have any."""
        return {self.weights[name]: nbytes for name in names
                if (nbytes := self.graph.parameters[name].nbytes)}

    def filled(self, weights: Mapping[str, torch.Tensor]) -> OperatorGraph:
        """Return the graph with those parameters whose bytes are given, by digest."""
        return replace(self.graph, parameters={
            name: _as(weights.get(self.weights[name]), tensor)
            for name, tensor in self.graph.parameters.items()})


def read_manifest(data: bytes, digest: str) -> Manifest:
    """
    Return the manifest that a text describes; nothing in it is trusted.

    :raises GraphFormatError: if it has another digest, or does not describe a valid graph with all
        its weights.
    """
    if hashlib.sha256(data).hexdigest() != digest:
        raise GraphFormatError(f'not the model {digest[:12]}: its text has another digest')
    try:
        document = parse_document(check_text(data.decode(), MAX_MODEL_TEXT))
    except (UnicodeDecodeError, ValueError) as error:
        raise GraphFormatError(f'no text of a model: {error}') from error
    if not isinstance(document, dict) or set(document) != {'graph', 'weights'}:
        raise GraphFormatError('a model is described by its graph and the digests of its weights')
    graph, weights = graph_of_document(document['graph']), document['weights']
    if not isinstance(weights, dict) or set(weights) != set(graph.parameters) \
            or not all(map(is_digest, weights.values())):
        raise GraphFormatError('digests that are not those of the parameters')
    return Manifest(digest, graph, weights)


def _as(flat: torch.Tensor | None, wanted: torch.Tensor) -> torch.Tensor:
    """Return bytes as a tensor like `wanted`, which stands for it where there are none."""
    if wanted.nbytes == 0:
        return torch.empty(wanted.shape, dtype=wanted.dtype)
    if flat is None or flat.nbytes != wanted.nbytes:
        return wanted
    return flat.view(wanted.dtype).view(wanted.shape)
