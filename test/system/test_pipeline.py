# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Planner, server and robot over DDS: compressed pictures in, boxes, masks and names out."""
from __future__ import annotations

import array
from pathlib import Path
import time

import cv2
from node_processes import (
    HEIGHT,
    nodes,
    Observer,
    own_domain,
    PATIENT,
    picture,
    QUICK_PLANNER,
    TIMEOUT,
    WIDTH,
)
import numpy as np
from sensor_msgs.msg import CompressedImage, Image
import small_models
from small_models import DETECTOR_CARD as CARD
import torch
from vision_msgs.msg import Detection2DArray

from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import save_graph
from intradp_ros.perception.card import card_to_json
from intradp_ros.perception.decode import decode
from intradp_ros.perception.predictions import Detections
from intradp_ros.perception.view import fitted

SIZE = (50, 110)


class Watcher(Observer):
    """An observer that sends compressed pictures, and keeps what is said of them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, Detection2DArray] = {}
        self.labels: dict[int, Image] = {}
        self.pictures: dict[int, Image] = {}
        self.compressed = self.node.create_publisher(CompressedImage, 'image/compressed', 10)
        for kind, topic, store in (
                (Detection2DArray, 'detections', self.found), (Image, 'labels', self.labels),
                (Image, 'inference_node/debug_image', self.pictures)):
            self.node.create_subscription(
                kind, topic, lambda m, store=store: self._keep(store, m), 10)

    def publish(self, pixels: np.ndarray) -> int:
        """Publish a picture that loses nothing, and return its number."""
        self.sent += 1
        message = CompressedImage(format='rgb8; png compressed bgr8')
        message.data = array.array('B', cv2.imencode('.png', pixels[..., ::-1])[1].tobytes())
        message.header.stamp.sec, message.header.frame_id = self.sent, 'camera'
        self.compressed.publish(message)
        return self.sent


def unsplit(model: torch.nn.Module, pixels: np.ndarray) -> Detections:
    """Return what the unsplit model and its post-processing say of a picture."""
    shown, view = fitted(pixels, (HEIGHT, WIDTH), CARD.input.resize, CARD.input.pad)
    with torch.inference_mode():
        outputs = model(torch.from_numpy(shown.transpose(2, 0, 1).copy())[None])
    found = decode(outputs, CARD.head, view)
    assert isinstance(found, Detections)
    return found


def assert_says(message: Detection2DArray, found: Detections) -> None:
    boxes = [(d.bbox.center.position.x - d.bbox.size_x / 2,
              d.bbox.center.position.y - d.bbox.size_y / 2,
              d.bbox.center.position.x + d.bbox.size_x / 2,
              d.bbox.center.position.y + d.bbox.size_y / 2) for d in message.detections]
    assert [d.results[0].hypothesis.class_id for d in message.detections] == [
        CARD.label(number) for number in found.classes]
    np.testing.assert_allclose(np.reshape(boxes, (-1, 4)), found.boxes, atol=1e-3)


def test_pictures_become_objects_as_the_unsplit_model_sees_them(tmp_path: Path) -> None:
    """Names of outputs stay, a picture that is none is counted, none is lost."""
    model = small_models.detector()
    archive = str(tmp_path / 'small.graph')
    example = torch.zeros(1, 3, HEIGHT, WIDTH, dtype=torch.uint8)
    save_graph(capture(model, (example,)), archive, card_to_json(CARD))
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as running:
        watcher = Watcher()
        try:
            running.start('planner_node', QUICK_PLANNER)
            running.start('offload_node', {'models': [archive]})
            running.start('inference_node', {
                'model': archive, 'image_transport': 'compressed', **PATIENT})
            assert watcher.set_mode('offload')[0]
            watcher.meet_robot(picture(0, *SIZE))
            watcher.compressed.publish(CompressedImage(format='jpeg', data=b'none'))
            shared, end = 0, time.monotonic() + TIMEOUT
            while shared < 3 and time.monotonic() < end:
                pixels = picture(watcher.sent, *SIZE)
                number = watcher.publish(pixels)
                result, stats = watcher.answer(number)
                watcher.wait(lambda n=number: n in watcher.found and n in watcher.labels
                             and n in watcher.pictures, 'what was found')
                shared += stats.shared
                wanted = unsplit(model, pixels)
                assert len(wanted.boxes) and wanted.labels is not None
                assert_says(watcher.found[number], wanted)
                labels = np.frombuffer(watcher.labels[number].data, np.uint8).reshape(SIZE)
                assert (labels != wanted.labels).mean() < 1e-3  # a mask's edge may round
                assert watcher.pictures[number].width == SIZE[1]
                assert [output.name for output in result.outputs] == [
                    'boxes', 'scores', 'classes', 'weights', 'masks']
                assert 0 < stats.extra_ms < 1000
            assert shared == 3
            watcher.wait(lambda: watcher.status('inference_node').get('rejected_image') == '1',
                         'the picture that is none to be counted')
        finally:
            watcher.close()
