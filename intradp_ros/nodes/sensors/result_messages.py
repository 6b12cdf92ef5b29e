# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Outcomes of inferences as messages."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
import math
from typing import Any

from std_msgs.msg import Header
import torch

from intradp_ros.msg import InferenceResult, InferenceTimeline, Tensor
from intradp_ros.msg import InferenceStats as InferenceStatsMessage
from intradp_ros.nodes.sensors.image_messages import to_array
from intradp_ros.runtime.requests.outcome import InferenceStats
from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.wire.dtypes import encode_dtype


def result_message(header: Header, inference: int, tensors: Mapping[str, torch.Tensor],
                   ) -> InferenceResult:
    """Return the outputs of one inference by name, in order."""
    return InferenceResult(header=header, inference=inference, outputs=[
        _tensor_message(name, tensor) for name, tensor in tensors.items()])


def stats_message(header: Header, stats: InferenceStats, rejected: int, extra: float,
                  ) -> InferenceStatsMessage:
    """
    Return the figures of one inference, and how many messages were rejected so far.

    :param extra: seconds that decoding, post-processing and publishing took in addition.
    """
    return InferenceStatsMessage(
        header=header, inference=stats.inference, strategy=stats.strategy,
        schedule=stats.schedule, shared=stats.shared, by_rows=stats.by_rows,
        recovered=stats.recovered, latency_ms=stats.latency * 1e3,
        predicted_ms=stats.predicted * 1e3, alone_ms=stats.alone * 1e3,
        compute_ms=stats.compute * 1e3, waiting_ms=stats.waiting * 1e3,
        bytes_up=stats.bytes_up, bytes_down=stats.bytes_down, energy_j=stats.energy,
        extra_ms=extra * 1e3,
        energy_drawn_j=math.nan if stats.drawn is None else stats.drawn, rejected=rejected)


def timeline_message(header: Header, inference: int, events: Sequence[Event],
                     ) -> InferenceTimeline:
    """Return the measured events of one inference."""
    return InferenceTimeline(
        header=header, inference=inference, lane=[e.lane for e in events],
        kind=[e.kind for e in events], name=[e.name for e in events],
        start=[e.start for e in events], stop=[e.stop for e in events])


def _tensor_message(name: str, tensor: torch.Tensor) -> Any:
    code, bits = encode_dtype(tensor.dtype)
    return Tensor(name=name, dtype_code=code, dtype_bits=bits, shape=list(tensor.shape),
                  data=to_array(tensor))
