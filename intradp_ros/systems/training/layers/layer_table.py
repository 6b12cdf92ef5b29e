# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What the layers of a network cost in training: seconds by device, batch and direction, and bytes.

Layers stand in a chain; layer k reads what crosses border k and makes what crosses border k + 1.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from intradp_ros.core.json_text import parse_json
from intradp_ros.core.limits import MAX_MODEL_TEXT

FORMAT = 'intradp-layer-table-1'
MOST_LAYERS, MOST_BATCHES = 1 << 14, 64

Row = tuple[float, ...]


class TableError(ValueError):
    """A table that makes no sense; the text names what is wrong."""


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """
    Seconds on one device: `forward[i][k]` of layer k with `batches[i]` samples at once.

    `step[k]` are those of the optimiser's step; empty where nobody measured it.
    """

    batches: tuple[int, ...]
    forward: tuple[Row, ...]
    backward: tuple[Row, ...]
    step: Row = ()

    def __post_init__(self) -> None:
        """Check the figures."""
        if not 1 <= len(self.batches) <= MOST_BATCHES or self.batches[0] < 1 or any(
                a >= b for a, b in pairwise(self.batches)):
            raise TableError(f'batches of a table ascend from 1 or more, at most {MOST_BATCHES}; '
                             f'got {self.batches[:8]}')
        for rows in (self.forward, self.backward):
            if len(rows) != len(self.batches):
                raise TableError(f'{len(self.batches)} batches have {len(rows)} rows of seconds')
            for row in rows:
                _check('seconds', row)
        _check('seconds of the step', self.step)

    def seconds(self, samples: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """
        Return forward and backward seconds of each layer for so many samples, shape (layers,).

        Between measured batches it is linear; beyond the largest in proportion.  Below the
        smallest it takes what the smallest takes: an accelerator is no faster then.
        """
        return _between(self.batches, self.forward, samples), _between(
            self.batches, self.backward, samples)


@dataclass(frozen=True)
class LayerTable:
    """
    A chain of layers.

    Attributes
    ----------
    activation_bytes
        What a layer keeps of one sample from its forward to its backward pass.
    weight_bytes, optimiser_bytes
        Bytes of its parameters, and of what the optimiser keeps of them.  Gradients take as much
        as parameters.
    border_bytes, gradient_bytes
        Bytes of one sample that cross each border, one more than layers: forward, and backward.
    times
        By the name of the device.
    statistics_bytes
        Bytes of the statistics of a grain that a group of devices sums in addition to gradients
        (mean and variance of batch norm); empty where no layer has any.

    :raises TableError: if lengths differ, or a figure is negative or not finite.

    """

    layers: tuple[str, ...]
    activation_bytes: Row
    weight_bytes: Row
    optimiser_bytes: Row
    border_bytes: Row
    gradient_bytes: Row
    times: Mapping[str, LayerTimes]
    statistics_bytes: Row = ()

    def __post_init__(self) -> None:
        """Check lengths and figures."""
        count = len(self.layers)
        if not 1 <= count <= MOST_LAYERS:
            raise TableError(f'a table has 1 to {MOST_LAYERS} layers, this one {count}')
        for name, row, more in (('activation_bytes', self.activation_bytes, 0),
                                ('weight_bytes', self.weight_bytes, 0),
                                ('optimiser_bytes', self.optimiser_bytes, 0),
                                ('border_bytes', self.border_bytes, 1),
                                ('gradient_bytes', self.gradient_bytes, 1)):
            if len(row) != count + more:
                raise TableError(f'{name} has {len(row)} entries for {count} layers, '
                                 f'{count + more} are needed')
            _check(name, row)
        if self.statistics_bytes:
            if len(self.statistics_bytes) != count:
                raise TableError(f'statistics_bytes has {len(self.statistics_bytes)} entries for '
                                 f'{count} layers')
            _check('statistics_bytes', self.statistics_bytes)
        for device, times in self.times.items():
            if any(len(row) != count for row in (*times.forward, *times.backward,
                                          times.step or times.forward[0])):
                raise TableError(f'a row of seconds of {device} has not one entry a layer')

    def to_json(self) -> str:
        """Return the table as text."""
        return json.dumps({'format': FORMAT, **asdict(self)})

    @staticmethod
    def from_json(text: str) -> LayerTable:
        """Return the table of a text; raise TableError where it is none."""
        if len(text) > MAX_MODEL_TEXT:
            raise TableError(f'a layer table has at most {MAX_MODEL_TEXT >> 20} MB')
        try:
            found = parse_json(text)
            if found['format'] != FORMAT:
                raise TableError(f"the format is {found['format']!r}, not {FORMAT!r}")
            times = {str(name): LayerTimes(
                tuple(_whole(b) for b in one['batches']),
                tuple(_row(row) for row in one['forward']),
                tuple(_row(row) for row in one['backward']), _row(one.get('step', ())))
                for name, one in found['times'].items()}
            return LayerTable(
                tuple(str(name) for name in found['layers']), _row(found['activation_bytes']),
                _row(found['weight_bytes']), _row(found['optimiser_bytes']),
                _row(found['border_bytes']), _row(found['gradient_bytes']), times,
                _row(found.get('statistics_bytes', ())))
        except TableError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise TableError(f'this is not a layer table: {error!r}') from error


def _between(batches: Sequence[int], rows: Sequence[Row], samples: int,
             ) -> npt.NDArray[np.float64]:
    table = np.asarray(rows, dtype=float)
    if samples <= batches[0] or samples >= batches[-1]:
        low = samples <= batches[0]
        edge: npt.NDArray[np.float64] = table[0] if low else table[-1] * (samples / batches[-1])
        return edge
    above = next(k for k, batch in enumerate(batches) if batch >= samples)
    part = (samples - batches[above - 1]) / (batches[above] - batches[above - 1])
    found: npt.NDArray[np.float64] = (1 - part) * table[above - 1] + part * table[above]
    return found


def _check(name: str, row: Row) -> None:
    if not all(math.isfinite(figure) and figure >= 0 for figure in row):
        raise TableError(f'{name} must be finite and 0 or more')


def _row(found: Any) -> Row:
    return tuple(float(figure) for figure in found)


def _whole(found: Any) -> int:
    if type(found) is not int:
        raise TableError(f'a batch is a whole number, not {found!r}')
    return found
