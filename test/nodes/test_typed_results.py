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
from sensor_msgs.msg import CameraInfo, Image, PointCloud2, RegionOfInterest
from std_msgs.msg import Header
import torch

from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.sensors.map_messages import CameraInfoError, depth_points, labels_image
from intradp_ros.nodes.sensors.points import to_points
from intradp_ros.nodes.sensors.sensor_inputs import Scene
from intradp_ros.nodes.sensors.typed_results import TypedResults
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
        end = time.monotonic() + 60
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
        end = time.monotonic() + 60
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
    heard = pair.publish(ModelCard(head=HeadCard('detections', iou_threshold=1.0)), POSES,
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


K = [20.0, 0, 16, 0, 20, 12, 0, 0, 1]
P = [25.0, 0, 15, 0, 0, 30, 11, 0, 0, 0, 1, 0]


def points(info: CameraInfo, height: int = 24, width: int = 32) -> np.ndarray:
    metres = np.full((height, width), 2.0, np.float32)
    return to_points(depth_points(HEADER, metres, info)).reshape(height, width, 3)


def test_points_of_rectified_images_follow_P() -> None:
    """By K they would lie 0.36 m off at 2 m; K stands in where a driver leaves P zero."""
    found = points(CameraInfo(height=24, width=32, k=K, p=P))
    assert found[11, 15] == pytest.approx([0, 0, 2])
    assert found[0, 0] == pytest.approx([-15 / 25 * 2, -11 / 30 * 2, 2])
    assert points(CameraInfo(height=24, width=32, p=P))[0, 0] == pytest.approx(found[0, 0])
    assert points(CameraInfo(height=24, width=32, k=K))[12, 16] == pytest.approx([0, 0, 2])


@pytest.mark.parametrize(('binning', 'roi'), [
    ((2, 2), None), ((4, 2), None), ((0, 1), None), ((1, 1), (4, 6, 16, 20)),
    ((2, 2), (4, 6, 16, 20)), ((1, 1), (0, 0, 24, 32)), ((3, 3), None)])
def test_binning_and_region_as_image_geometry_has_them(
        binning: tuple[int, int], roi: tuple[int, int, int, int] | None) -> None:
    """The pixel (x, y) shows what (x * binning + left, y * binning + top) of the sensor does."""
    info = CameraInfo(height=24, width=32, k=K, p=P, binning_x=binning[0], binning_y=binning[1])
    top, left, tall, wide = roi or (0, 0, 24, 32)
    if roi:
        info.roi = RegionOfInterest(y_offset=top, x_offset=left, height=tall, width=wide)
    by_x, by_y = (max(1, n) for n in binning)
    found = points(info, tall // by_y, wide // by_x)
    whole = points(CameraInfo(height=24, width=32, p=P))[top:top + tall, left:left + wide]
    wanted = whole[::by_y, ::by_x][:tall // by_y, :wide // by_x]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize(('changes', 'says'), [
    ({'k': [0.0] * 9}, 'not calibrated'), ({'width': 31}, '31 x 24 .31 x 24., the images'),
    ({'k': [np.nan, *K[1:]]}, 'not finite'), ({'width': 0}, 'no camera_info'),
    ({'p': [-1.0, *P[1:]]}, 'not above 0'), ({'p': [*P[:5], 0.0, *P[6:]]}, 'not above 0'),
    ({'p': [np.inf, *P[1:]]}, 'P of camera_info has'),
    ({'binning_x': 4, 'binning_y': 4}, '8 x 6 .32 x 24, binning 4 x 4., the images have 32 x 24'),
    ({'roi': RegionOfInterest(height=10, width=12)}, 'region 12 x 10')])
def test_what_a_camera_info_lacks_is_said(changes: dict[str, Any], says: str) -> None:
    info = CameraInfo(height=24, width=32, k=K)
    for name, value in changes.items():
        setattr(info, name, value)
    with pytest.raises(CameraInfoError, match=says):
        depth_points(HEADER, np.ones((24, 32), np.float32), info)


def test_who_waits_for_points_can_learn_why_there_are_none(pair: Pair) -> None:
    """Everything else goes on; the finding goes when the camera's description comes."""
    card, outputs = ModelCard(head=HeadCard('depth')), {'depth': torch.full((1, 1, 24, 32), 2.0)}
    like = decode(outputs, card.head, SCENE.view)
    assert like is not None
    results = TypedResults(pair.node, card, like, 'front')
    pair.listen(PointCloud2, 'front/depth/points')
    pair.listen(Image, 'front/depth/image')

    def publish() -> bool:
        results.publish(HEADER, outputs, SCENE)
        return 'front/depth/image' in pair.heard and bool(results.finding)

    pair.spin_until(publish)
    assert results.finding == 'no front/depth/points: no camera_info of the image has come'
    cameras = pair.listener.create_publisher(CameraInfo, 'front/camera_info', 10)

    def known() -> bool:
        cameras.publish(CameraInfo(height=24, width=32, k=K))
        results.publish(HEADER, outputs, SCENE)
        return 'front/depth/points' in pair.heard

    pair.spin_until(known)
    assert not results.finding


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
