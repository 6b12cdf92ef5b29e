# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What is asked of a served model and what it answers: the same for every protocol.

Only remaining time crosses machines, counted from the first byte of a request.  A request ends
exactly once.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
import math
from typing import Protocol

import numpy as np

from intradp_ros.core.limits import within

#: Tensors of a request, dimensions and bytes of one; characters of a name.
MAX_TENSORS, MAX_TENSOR_DIMENSIONS, MAX_TENSOR_BYTES, MAX_NAME = 64, 8, 64 << 20, 256
#: What numbers may be made of: no objects, texts or records.
DTYPES = ('bool', 'uint8', 'int8', 'uint16', 'int16', 'uint32', 'int32', 'uint64', 'int64',
          'float16', 'float32', 'float64')
#: Larger priorities are served earlier.
MAX_PRIORITY = 1 << 20
#: The reason of a refusal by a gateway that goes: another one may be asked.
CLOSING = 'the gateway is closing'
#: How that of a request begins of which processes died: who computes it, too, may die of it.
DEADLY = 'executors died while they computed it'

Tensors = Mapping[str, 'np.ndarray[tuple[int, ...], np.dtype[np.generic]]']


class InferFate(Enum):
    """What became of a request; every request has exactly one."""

    IN_TIME = 'in_time'
    #: Its time was over before its answer was there: no answer is delivered.
    LATE = 'late'
    #: Not served; the reason says why, `retry_after` when it would be taken.
    REFUSED = 'refused'
    #: Withdrawn by its client, or replaced by a newer frame of its stream.
    CANCELLED = 'cancelled'


@dataclass(frozen=True)
class InferRequest:
    """
    Tensors for a service, and how long the answer is of use.

    `number` is the request's own, by which chance is drawn: equal numbers are treated equally.
    `frame` counts up within a `stream`; a request without a stream stands alone.

    :raises ValueError: if a name or a number is out of its limits; the text names which.
    """

    service: str
    tensors: Tensors
    #: Seconds from now on for which the answer is of use.
    remaining: float = math.inf
    priority: int = 0
    #: Who asks, for limits by client.
    client: str = ''
    stream: str = ''
    frame: int = 0
    number: int = 0
    #: Executors that died while they computed it, at all sites so far.
    deaths: int = 0

    def __post_init__(self) -> None:
        """Look at all limits."""
        for what, name in (('service', self.service), ('client', self.client),
                           ('stream', self.stream)):
            within(f'characters of the {what}', len(name), 0, MAX_NAME)
        if not self.remaining >= 0:
            raise ValueError(f'the deadline is in {self.remaining} s: it must not be negative')
        within('priority', self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        within('frame', self.frame, 0, (1 << 63) - 1)
        within('number', self.number, 0, (1 << 63) - 1)
        within('tensors', len(self.tensors), 0, MAX_TENSORS)
        for name, tensor in self.tensors.items():
            within('characters of a tensor name', len(name), 1, MAX_NAME)
            if tensor.dtype.name not in DTYPES:
                raise ValueError(f'tensor {name!r} has dtype {tensor.dtype.name}: it must be '
                                 f'one of {", ".join(DTYPES)}')


@dataclass(frozen=True)
class InferEnd:
    """
    The end of a request.

    Times are seconds; `predicted` and `finished` count from the request's arrival at the gateway
    that took it.  `retry_after` is when a refused one would be taken, infinite if never.
    """

    fate: InferFate
    reason: str = ''
    tensors: Tensors = field(default_factory=dict)
    retry_after: float = math.inf
    predicted: float = math.nan
    finished: float = math.nan
    queue: float = math.nan
    compute: float = math.nan
    batch: int = 0
    site: str = ''
    #: Sites that it was at, in order; the last one answered.
    path: tuple[str, ...] = ()
    #: As of the request.
    deaths: int = 0


class InferService(Protocol):
    """
    What takes requests: a gateway, or a client of one.

    `submit` returns at once.  `heard` gets one end, on a thread of the service, and must return
    at once.  What is returned withdraws the request; it may be called from any thread and at any
    time, also after the end.  Bad requests end as refused, with a reason that names the field.
    """

    def submit(self, request: InferRequest, heard: Callable[[InferEnd], None],
               ) -> Callable[[], None]:
        """Take a request."""
