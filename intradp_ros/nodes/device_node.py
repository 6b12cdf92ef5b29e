# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The node of a machine in a fleet: offers it, takes stages of networks, and runs them."""
from __future__ import annotations

from collections.abc import Mapping
import math
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from intradp_ros.cluster.plan_id import NO_PLAN
from intradp_ros.dds.dds_peers import DdsPeers
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES, MAX_CHUNK_BYTES
from intradp_ros.msg import DeviceState, InferenceResult
from intradp_ros.nodes.device_parameter import DEVICE
from intradp_ros.nodes.diagnostics import added, crossed, Diagnostics
from intradp_ros.nodes.key_parameter import KEY_FILE, key_of
from intradp_ros.nodes.lifecycle import CHANGEABLE, LATCHED, ManagedNode, RELIABLE, run_node
from intradp_ros.nodes.parameters import Parameter
from intradp_ros.nodes.receiving import Receiver
from intradp_ros.nodes.result_messages import result_message
from intradp_ros.nodes.sensor_inputs import Camera
from intradp_ros.nodes.weight_parameters import WEIGHT_PARAMETERS, weight_policy
from intradp_ros.perception.card import InputCard
from intradp_ros.perception.heads.named_outputs import named
from intradp_ros.profiling.kept_memory import KeptMemory
from intradp_ros.profiling.machine import prepare_process, settle_process
from intradp_ros.runtime.catalogue import ModelSpec
from intradp_ros.runtime.member.fleet_member import Condition, FleetDevice
from intradp_ros.runtime.model import SharedModel
from intradp_ros.runtime.pipeline.answer import Answer
from intradp_ros.runtime.pipeline.fleet_patience import FleetPatience
from intradp_ros.runtime.pipeline.pipeline_client import PipelineClient
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.wire.frames import Stamp

#: Devices say here what they offer, below the name of their fleet.
DEVICES_TOPIC = 'devices'
FLEET = Parameter('fleet', 'fleet', 'Name of the fleet; the same on all its machines.')
_SUPPLY = Path('/sys/class/power_supply')


class DeviceNode(ManagedNode):
    """
    Takes part in the plans of a fleet's coordinator while it is active.

    Publishes `<fleet>/devices` (latched) and `diagnostics`.  With `asks` it
    is a device that asks for inferences: it subscribes `image` and publishes
    `result`.
    """

    PARAMETERS: tuple[Parameter, ...] = (
        FLEET,
        KEY_FILE,
        Parameter('device_name', 'device', 'Name of this machine, unique in its fleet.'),
        Parameter('coordinators', ['coordinator'], 'Names of the coordinators to listen to.'),
        Parameter('models', ['intradp_ros.lab.zoo.mobilenet_v2:mobilenet_v2 1x3x224x224 uint8'],
                  'Catalogue: "package.module:factory shape dtype" or archive paths. May be empty '
                  'where weights are fetched.'),
        *WEIGHT_PARAMETERS,
        Parameter('memory_mb', 0.0, 'Memory that plans may use, in 1e6 bytes; 0 for no limit.',
                  0.0, 1e7),
        Parameter('speed', 1.0, 'How many times as fast as the profile plans are made with.',
                  0.01, 1000.0),
        Parameter('asks', False, 'Ask for inferences of the first model, of images that come.'),
        Parameter('deadline_ms', 0.0, 'An image is of use for so long; 0 for ever.', 0.0,
                  60000.0),
        Parameter('queue_size', 4, 'Images that may wait; the late and the oldest make room.',
                  1, 1000),
        Parameter('under_way', 0, 'Inferences in the pipeline at most; 0 for two a stage.',
                  0, 60),
        Parameter('silence_ms', 600.0, 'Finish alone when a device was not heard for so long.',
                  100.0, 10000.0),
        DEVICE,
        Parameter('threads', 1, 'CPU threads for operators.', 1, 256),
        Parameter('chunk_bytes', LEAST_CHUNK_BYTES,
                  'Least payload bytes of a chunk; fast links get larger ones.', 1024,
                  MAX_CHUNK_BYTES),
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('device_node', **kwargs)
        self.device: FleetDevice | None = None
        self._receiver = Receiver(self)
        self._status = Diagnostics(self)

    def setup(self, parameters: dict[str, Any]) -> None:
        """Load the catalogue, and say what this machine offers."""
        prepare_process(parameters['threads'])
        self._settings = parameters
        self._key = key_of(parameters, self.warn)
        models = [self.load(text) for text in parameters['models'] if text]
        self._weights = weight_policy(parameters, self._key is not None,
                                      open_device(parameters[DEVICE.name]))
        if not models and (parameters['asks'] or self._weights.store is None):
            raise ValueError('parameter models is empty: name at least one model, or let a device '
                             'that does not ask fetch what it needs (parameters fetch, key_file)')
        self._models = {model.digest: model for model in models}
        self._states = self.publish_on(
            DeviceState, f'{parameters[FLEET.name]}/{DEVICES_TOPIC}', LATCHED)
        self._results = self.publish_on(InferenceResult, 'result', RELIABLE)
        self._diagnostics = self.publish_on(DiagnosticArray, 'diagnostics', 10)
        self.call_every(1.0, self._diagnose, self.until_cleanup)

    def load(self, text: str) -> SharedModel:
        """Load a model of the catalogue."""
        spec = ModelSpec.parse(text)
        model = spec.load(device=open_device(self._settings[DEVICE.name]))
        self.info(f'model {spec.source}: {len(model.split.operators)} operators, '
                  f'digest {model.digest[:12]}')
        return model

    def start(self) -> None:
        """Take part."""
        settle_process()
        self._memory = KeptMemory()
        given = self._settings
        channel = DdsPeers(self.context, given[FLEET.name], given['device_name'],
                           namespace=self.get_namespace(), chunk_bytes=given['chunk_bytes'],
                           key=self._key)
        self.until_deactivated.callback(channel.close)
        self.device = FleetDevice(
            channel, self._models, self.info, self._tell_state,
            coordinators=filter(None, given['coordinators']), condition=self._condition,
            weights=self._weights)
        self.until_deactivated.callback(self._stop, self.device)
        if given['asks']:
            self._ask(self.device, next(iter(self._models.values())))
        self._tell_state()

    def _condition(self) -> Condition:
        battery = battery_level()
        return Condition(self._settings['memory_mb'] * 1e6,
                         None if math.isnan(battery) else battery)

    def _ask(self, device: FleetDevice, model: SharedModel) -> None:
        """Ask the fleet for an inference of every image."""
        given, inputs = self._settings, model.split.graph.inputs
        value = model.split.graph.values[inputs[0]]
        if len(inputs) != 1 or len(value.shape) != 4 or value.shape[:2] != (1, 3):
            raise ValueError(f'the model takes {len(inputs)} inputs, the first {value.shape}: a '
                             'device asks of models of one image, 1 x 3 x height x width')
        self._camera = Camera(value.shape, value.dtype, InputCard())
        device.client = PipelineClient(
            device.channel, device.worker, model, self._answered,
            under_way=given['under_way'], waiting=given['queue_size'],
            patience=FleetPatience(silence=given['silence_ms'] / 1e3))
        images = self._receiver.subscribe(
            Image, 'image', self._take_image, qos_profile_sensor_data, 'image',
            qos_overriding_options=CHANGEABLE)
        self.until_deactivated.callback(self.destroy_subscription, images)

    def _stop(self, device: FleetDevice) -> None:
        self.device = None
        device.close()

    def _take_image(self, message: Image) -> None:
        device, header = self.device, message.header
        if device and device.client:
            allowed = self._settings['deadline_ms'] / 1e3 or math.inf
            device.client.ask(
                (self._camera.take(message).tensor,), deadline=allowed,
                stamp=Stamp(header.stamp.sec, header.stamp.nanosec, header.frame_id))

    def _answered(self, answer: Answer) -> None:
        header = Header(frame_id=answer.stamp.frame_id)
        header.stamp.sec, header.stamp.nanosec = answer.stamp.sec, answer.stamp.nanosec
        if answer.outputs is None:
            self._receiver.reject('dropped', f'inference {answer.inference}: {answer.reason}')
            return
        self._results.publish(result_message(header, answer.inference, named(answer.outputs, ())))

    def _tell_state(self) -> None:
        """Publish what this machine offers and does."""
        device, given = self.device, self._settings
        if device is None:
            return
        plan = device.committed
        message = DeviceState(
            name=given['device_name'], models=list(self._models), speed=given['speed'],
            memory_bytes=given['memory_mb'] * 1e6, threads=given['threads'],
            battery=battery_level(), term=plan.term, epoch=plan.epoch,
            weight_bytes=device.worker.programs(plan).parameter_bytes if plan > NO_PLAN else 0)
        message.header.stamp = self.get_clock().now().to_msg()
        self._states.publish(message)

    def _diagnose(self) -> None:
        device = self.device
        if device is None:
            self._diagnostics.publish(self._status.status('inactive', {}, {}))
            return
        self._memory.look()
        worker, client = device.worker, device.client
        trouble = client.trouble() if client else ''
        values: Mapping[str, Any] = {
            'plan': f'{device.committed.term:#x}.{device.committed.epoch}',
            'inferences': worker.finished, **crossed(worker.sent, worker.received),
            **(client.counts() if client else {}), 'trouble': trouble,
            'weight_bytes_served': device.weights.served,
            'authenticated': self._key is not None}
        rejected = added(worker.rejections.by_cause(), self._receiver.rejections.by_cause(),
                         *device.channel.rejected().values())
        self._diagnostics.publish(self._status.status(
            'taking part' if worker.held else 'waiting for a plan', values, rejected,
            well=not trouble))


def battery_level(folder: Path = _SUPPLY) -> float:
    """Return the charge of this machine's battery as a share, nan without one."""
    for path in sorted(folder.glob('*/capacity')):
        try:
            return float(path.read_text()) / 100
        except (OSError, ValueError):
            continue
    return math.nan


def main(args: list[str] | None = None) -> None:
    """Run the device node."""
    run_node(DeviceNode, args)


if __name__ == '__main__':
    main()
