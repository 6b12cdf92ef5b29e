# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the demo of the pipeline says of a bag: right messages, wrong ones, and none."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rclpy.serialization import serialize_message
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray

from intradp_lab.cli.demo_pipeline import sureness
from intradp_lab.cli.pipeline_check import check, counts, equal, Network, said, summary
from intradp_ros.msg import InferenceStats
from intradp_ros.nodes.common.bags import BagWriter, read_bag
from intradp_ros.nodes.sensors.image_messages import rgb_to_image
from intradp_ros.nodes.sensors.map_messages import labels_image
from intradp_ros.nodes.sensors.vision_messages import detections_message, vision_messages
from intradp_ros.perception.card import HeadCard, InputCard, ModelCard
from intradp_ros.perception.predictions import Detections, LabelMap

CARD = ModelCard(input=InputCard('letterbox'), head=HeadCard('detections', 0.3, form='xywh'),
                 labels=('a', 'b', 'c'))
FINDER = Network('finder', 'small_models:detector', (64, 96), CARD, False, '/finder/detections',
                 'vision_msgs/msg/Detection2DArray')


def header(number: int) -> Header:
    made = Header(frame_id='camera')
    made.stamp.sec = number
    return made


def test_a_bag_is_compared_message_by_message(tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four pictures one is answered rightly, one by a moved box, one by nothing found."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    from intradp_lab.cli.pipeline_check import Unsplit
    unsplit = Unsplit(FINDER)
    bag = BagWriter(tmp_path / 'bag')
    images = bag.topic('/image', 'sensor_msgs/msg/Image')
    answers = bag.topic(FINDER.topic, FINDER.kind)
    figures = bag.topic('/finder/stats', 'intradp_ros/msg/InferenceStats')
    pixels = [np.random.default_rng(n).integers(0, 256, (50, 110, 3), dtype=np.uint8)
              for n in range(4)]
    for number, rgb in enumerate(pixels):
        image = rgb_to_image(rgb)
        image.header = header(number)
        images(number, serialize_message(image))
        found = unsplit.answer(rgb)
        assert isinstance(found, Detections) and len(found.boxes)
        if number == 1:
            found = replace(found, boxes=found.boxes + 0.5)
        message = Detection2DArray(header=header(number)) if number == 2 else detections_message(
            vision_messages(), header(number), found, CARD)
        if number != 3:
            answers(number, serialize_message(message))
        figures(number, serialize_message(InferenceStats(
            header=header(number), latency_ms=10.0 + number, extra_ms=1.0, shared=number < 2,
            by_rows=number == 1, alone_ms=22.0, compute_ms=0.1 if number == 0 else 5.0)))
    bag.close()
    heard = read_bag(tmp_path / 'bag')
    seen = check(FINDER, heard)
    assert [(s.answered, s.equal) for s in seen] == [
        (True, True), (True, False), (True, False), (False, False)]
    assert counts(seen) == {'frames': 4, 'lost': 1, 'equal': 1}
    row = summary(FINDER, seen, heard['/finder/stats'])
    assert (row['median_ms'], row['extra_ms']) == (11.5, 1.0)
    assert (row['shared'], row['divided'], row['by_rows']) == (2, 1, 1)
    assert row['gain'] == pytest.approx((22 / 10 + 22 / 11) / 2)  # of the shared ones
    assert row['type'] == FINDER.kind


@pytest.mark.parametrize('count', [3, 300])
def test_label_images_are_read_as_they_were_written(count: int) -> None:
    labels = np.arange(200).reshape(10, 20) % count
    card = ModelCard(labels=tuple(map(str, range(count))))
    message = labels_image(Header(), labels, card)
    assert message.encoding == ('mono8' if count < 256 else '16UC1')
    heard = said(message, card)
    assert equal(heard, LabelMap(labels))
    other = labels.copy()
    other[0] = 1 + other[0]
    assert not equal(heard, LabelMap(other)) and not equal(heard, LabelMap(labels[:5]))


def test_boxes_may_differ_by_rounding_only() -> None:
    found = Detections(np.array([[0.0, 0, 9, 9]]), np.array([0.5]), np.array([1]))
    assert equal(found, replace(found, boxes=found.boxes + 0.04))
    for other in (replace(found, boxes=found.boxes + 0.06), replace(found, scores=np.ones(1)),
                  replace(found, classes=np.array([0])),
                  replace(found, boxes=found.boxes * np.nan),
                  Detections(np.empty((0, 4)), np.empty(0), np.empty(0, int))):
        assert not equal(found, other)


def test_rounding_may_change_the_order_and_what_is_at_the_threshold() -> None:
    """Two objects of equal scores come in either order; one at the threshold is there or not."""
    boxes = np.array([[0.0, 0, 9, 9], [20, 20, 40, 40], [50, 50, 60, 60]])
    found = Detections(boxes, np.array([0.7001, 0.7, 0.3004]), np.array([1, 2, 0]))
    swapped = Detections(boxes[[1, 0, 2]], np.array([0.7002, 0.7, 0.3]), np.array([2, 1, 0]))
    without = Detections(boxes[:2], found.scores[:2], found.classes[:2])
    twice = Detections(boxes[[0, 0, 1]], np.array([0.7, 0.7, 0.7]), np.array([1, 1, 2]))
    assert equal(found, swapped, 0.3)
    assert equal(found, without, 0.3) and equal(without, found, 0.3)
    assert not equal(found, without, 0.29) and not equal(without, found, 0.29)
    assert not equal(without, twice, 0.3) and not equal(twice, without, 0.3)
    assert sureness(without) > sureness(found) > sureness(LabelMap(np.zeros((2, 2))))
