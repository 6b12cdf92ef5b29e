# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Stages in a device node: its catalogue, the role, and images that it requests inferences of."""
from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.msg import InferenceResult
from intradp_ros.nodes.common.device_parameter import DEVICE
from intradp_ros.nodes.common.diagnostics import crossed
from intradp_ros.nodes.common.lifecycle import CHANGEABLE, RELIABLE
from intradp_ros.nodes.common.prometheus import Total
from intradp_ros.nodes.common.receiving import Receiver
from intradp_ros.nodes.fleet.device_node import DeviceNode
from intradp_ros.nodes.sensors.result_messages import result_message
from intradp_ros.nodes.sensors.sensor_inputs import Camera
from intradp_ros.perception.card import InputCard
from intradp_ros.perception.heads.named_outputs import named
from intradp_ros.runtime.member.role import Host
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.pipeline.fleet_patience import FleetPatience
from intradp_ros.runtime.pipeline.fleet_result import FleetResult
from intradp_ros.runtime.pipeline.stage_role import StageRole
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.wire.frames import Stamp


class StageDevice:
    """
    Loads the catalogue; with `requests` it subscribes `image` and publishes `result`.

    :raises ValueError: if nothing could be run or fetched, or a model cannot be loaded.
    """

    def __init__(self, node: DeviceNode, given: Mapping[str, Any]) -> None:
        self._node, self._given = node, given
        self._receiver = Receiver(node)
        models = [node.load(text) for text in given['models'] if text]
        if not models and (given['requests'] or not node.fetches):
            raise ValueError('parameter models is empty: name at least one model, or let a device '
                             'that does not ask fetch what it needs (parameters fetch, key_file)')
        self.models: Mapping[str, SharedModel] = {model.digest: model for model in models}
        self._results = node.publish_on(InferenceResult, 'result', RELIABLE)

    def role(self, host: Host) -> StageRole:
        """Return the role; it asks the fleet for an inference of every image if it is to."""
        given = self._given
        self._role = StageRole(host, self.models, open_device(given[DEVICE.name]),
                               int(1e6 * given['memory_mb']))
        if given['requests']:
            model = next(iter(self.models.values()))
            inputs = model.split.graph.inputs
            value = model.split.graph.values[inputs[0]]
            if len(inputs) != 1 or len(value.shape) != 4 or value.shape[:2] != (1, 3):
                raise ValueError(f'the model takes {len(inputs)} inputs, the first {value.shape}: '
                                 'a device asks of models of one image, 1 x 3 x height x width')
            self._camera = Camera(value.shape, value.dtype, InputCard())
            self._role.ask(
                model, self._answered, inflight=given['max_inflight'], waiting=given['queue_size'],
                patience=FleetPatience(silence=given['silence_ms'] / 1e3))
            images = self._receiver.subscribe(
                Image, 'image', self._take_image, qos_profile_sensor_data, 'image',
                qos_overriding_options=CHANGEABLE)
            self._node.until_deactivated.callback(self._node.destroy_subscription, images)
        return self._role

    def weight_bytes(self, plan: PlanId) -> int:
        """Return the bytes of weights that the stages of a plan read here."""
        worker = self._role.worker
        return worker.programs(plan).parameter_bytes if plan in worker.held else 0

    def status(self) -> Mapping[str, Any]:
        """Return what was computed and what crossed."""
        worker, client = self._role.worker, self._role.client
        return {'inferences': Total(worker.finished),
                'stages_computing_s': Total(self._role.busy(), '.3f'),
                **crossed(worker.sent, worker.received),
                **(client.counts() if client else {}),
                'trouble': client.unavailable_reason() if client else ''}

    def rejected(self) -> Mapping[str, int]:
        """Return the images that were not taken, by cause."""
        return self._receiver.rejections.by_cause()

    def _take_image(self, message: Image) -> None:
        client, header = self._role.client, message.header
        if client:
            client.ask((self._camera.take(message).tensor,),
                       deadline=self._given['deadline_ms'] / 1e3 or math.inf,
                       stamp=Stamp(header.stamp.sec, header.stamp.nanosec, header.frame_id))

    def _answered(self, answer: FleetResult) -> None:
        header = Header(frame_id=answer.stamp.frame_id)
        header.stamp.sec, header.stamp.nanosec = answer.stamp.sec, answer.stamp.nanosec
        if answer.outputs is None:
            self._receiver.reject('dropped', f'inference {answer.inference}: {answer.reason}')
            return
        self._results.publish(result_message(header, answer.inference, named(answer.outputs, ())))
