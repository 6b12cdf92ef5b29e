# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Answers as messages: on their topics, only where somebody listens, with what is needed."""
from __future__ import annotations

from collections.abc import Callable, Iterator
import sys
import time
from typing import Any

from builtin_interfaces.msg import Time
import numpy as np
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from std_msgs.msg import Header
import torch

from intradp_ros.nodes.lifecycle import ManagedNode
from intradp_ros.nodes.map_messages import depth_points, labels_image
from intradp_ros.nodes.points import to_points
from intradp_ros.nodes.sensor_inputs import Scene
from intradp_ros.nodes.typed_results import TypedResults
from intradp_ros.perception.card import HeadCard, ModelCard
from intradp_ros.perception.decode import decode
from intradp_ros.perception.view import place

vision = pytest.importorskip('vision_msgs.msg', reason='vision_msgs comes with ROS, not from PyPI')

SCENE = Scene(np.full((24, 32, 3), 90, np.uint8), place((24, 32), (24, 32), 'stretch'))
HEADER = Header(frame_id='camera', stamp=Time(sec=7))
LATCHED = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
BOXES = {'boxes': torch.tensor([[[2.0, 4, 12, 20], [5, 5, 30, 9]]]),
         'scores': torch.tensor([[0.9, 0.6]]), 'classes': torch.tensor([[1, 7]])}
MASKS = BOXES | {'weights': torch.ones(1, 2, 1), 'masks': torch.ones(1, 1, 12, 16)}
POSES = BOXES | {'points': torch.tensor([[[3.0, 5, 0.8, 9, 9, 0.2], [3, 5, 0.8, 9, 9, 0.2]]])}


class Pair:
    """A node that publishes answers, and one that listens."""

    def __init__(self, context: rclpy.Context) -> None:
        self.node = ManagedNode('talker', context=context)
        self.listener = rclpy.create_node('listener', context=context)
        self.heard: dict[str, Any] = {}
        self._executor = SingleThreadedExecutor(context=context)
        self._executor.add_node(self.listener)
        self._executor.add_node(self.node)

    def listen(self, kind: type, topic: str, qos: QoSProfile | int = 10) -> None:
        self.listener.create_subscription(
            kind, topic, lambda message: self.heard.update({topic: message}), qos)

    def spin_until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end, f'waited in vain; heard {list(self.heard)}'
            self._executor.spin_once(0.05)

    def publish(self, card: ModelCard, outputs: dict[str, torch.Tensor],
                **topics: type) -> dict[str, Any]:
        """Publish an answer to listeners on topics (`__` stands for `/`); return what comes."""
        names = {name.replace('__', '/'): kind for name, kind in topics.items()}
        like = decode(outputs, card.head, SCENE.view)
        assert like is not None
        results = TypedResults(self.node, card, like)
        for name, kind in names.items():
            self.listen(kind, name)
        self.spin_until(lambda: all(self.listener.count_publishers(name) for name in names))
        end = time.monotonic() + 20
        while not set(names) <= set(self.heard):  # until each publisher has met its listener
            assert time.monotonic() < end, f'heard only {list(self.heard)}'
            results.publish(HEADER, outputs, SCENE)
            self._executor.spin_once(0.05)
        return self.heard

    def close(self) -> None:
        self._executor.shutdown()
        self.node.release()
        self.node.destroy_node()
        self.listener.destroy_node()


@pytest.fixture
def pair(context: rclpy.Context) -> Iterator[Pair]:
    pair = Pair(context)
    yield pair
    pair.close()


def pixels(message: Image) -> np.ndarray:
    kind = {'mono8': np.uint8, '16UC1': np.uint16, '32FC1': np.float32}[message.encoding]
    return np.frombuffer(message.data, kind).reshape(message.height, message.width)


def test_objects_with_masks(pair: Pair) -> None:
    """Boxes by name of class, two label images, and what their numbers mean, latched."""
    card = ModelCard(head=HeadCard('detections'), labels=('cat', 'dog'))
    pair.listen(vision.LabelInfo, 'label_info', LATCHED)
    heard = pair.publish(card, MASKS, detections=vision.Detection2DArray, labels=Image,
                         instances=Image)
    first, second = heard['detections'].detections
    assert heard['detections'].header == first.header == HEADER
    middle = first.bbox.center.position
    assert (middle.x, middle.y, first.bbox.size_x, first.bbox.size_y) == (7, 12, 10, 16)
    assert [d.results[0].hypothesis.class_id for d in (first, second)] == ['dog', '7']
    assert first.results[0].hypothesis.score == pytest.approx(0.9) and first.id == '1'
    assert heard['labels'].encoding == 'mono8' and heard['instances'].encoding == '16UC1'
    assert (pixels(heard['labels'])[4:20, 2:12] == 2).all()
    assert (pixels(heard['instances'])[4:20, 2:12] == 1).all()
    pair.spin_until(lambda: 'label_info' in heard)
    assert [(c.class_id, c.class_name) for c in heard['label_info'].class_map] == [
        (1, 'cat'), (2, 'dog')]


def test_bodies_with_key_points(pair: Pair) -> None:
    heard = pair.publish(ModelCard(head=HeadCard('detections', overlap=1.0)), POSES,
                         key_points=PointCloud2)
    cloud = heard['key_points']
    assert [field.name for field in cloud.fields] == [
        'x', 'y', 'z', 'score', 'point', 'instance']
    records = np.frombuffer(cloud.data, np.float32).reshape(-1, 6)
    assert records[:2, :2].tolist() == [[3, 5], [9, 9]]
    assert records.view(np.uint32)[:, 4:].tolist() == [[0, 1], [1, 1], [0, 2], [1, 2]]


def test_classes(pair: Pair) -> None:
    card = ModelCard(head=HeadCard('classification', softmax=True), labels=('a', 'b'))
    heard = pair.publish(card, {'scores': torch.tensor([[0.0, 4.0]])},
                         classification=vision.Classification)
    (result,) = heard['classification'].results
    assert (result.class_id, result.score) == ('b', pytest.approx(0.982, abs=1e-3))


def test_depth_with_its_camera_and_points(pair: Pair) -> None:
    info = CameraInfo(height=24, width=32, k=[20.0, 0, 16, 0, 20, 12, 0, 0, 1])
    cameras = pair.listener.create_publisher(CameraInfo, 'camera_info', 10)
    timer = pair.listener.create_timer(0.1, lambda: cameras.publish(info))
    heard = pair.publish(
        ModelCard(head=HeadCard('depth')), {'depth': torch.full((1, 1, 24, 32), 2.0)},
        depth__image=Image, depth__camera_info=CameraInfo, depth__points=PointCloud2)
    pair.listener.destroy_timer(timer)
    assert (pixels(heard['depth/image']) == 2).all()
    assert heard['depth/camera_info'].header == HEADER
    assert list(heard['depth/camera_info'].k) == list(info.k)
    points = to_points(heard['depth/points']).reshape(24, 32, 3)
    assert points[12, 16] == pytest.approx([0, 0, 2]) and points[0, 0] == pytest.approx(
        [-1.6, -1.2, 2])


def test_no_points_without_the_cameras_size() -> None:
    metres = np.ones((24, 32), np.float32)
    for k, width in (([0.0] * 9, 32), ([20.0, 0, 16, 0, 20, 12, 0, 0, 1], 31),
                     ([np.nan, 0, 16, 0, 20, 12, 0, 0, 1], 32)):
        assert depth_points(HEADER, metres, CameraInfo(height=24, width=width, k=k)) is None


def test_a_picture_only_for_those_who_look(pair: Pair) -> None:
    card = ModelCard(head=HeadCard('detections'))
    heard = pair.publish(card, BOXES, talker__debug_image=Image)
    drawn = np.frombuffer(heard['talker/debug_image'].data, np.uint8).reshape(24, 32, 3)
    assert heard['talker/debug_image'].encoding == 'rgb8' and (drawn != 90).any()


def test_labels_need_as_many_bits_as_there_are_classes() -> None:
    labels = np.array([[0, 300]])
    named = ModelCard(labels=('a', 'b'))
    assert labels_image(HEADER, labels.clip(0, 1), named).encoding == 'mono8'
    assert labels_image(HEADER, labels, named).encoding == '16UC1'
    assert labels_image(HEADER, labels.clip(0, 1), ModelCard()).encoding == '16UC1'


def test_without_vision_msgs_the_node_says_so(pair: Pair, monkeypatch: pytest.MonkeyPatch,
                                              capfd: pytest.CaptureFixture[str]) -> None:
    """What needs no other package is published all the same."""
    monkeypatch.setitem(sys.modules, 'vision_msgs.msg', None)
    heard = pair.publish(ModelCard(head=HeadCard('detections')), MASKS, labels=Image)
    assert 'labels' in heard and not pair.listener.count_publishers('detections')
    assert 'vision_msgs is not installed' in capfd.readouterr().err
