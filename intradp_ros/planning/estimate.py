# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Latency, period, joules and memory of many placements at once, without a simulation.

A placement names a group (`FleetCosts.groups`) for every node, or for the
first ones.  The latency is the longest way through computing and moving,
devices doing one thing at a time, and at least the time that any medium needs
for its bytes: media have no queue here, so that no plan is judged slower than
it can be run.

`estimate_kernels.py` does this in machine code.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt

from intradp_ros.core.numba_compile import machine_code
from intradp_ros.planning import estimate_kernels
from intradp_ros.planning.estimate_kernels import Figures, nothing_placed, Placed, Tables
from intradp_ros.planning.fleet_costs import FleetCosts

Numbers = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Estimate:
    """
    Figures of placements.

    `latency` is that of a round (of one micro-batch, where a rate is wanted),
    `period` the seconds from inference to inference if they follow each other
    without end, shape (placements,); `joules` of an inference, `memory`, and
    `busy` seconds for a micro-batch have shape (placements, devices), `media`
    the seconds of each medium.
    """

    latency: Numbers
    period: Numbers
    joules: Numbers
    memory: Numbers
    busy: Numbers
    media: Numbers

    def __getitem__(self, chosen: npt.NDArray[np.intp]) -> Estimate:
        return Estimate(*(getattr(self, item.name)[chosen] for item in fields(self)))


def estimate(costs: FleetCosts, placements: npt.ArrayLike) -> Estimate:
    """
    Return the figures of placements, shape (placements, nodes), or of so many first nodes.

    Like ones next to each other are quicker.
    """
    placed = np.ascontiguousarray(placements, dtype=np.int64)
    rows, devices = len(placed), len(costs.topology.devices)
    found = Figures(np.zeros(rows), np.zeros(rows), np.zeros((rows, devices)),
                    np.zeros((rows, devices)), np.zeros((rows, devices)),
                    np.zeros((rows, len(costs.topology.media))))
    tables = _tables_of(costs)
    _compiled()(tables, placed, nothing_placed(tables, placed.shape[1]), found)
    return Estimate(*found)


def excess(costs: FleetCosts, found: Estimate) -> Numbers:
    """Return by how much placements are over the limits of memory and energy, 0 within them."""
    over = (np.maximum(0.0, found.memory / costs.memory_limits - 1)
            + np.maximum(0.0, found.joules / costs.energy_limits - 1))
    total: Numbers = over.sum(axis=1) + np.where(np.isfinite(found.latency), 0.0, 1e6)
    return total


@cache
def _compiled() -> Callable[..., Any]:
    plain = _estimate_rows,
    return (machine_code((estimate_kernels,), plain, allocates=False) or plain)[0]


def _estimate_rows(tables: Tables, placements: Indices, placed: Placed, found: Figures) -> None:
    estimate_kernels.estimate_rows(tables, placements, placed, found)


def _tables_of(costs: FleetCosts) -> Tables:
    """Return the tables of costs; they are made once."""
    known = costs.__dict__.get('_tables')
    if known is None:
        known = costs.__dict__['_tables'] = _tables(costs)
    return known


def _tables(costs: FleetCosts) -> Tables:
    nodes, flows = costs.model.nodes, costs.model.flows
    a, b, c, d = np.nonzero(costs.moving)
    groups = len(costs.groups)
    between = np.searchsorted(a * groups + b, np.arange(groups * groups + 1))
    working = np.array([node.working_bytes for node in nodes])
    return Tables(
        costs.seconds, costs.groups,
        *_ragged([[number for number, _ in read] for read in costs.read]),
        *_ragged([[number for number, _ in back] for back in costs.returned]),
        _ints([flow.maker for flow in flows]), np.array(costs.flow_bytes, dtype=float),
        *_ragged([sorted(flow.readers) for flow in flows]),
        _ints(between), _ints(c), _ints(d), _ints(costs.moving[a, b, c, d]),
        costs.per_byte, costs.delay, costs.weight_bytes, working, costs.media_seconds,
        costs.pair_seconds, np.ascontiguousarray(costs.watts), costs.home, costs.batches,
        costs.samples, float(costs.quality.rate), int(costs.contended))


def _ints(values: Any) -> Indices:
    return np.asarray(values, dtype=np.int64)


def _ragged(lists: Sequence[Sequence[int]]) -> tuple[Indices, Indices]:
    return (_ints(list(accumulate(map(len, lists), initial=0))),
            _ints(list(chain.from_iterable(lists))))
