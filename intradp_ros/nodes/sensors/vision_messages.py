# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Answers as messages of vision_msgs, where that package is installed."""
from __future__ import annotations

import importlib
from typing import Any

from std_msgs.msg import Header

from intradp_ros.perception.card import ModelCard
from intradp_ros.perception.predictions import Classes, Detections

MISSING = ('vision_msgs is not installed: no boxes and classes are published, only tensors; '
           'install it with: apt install ros-$ROS_DISTRO-vision-msgs')


def vision_messages() -> Any | None:
    """Return the messages of vision_msgs, None if it is not installed."""
    try:
        return importlib.import_module('vision_msgs.msg')
    except ImportError:
        return None


def detections_message(messages: Any, header: Header, found: Detections, card: ModelCard) -> Any:
    """Return a Detection2DArray, the surest first; the id is the number among the instances."""
    return messages.Detection2DArray(header=header, detections=[
        messages.Detection2D(
            header=header, id=str(number + 1), bbox=_box(messages, found.boxes[number]),
            results=[messages.ObjectHypothesisWithPose(hypothesis=_hypothesis(
                messages, card, found.classes[number], found.scores[number]))])
        for number in range(len(found.boxes))])


def classification_message(messages: Any, header: Header, found: Classes, card: ModelCard) -> Any:
    """Return a Classification, the likeliest class first."""
    return messages.Classification(header=header, results=[
        _hypothesis(messages, card, number, score)
        for number, score in zip(found.classes, found.scores)])


def label_info_message(messages: Any, header: Header, card: ModelCard, first: int) -> Any:
    """
    Return a LabelInfo: what the numbers in label images mean.

    :param first: the number that stands for the first class.
    """
    info = messages.LabelInfo(header=header, threshold=card.head.score_threshold)
    info.class_map = [messages.VisionClass(class_id=number + first, class_name=name)
                      for number, name in enumerate(card.labels)]
    return info


def _box(messages: Any, corners: Any) -> Any:
    left, top, right, bottom = (float(edge) for edge in corners)
    box = messages.BoundingBox2D(size_x=right - left, size_y=bottom - top)
    box.center.position.x, box.center.position.y = (left + right) / 2, (top + bottom) / 2
    return box


def _hypothesis(messages: Any, card: ModelCard, number: Any, score: Any) -> Any:
    return messages.ObjectHypothesis(class_id=card.label(int(number)), score=float(score))
