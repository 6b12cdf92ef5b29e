# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""From images to typed messages, for every head, while the server is cut off and comes back."""
from __future__ import annotations

import array
from collections.abc import Callable, Mapping
import math
from pathlib import Path
import signal
import time
from typing import Any

import cv2
from head_models import HeadModel, MODELS
from node_processes import HEIGHT, nodes, Observer, own_domain, QUICK_PLANNER, TIMEOUT, WIDTH
import numpy as np
import pytest
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, PointCloud2
from std_msgs.msg import Header
import torch
from vision_msgs import msg as vision_msgs

from intradp_lab.zoo.video import frames
from intradp_lab.zoo.wheel_files import MissingWheelError
from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import save_graph
from intradp_ros.nodes.sensors.image_messages import decompressed, to_rgb
from intradp_ros.nodes.sensors.result_topics import topics_of
from intradp_ros.perception.card import card_to_json
from intradp_ros.perception.decode import decode
from intradp_ros.perception.heads.named_outputs import named
from intradp_ros.perception.view import fitted

SIZE = (72, 150)
#: Silence is noticed soon, also on a busy machine: it is what this is about.
ROBOT = {'server_timeout_ms': 1500.0, 'queue_size': 64}
BEFORE, DURING, AFTER = 3, 3, 3


def raw(rgb: np.ndarray) -> Image:
    message = Image(height=rgb.shape[0], width=rgb.shape[1], encoding='rgb8',
                    step=3 * rgb.shape[1])
    message.data = array.array('B', np.ascontiguousarray(rgb).tobytes())
    return message


def bayer(rgb: np.ndarray) -> Image:
    """Return a mosaic: of every pixel one colour."""
    mosaic = rgb[..., 1].copy()
    mosaic[0::2, 0::2], mosaic[1::2, 1::2] = rgb[0::2, 0::2, 0], rgb[1::2, 1::2, 2]
    message = Image(height=rgb.shape[0], width=rgb.shape[1], encoding='bayer_rggb8',
                    step=rgb.shape[1])
    message.data = array.array('B', mosaic.tobytes())
    return message


def yuv(rgb: np.ndarray) -> Image:
    """Return luminance of every pixel, colour of every second one (UYVY)."""
    full = cv2.cvtColor(rgb, cv2.COLOR_RGB2YUV)
    packed = np.empty((*rgb.shape[:2], 2), np.uint8)
    packed[..., 1] = full[..., 0]
    packed[:, 0::2, 0], packed[:, 1::2, 0] = full[:, 0::2, 1], full[:, 0::2, 2]
    message = Image(height=rgb.shape[0], width=rgb.shape[1], encoding='yuv422',
                    step=2 * rgb.shape[1])
    message.data = array.array('B', packed.tobytes())
    return message


def jpeg(rgb: np.ndarray) -> CompressedImage:
    message = CompressedImage(format='rgb8; jpeg compressed bgr8')
    message.data = array.array('B', cv2.imencode('.jpg', rgb[..., ::-1])[1].tobytes())
    return message


#: Each head with images of another kind.
CASES: Mapping[str, Callable[[np.ndarray], Any]] = {
    'yolo': jpeg, 'detr': raw, 'bodies': yuv, 'segmentation': bayer, 'depth': raw, 'heat': jpeg,
    'classification': raw}


class Unsplit:
    """The unsplit network of a head with its post-processing, in this process."""

    def __init__(self, head: HeadModel) -> None:
        self.card, self.model = head.card, head.make().eval()
        self.topic = head.topic

    def message(self, header: Header, image: Any) -> Any:
        """Return the typed message that belongs to an image."""
        rgb = decompressed(image) if isinstance(image, CompressedImage) else to_rgb(image)
        shown, view = fitted(rgb, (HEIGHT, WIDTH), self.card.input.resize, self.card.input.pad)
        with torch.inference_mode():
            outputs = self.model(torch.from_numpy(shown.transpose(2, 0, 1).copy())[None])
        answer = decode(named(outputs, self.card.outputs), self.card.head, view)
        assert answer is not None
        return topics_of(answer, self.card, vision_msgs, CameraInfo)[self.topic].make(
            header, answer)


def assert_equal(heard: Any, wanted: Any) -> None:
    """Compare two messages, but for what sums of floats in other orders may change."""
    if isinstance(wanted, PointCloud2):
        ours, theirs = (np.frombuffer(m.data, np.float32).reshape(m.width, 6)[:, :4]
                        for m in (heard, wanted))
        np.testing.assert_allclose(ours, theirs, atol=2e-2, rtol=1e-3)
    elif isinstance(wanted, Image) and wanted.encoding == '32FC1':
        np.testing.assert_allclose(np.frombuffer(heard.data, np.float32), np.frombuffer(
            wanted.data, np.float32), rtol=1e-3, atol=1e-3)
    elif isinstance(wanted, Image):
        assert (heard.encoding, heard.width, heard.height) == (
            wanted.encoding, wanted.width, wanted.height)
        assert (np.asarray(heard.data) != np.asarray(wanted.data)).mean() < 2e-3
    else:
        assert_alike(heard, wanted)


def assert_alike(heard: Any, wanted: Any) -> None:
    if isinstance(wanted, float):
        assert math.isclose(heard, wanted, rel_tol=1e-3, abs_tol=2e-2)
    elif isinstance(wanted, (list, tuple)):
        assert len(heard) == len(wanted)
        for ours, theirs in zip(heard, wanted):
            assert_alike(ours, theirs)
    elif hasattr(wanted, 'get_fields_and_field_types'):
        for name in wanted.get_fields_and_field_types():
            assert_alike(getattr(heard, name), getattr(wanted, name))
    elif isinstance(wanted, np.ndarray):
        np.testing.assert_allclose(heard, wanted, rtol=1e-3, atol=2e-2)
    else:
        assert heard == wanted


class Watcher(Observer):
    """An observer that sends images of any kind, and keeps what is said of them."""

    def __init__(self, kind: type, said: str) -> None:
        super().__init__()
        self.said: dict[int, Any] = {}
        self.camera = self.node.create_publisher(*(
            (CompressedImage, 'image/compressed', 10) if kind is CompressedImage
            else (Image, 'image', 10)))
        self.node.create_subscription(
            _kind(said), said, lambda m: self._keep(self.said, m), 10)

    def publish(self, image: Any) -> int:
        """Publish an image message and return its number."""
        self.sent += 1
        image.header.stamp.sec, image.header.frame_id = self.sent, 'camera'
        self.camera.publish(image)
        return self.sent


def _kind(topic: str) -> type:
    return {'detections': vision_msgs.Detection2DArray, 'labels': Image, 'depth/image': Image,
            'key_points': PointCloud2, 'classification': vision_msgs.Classification}[topic]


def pictures(count: int) -> list[np.ndarray]:
    """Return frames of a real video."""
    try:
        return [*frames(count, SIZE[::-1], every=3)]
    except MissingWheelError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize('name', CASES)
def test_a_head_says_what_the_unsplit_model_says_while_the_server_goes_and_comes(
        tmp_path: Path, name: str) -> None:
    """Nothing is lost; all is equal, shared and alone."""
    head, images = MODELS[name], [CASES[name](rgb) for rgb in pictures(BEFORE + DURING + AFTER)]
    archive, compressed = str(tmp_path / 'a.graph'), isinstance(images[0], CompressedImage)
    example = torch.zeros(1, 3, HEIGHT, WIDTH, dtype=torch.uint8)
    save_graph(capture(head.make().eval(), (example,)), archive, card_to_json(head.card))
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as running:
        running.start('planner_node', QUICK_PLANNER)
        server = running.start('offload_node', {'models': [archive]})
        running.start('inference_node', {
            'model': archive, **ROBOT, 'image_transport': 'compressed' if compressed else 'raw'})
        watcher = Watcher(type(images[0]), head.topic)
        try:
            watch(watcher, Unsplit(head), images, server)
        finally:
            server.signal(signal.SIGCONT)
            watcher.close()


def watch(watcher: Watcher, unsplit: Unsplit, images: list[Any], server: Any) -> None:
    """Compare every answer, before the server is cut off, while it is, and afterwards."""
    assert watcher.set_mode('offload')[0]
    watcher.meet_robot(images[0])
    shared(watcher, unsplit, images[:BEFORE])
    server.signal(signal.SIGSTOP)
    for image in images[BEFORE:BEFORE + DURING]:
        assert not checked(watcher, unsplit, image).shared
    server.signal(signal.SIGCONT)
    shared(watcher, unsplit, images[-AFTER:])


def shared(watcher: Watcher, unsplit: Unsplit, images: list[Any]) -> None:
    """Send images over and over until the server had a part in as many."""
    end, count = time.monotonic() + 3 * TIMEOUT, 0  # a book is made first
    while count < len(images):
        assert time.monotonic() < end, watcher.diagnostics
        count += checked(watcher, unsplit, images[count]).shared


def checked(watcher: Watcher, unsplit: Unsplit, image: Any) -> Any:
    """Send an image, compare what is said of it; return the figures of its inference."""
    number = watcher.publish(image)
    _, stats = watcher.answer(number)
    watcher.wait(lambda: number in watcher.said, f'what is said of image {number}')
    heard = watcher.said[number]
    assert_equal(heard, unsplit.message(heard.header, image))
    return stats
