# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a side makes of a schedule book, as a short text that both sides compare.

Each side lowers a book by itself.  That both have the same model and book
does not say that they come to the same transfers: another release may order
operators otherwise, take reductions apart otherwise, or cut other bands.
"""
from __future__ import annotations

from collections.abc import Iterable
import hashlib

from intradp_ros.schedule.schedule import Schedule
from intradp_ros.split.local_operator import SplitGraph


def fingerprint(split: SplitGraph, schedules: Iterable[Schedule]) -> str:
    """
    Return a SHA-256 (hex) of a graph as it runs and of the transfers of some schedules.

    Where it is equal on two sides, they mean the same by every transfer:
    the same rows of the same value, or records of the same operators.  It
    does not depend on parameters (the model's digest does), devices, or the
    kernels that a side has chosen.
    """
    graph = split.graph
    content = hashlib.sha256()
    for op in graph.operators:
        content.update(repr((op.target, op.inputs, op.outputs)).encode())
    for value in graph.values:
        facts = (value.shape, str(value.dtype), split.dims[value.id], split.rows[value.id],
                value.id in split.folded)
        content.update(repr(facts).encode())
    for schedule in schedules:
        content.update(repr([
            (t.value, t.region.start, t.region.stop, t.source, t.target, t.encoding)
            for t in schedule.transfers]).encode())
    return content.hexdigest()
