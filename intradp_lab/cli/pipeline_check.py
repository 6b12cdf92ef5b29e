# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Typed messages in a bag, compared with what the unsplit model and its post-processing say."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import statistics
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch

from intradp_ros.perception.card import ModelCard
from intradp_ros.perception.decode import decode
from intradp_ros.perception.heads.named_outputs import named
from intradp_ros.perception.predictions import Detections, LabelMap, Prediction
from intradp_ros.perception.view import as_carded
from intradp_ros.runtime.models.catalogue import load_factory

Array = npt.NDArray[Any]
Heard = Mapping[str, Mapping[int, Any]]
#: How far boxes (pixels) and scores may lie apart, and which share of labels, to be equal: both
#: sides of a link round float32 sums in orders of their own.
BOX, SCORE, LABELS = 0.05, 1e-3, 1e-3
#: Share of the latency that the robot computes at least where an inference counts as divided.
DIVIDED = 0.05


@dataclass(frozen=True)
class Network:
    """
    A network of the pipeline.

    `factory` makes the unsplit model for an input of `size` (height, width);
    `compressed` says which images it takes, `topic` and `kind` where its
    results go and as what.
    """

    name: str
    factory: str
    size: tuple[int, int]
    card: ModelCard
    compressed: bool
    topic: str
    kind: str


def picture_of(message: Any, *, compressed: bool) -> Array:
    """Return the pixels (h, w, 3; RGB) of an image in a bag."""
    if not compressed:
        return np.asarray(message.data).reshape(message.height, message.width, 3)
    decoded = cv2.imdecode(np.asarray(message.data), cv2.IMREAD_COLOR)
    assert decoded is not None
    return cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)


class Unsplit:
    """The unsplit model of a network, with its post-processing."""

    def __init__(self, network: Network) -> None:
        self.network, self._model = network, load_factory(network.factory)

    def answer(self, rgb: Array) -> Prediction:
        """Return what it says of a picture."""
        card = self.network.card
        pixels, view = as_carded(rgb, self.network.size, card.input)
        with torch.inference_mode():
            outputs = self._model(torch.from_numpy(
                np.ascontiguousarray(pixels.transpose(2, 0, 1)))[None])
        answer = decode(named(outputs, card.outputs), card.head, view)
        assert answer is not None
        return answer


def said(message: Any, card: ModelCard) -> Prediction:
    """Return what a message of a bag says: a Detection2DArray or a label image."""
    if hasattr(message, 'detections'):
        return _detections(message, card)
    kind = np.uint8 if message.encoding == 'mono8' else np.uint16
    return LabelMap(np.asarray(message.data).view(kind).reshape(message.height, message.width))


def _detections(message: Any, card: ModelCard) -> Detections:
    rows = []
    for found in message.detections:
        middle, box = found.bbox.center.position, found.bbox
        hypothesis = found.results[0].hypothesis
        rows.append((middle.x - box.size_x / 2, middle.y - box.size_y / 2,
                     middle.x + box.size_x / 2, middle.y + box.size_y / 2,
                     hypothesis.score, card.labels.index(hypothesis.class_id)))
    table = np.array(rows, np.float64).reshape(-1, 6)
    return Detections(table[:, :4], table[:, 4], table[:, 5].astype(np.int64))


def equal(heard: Prediction, wanted: Prediction, threshold: float = 0.0) -> bool:
    """
    Return whether a message says what the unsplit model says, but for rounding.

    Objects whose scores are equal but for rounding come in either order, and one at the
    `threshold` is there or not.
    """
    if isinstance(heard, Detections) and isinstance(wanted, Detections):
        left = list(range(len(heard.scores)))
        for k, score in enumerate(wanted.scores):
            same = next((j for j in left if _same_object(heard, j, wanted, k)), None)
            if same is not None:
                left.remove(same)
            elif score > threshold + SCORE:
                return False
        return all(heard.scores[j] <= threshold + SCORE for j in left)
    labels = wanted.labels if isinstance(wanted, (Detections, LabelMap)) else None
    assert isinstance(heard, LabelMap) and labels is not None
    return heard.labels.shape == labels.shape and bool((heard.labels != labels).mean() <= LABELS)


def _same_object(heard: Detections, j: int, wanted: Detections, k: int) -> bool:
    return bool(heard.classes[j] == wanted.classes[k]
                and abs(heard.scores[j] - wanted.scores[k]) <= SCORE
                and np.abs(heard.boxes[j] - wanted.boxes[k]).max() <= BOX)


@dataclass(frozen=True)
class Seen:
    """Of one frame: its stamp, whether it was answered, and whether by the right message."""

    stamp: int
    answered: bool
    equal: bool


def check(network: Network, bag: Heard) -> list[Seen]:
    """Compare the answer to every image of the camera, in order."""
    images = bag['/image/compressed' if network.compressed else '/image']
    unsplit, results = Unsplit(network), bag.get(network.topic, {})
    seen = []
    for stamp, message in sorted(images.items()):
        heard = results.get(stamp)
        alike = heard is not None and equal(
            said(heard, network.card),
            unsplit.answer(picture_of(message, compressed=network.compressed)),
            network.card.head.score_threshold)
        seen.append(Seen(stamp, heard is not None, alike))
    return seen


def summary(network: Network, seen: Sequence[Seen], stats: Mapping[int, Any]) -> dict[str, Any]:
    """Return a network's part of the report."""
    def median(name: str) -> float | None:
        values = [getattr(stats[s.stamp], name) for s in seen if s.stamp in stats]
        return statistics.median(values) if values else None

    gains = [heard.alone_ms / heard.latency_ms for s in seen if s.stamp in stats
             and (heard := stats[s.stamp]).shared and heard.alone_ms > 0]
    return {
        **counts(seen), 'type': network.kind, 'median_ms': median('latency_ms'),
        'extra_ms': median('extra_ms'), 'gain': statistics.median(gains) if gains else None,
        'shared': sum(stats[s.stamp].shared for s in seen if s.stamp in stats),
        'divided': sum(_divided(stats[s.stamp]) for s in seen if s.stamp in stats),
        'by_rows': sum(stats[s.stamp].by_rows for s in seen if s.stamp in stats),
        'recovered': sum(stats[s.stamp].recovered for s in seen if s.stamp in stats)}


def _divided(stats: Any) -> bool:
    """Return whether both sides computed: the robot not only what joins the results."""
    return bool(stats.shared and stats.compute_ms > DIVIDED * stats.latency_ms)


def counts(seen: Sequence[Seen]) -> dict[str, int]:
    """Return how many frames there were, were lost, and were answered rightly."""
    return {'frames': len(seen), 'lost': sum(not s.answered for s in seen),
            'equal': sum(s.equal for s in seen)}
