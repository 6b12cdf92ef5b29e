# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What becomes of a product: the dimension that a softmax behind it works along."""
from __future__ import annotations

from intradp_ros.graph.operator_graph import Operator, OperatorGraph, resolve_target
from intradp_ros.split.calls.call import Call
from intradp_ros.split.calls.site import normal_dim, Site
from intradp_ros.split.rules.pointwise import is_pointwise

_SOFTMAX = frozenset(
    f'aten.{name}' for name in (
        'softmax.int', 'log_softmax.int', '_softmax.default', '_log_softmax.default'))


def softmax_dim(site: Site) -> int | None:
    """
    Return the dimension along which a softmax reads the result, None if none does.

    Between them may be element-wise operators (a scale, a mask, a bias).  In
    an attention that is written out, rows of queries are better kept than
    rows of keys, of which the softmax needs all.
    """
    (value, *_) = (v for v in site.operator.outputs if v is not None)
    while (readers := site.graph.consumers[value]):
        reader = site.graph.operators[readers[0]]
        if reader.target in _SOFTMAX:
            rank = len(site.output_shape)
            return normal_dim(Call.of(site.graph, reader).argument('dim'), rank)
        if not _keeps_dims(site.graph, reader, value):
            return None
        (value,) = (v for v in reader.outputs if v is not None)
    return None


def _keeps_dims(graph: OperatorGraph, reader: Operator, value: int) -> bool:
    """Return whether an element-wise operator has one result, of the shape of a value it reads."""
    results = [v for v in reader.outputs if v is not None]
    return reader.target.startswith('aten.') and is_pointwise(resolve_target(reader.target)) \
        and len(results) == 1 and graph.values[results[0]].shape == graph.values[value].shape
