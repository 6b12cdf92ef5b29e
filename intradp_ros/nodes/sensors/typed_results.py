# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What outputs say, published as typed messages: boxes, classes, label images, depth, points."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rclpy.publisher import Publisher
from rclpy.qos import qos_profile_sensor_data, QoSProfile
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import Header
import torch

from intradp_ros.nodes.common.lifecycle import CHANGEABLE, LATCHED, ManagedNode, RELIABLE
from intradp_ros.nodes.sensors.map_messages import CameraInfoError, colour_image
from intradp_ros.nodes.sensors.result_topics import topics_of
from intradp_ros.nodes.sensors.sensor_inputs import Scene
from intradp_ros.nodes.sensors.vision_messages import label_info_message, MISSING, vision_messages
from intradp_ros.perception.card import ModelCard
from intradp_ros.perception.decode import decode
from intradp_ros.perception.overlay import overlay
from intradp_ros.perception.predictions import Classes, Depth, Detections, Prediction

CAMERA_INFO, DEBUG_IMAGE = 'camera_info', '~/debug_image'


class TypedResults:
    """
    Publishes what a model's outputs say, by the head that its card names.

    Messages are made only for topics that somebody subscribes to; so is the
    picture of the answer, on ``~/debug_image``.  `finding` says what asked-for
    messages lack, empty if nothing.
    """

    def __init__(self, node: ManagedNode, card: ModelCard, like: Prediction, camera: str = '',
                 ) -> None:
        """Open the topics of answers of the kind of `like`, below the camera's name if given."""
        self._node, self._card, self._camera = node, card, CameraInfo()
        self._above = f'{camera}/' if camera else ''
        self.finding = ''
        self._vision = vision_messages()
        self._topics = topics_of(like, card, self._vision, lambda: self._camera)
        self._publishers = {name: self._open(topic.kind, f'{self._above}{name}')
                            for name, topic in self._topics.items()}
        self._pictures = self._open(Image, DEBUG_IMAGE.replace('~/', f'~/{self._above}'))
        if self._vision is None and isinstance(like, (Classes, Detections)):
            node.get_logger().warning(MISSING)
        if self._vision and card.labels and 'labels' in self._topics:
            first = int(isinstance(like, Detections))  # 0 is not an object; of a map, a class
            self._open(self._vision.LabelInfo, f'{self._above}label_info', LATCHED).publish(
                label_info_message(self._vision, Header(), card, first))
        if isinstance(like, Depth):
            self._listen_to_camera()

    def publish(self, header: Header, outputs: Mapping[str, torch.Tensor], scene: Scene) -> None:
        """
        Publish what the outputs of an inference say of its picture.

        :raises HeadError: if they do not fit the card's head.
        """
        wanted = [name for name, publisher in self._publishers.items() if _heard(publisher)]
        drawn = _heard(self._pictures)
        if not (wanted or drawn):
            return
        answer = decode(outputs, self._card.head, scene.view)
        assert answer is not None
        finding = ''
        for name in wanted:
            try:
                message = self._topics[name].make(header, answer)
            except CameraInfoError as error:
                finding = f'no {self._above}{name}: {error}'
                continue
            if message is not None:
                self._publishers[name].publish(message)
        self.finding = finding
        if drawn:
            self._pictures.publish(colour_image(header, overlay(scene.rgb, answer, self._card)))

    def _listen_to_camera(self) -> None:
        subscription = self._node.create_subscription(
            CameraInfo, f'{self._above}{CAMERA_INFO}', self._take_camera, qos_profile_sensor_data,
            qos_overriding_options=CHANGEABLE)
        self._node.until_cleanup.callback(self._node.destroy_subscription, subscription)

    def _take_camera(self, info: CameraInfo) -> None:
        self._camera = info

    def _open(self, kind: type, name: str, qos: QoSProfile = RELIABLE) -> Publisher[Any]:
        return self._node.publish_on(kind, name, qos, qos_overriding_options=CHANGEABLE)


def _heard(publisher: Publisher[Any]) -> bool:
    return publisher.get_subscription_count() > 0
