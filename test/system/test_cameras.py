# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A robot over DDS: pictures of two cameras in one batch, answers for each."""
from __future__ import annotations

from pathlib import Path
import time

from node_processes import (
    HEIGHT,
    nodes,
    Observer,
    own_domain,
    PATIENT,
    picture,
    TIMEOUT,
    WIDTH,
)
import numpy as np
from rclpy.publisher import Publisher
from sensor_msgs.msg import Image
import small_models
from small_models import DETECTOR_CARD as CARD
import torch
from vision_msgs.msg import Detection2DArray

from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import save_graph
from intradp_ros.nodes.sensors.image_messages import rgb_to_image
from intradp_ros.perception.card import card_to_json
from intradp_ros.perception.decode import decode
from intradp_ros.perception.predictions import Detections
from intradp_ros.perception.view import fitted

CAMERAS = ('front', 'rear')
SIZE = (50, 110)


class Cameras(Observer):
    """Two cameras, and what is said of the pictures of each."""

    def __init__(self) -> None:
        super().__init__()
        self.publishers: list[Publisher[Image]] = []
        self.found: list[dict[int, Detection2DArray]] = [{}, {}]
        for name, store in zip(CAMERAS, self.found):
            self.publishers.append(self.node.create_publisher(Image, f'{name}/image', 10))
            self.node.create_subscription(
                Detection2DArray, f'{name}/detections',
                lambda m, store=store: self._keep(store, m), 10)

    def show(self, number: int, only: int | None = None) -> list[np.ndarray]:
        """Publish a picture of each camera, or of one, of nearly the same time."""
        pictures = [picture(2 * number + camera, *SIZE) for camera in range(2)]
        for camera, pixels in enumerate(pictures):
            if only in (None, camera):
                message = rgb_to_image(pixels)
                message.header.stamp.sec = number
                message.header.stamp.nanosec = camera * 10**7
                message.header.frame_id = CAMERAS[camera]
                self.publishers[camera].publish(message)
        return pictures


def unsplit(model: torch.nn.Module, pictures: list[np.ndarray]) -> list[Detections]:
    """Return what the unsplit model says of each picture of a batch."""
    shown = [fitted(pixels, (HEIGHT, WIDTH), CARD.input.resize, CARD.input.pad)
             for pixels in pictures]
    with torch.inference_mode():
        outputs = model(torch.from_numpy(np.stack([s.transpose(2, 0, 1) for s, _ in shown])))
    answers = [decode({name: t[i:i + 1] for name, t in outputs.items()}, CARD.head, view)
               for i, (_, view) in enumerate(shown)]
    assert all(isinstance(answer, Detections) for answer in answers)
    return answers


def test_one_inference_of_two_cameras(tmp_path: Path) -> None:
    """Each answer has its own picture's header; a picture without its partner is counted."""
    model = small_models.detector()
    archive = str(tmp_path / 'small.graph')
    example = torch.zeros(2, 3, HEIGHT, WIDTH, dtype=torch.uint8)
    save_graph(capture(model, (example,)), archive, card_to_json(CARD))
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as running:
        cameras = Cameras()
        try:
            running.start('inference_node', {
                'model': archive, 'cameras': [*CAMERAS], 'mode': 'local', **PATIENT})
            number, answered, end = 0, 0, time.monotonic() + TIMEOUT
            while answered < 3:
                assert time.monotonic() < end, cameras.diagnostics
                number += 1
                pictures = cameras.show(number)
                with cameras.changed:
                    heard = cameras.changed.wait_for(lambda n=number: n in cameras.stats and all(
                        n in found for found in cameras.found), 1.0)
                if not heard:
                    continue  # before discovery
                answered += 1
                for name, found, wanted in zip(CAMERAS, cameras.found, unsplit(model, pictures)):
                    message = found[number]
                    assert message.header.frame_id == name
                    assert len(message.detections) == len(wanted.boxes) > 0
                    middles = [(d.bbox.center.position.x, d.bbox.center.position.y)
                               for d in message.detections]
                    np.testing.assert_allclose(
                        middles, (wanted.boxes[:, :2] + wanted.boxes[:, 2:]) / 2, atol=1e-3)
            cameras.wait(lambda: int(cameras.status('inference_node').get(
                'inferences', 0)) >= len(cameras.stats), 'a count of all so far')
            before = int(cameras.status('inference_node')['inputs_unmatched'])
            cameras.show(number + 1, only=0)
            cameras.show(number + 2)
            cameras.wait(lambda: number + 2 in cameras.stats, 'the next set')
            assert number + 1 not in cameras.stats
            cameras.wait(lambda: int(cameras.status('inference_node').get(
                'inputs_unmatched', 0)) == before + 1, 'the count')
        finally:
            cameras.close()
