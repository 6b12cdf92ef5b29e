# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""On which topics an answer goes out, and as which messages."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from std_msgs.msg import Header

from intradp_ros.nodes.sensors.map_messages import (
    depth_image,
    depth_points,
    instances_image,
    key_points_cloud,
    labels_image,
    with_header,
)
from intradp_ros.nodes.sensors.vision_messages import classification_message, detections_message
from intradp_ros.perception.card import ModelCard
from intradp_ros.perception.predictions import Classes, Depth, Detections, LabelMap, Prediction

Make = Callable[[Header, Any], Any]


@dataclass(frozen=True, slots=True)
class Topic:
    """Messages of a class, made of a header and an answer; None where there is nothing to say."""

    kind: type
    make: Make


def topics_of(like: Prediction, card: ModelCard, vision: Any,
              camera: Callable[[], CameraInfo]) -> Mapping[str, Topic]:
    """
    Return by name the topics of answers like one.

    :param vision: the messages of vision_msgs; topics that need them are left
        out where it is None.
    :param camera: returns what is known of the camera.
    """
    if isinstance(like, Detections):
        return _of_detections(like, card, vision)
    if isinstance(like, Classes):
        return {'classification': Topic(vision.Classification, partial(
            _with_card, classification_message, vision, card))} if vision else {}
    if isinstance(like, LabelMap):
        return {'labels': Topic(Image, lambda header, answer: labels_image(
            header, answer.labels, card))}
    if isinstance(like, Depth):
        return _of_depth(camera)
    return {'key_points': Topic(PointCloud2, lambda header, answer: key_points_cloud(
        header, answer.points, answer.numbers, np.ones(len(answer.points))))}


def _of_detections(like: Detections, card: ModelCard, vision: Any) -> Mapping[str, Topic]:
    topics: dict[str, Topic] = {}
    if vision:
        topics['detections'] = Topic(vision.Detection2DArray, partial(
            _with_card, detections_message, vision, card))
    if like.instances is not None:
        topics['labels'] = Topic(Image, lambda header, answer: labels_image(
            header, answer.labels, card))
        topics['instances'] = Topic(Image, lambda header, answer: instances_image(
            header, answer.instances))
    if like.points is not None:
        topics['key_points'] = Topic(PointCloud2, _points_of_objects)
    return topics


def _of_depth(camera: Callable[[], CameraInfo]) -> Mapping[str, Topic]:
    return {
        'depth/image': Topic(Image, lambda header, answer: depth_image(header, answer.metres)),
        'depth/camera_info': Topic(CameraInfo, lambda header, answer: with_header(
            camera(), header)),
        'depth/points': Topic(PointCloud2, lambda header, answer: depth_points(
            header, answer.metres, camera()))}


def _with_card(make: Callable[..., Any], vision: Any, card: ModelCard, header: Header,
               answer: Any) -> Any:
    return make(vision, header, answer, card)


def _points_of_objects(header: Header, answer: Detections) -> PointCloud2:
    """Return the key points (n, k, 3) of n objects."""
    assert answer.points is not None
    objects, count, _ = answer.points.shape
    return key_points_cloud(
        header, answer.points.reshape(-1, 3), np.tile(np.arange(count), objects),
        np.repeat(np.arange(objects) + 1, count))
