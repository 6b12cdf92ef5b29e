# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Cameras and listeners whose quality of service does not fit are reported at both ends."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from node_processes import DENSE, LATCHED, nodes, Observer, own_domain, PATIENT, picture
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image

from intradp_ros.msg import InferenceResult, SharingEvent
from intradp_ros.nodes.sensors.image_messages import rgb_to_image

RELIABLE = {'qos_overrides./image.subscription.reliability': 'reliable'}


class Stranger(Observer):
    """A camera without a guarantee, and a listener who wants results of before it came."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.events: dict[str, str] = {}
        self.heard: list[InferenceResult] = []
        self.camera = self.node.create_publisher(
            Image, 'image', QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT),
            event_callbacks=PublisherEventCallbacks(
                incompatible_qos=lambda event: self._see('camera')))
        self.node.create_subscription(
            InferenceResult, 'result', self.heard.append, LATCHED,
            event_callbacks=SubscriptionEventCallbacks(
                incompatible_qos=lambda event: self._see('listener')))
        self.node.create_subscription(SharingEvent, 'inference_node/events', self._tell, LATCHED)

    def _see(self, what: str) -> None:
        with self.changed:
            self.seen.append(what)
            self.changed.notify_all()

    def _tell(self, event: Any) -> None:
        with self.changed:
            if event.kind == 'mismatch':
                self.events[event.text.split()[1]] = event.text
            self.changed.notify_all()


def test_what_does_not_fit_is_reported_at_both_ends_and_the_rest_goes_on(tmp_path: Path) -> None:
    """Where nothing was said, a camera would just not be seen."""
    with own_domain(tmp_path), nodes(tmp_path) as running:
        robot = running.start('inference_node', {'model': DENSE, **PATIENT, **RELIABLE})
        observer = Stranger()
        observer.wait(lambda: {'camera', 'listener'} <= {*observer.seen}, 'events at this end')
        observer.wait(lambda: {'publisher', 'subscription'} <= observer.events.keys(),
                      'events at the other end')
        assert '/image' in observer.events['publisher']
        assert 'reliability' in observer.events['publisher']
        assert '/result' in observer.events['subscription']
        assert 'durability' in observer.events['subscription']
        robot.wait_for_line('offers less than is wanted: no message passes', 60.0)
        robot.wait_for_line('wants more than is offered: no message passes', 60.0)
        observer.camera.publish(rgb_to_image(picture(1)))
        observer.meet_robot(picture(0))  # by the publisher that fits
        assert not observer.heard and observer.results
        observer.close()
