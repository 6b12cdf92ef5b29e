# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The robot's node: images in, results out, shared with the server where that pays."""
from __future__ import annotations

from collections.abc import Sequence
import queue
import threading
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rcl_interfaces.msg import SetParametersResult
from rclpy.parameter import Parameter as RclParameter
from rclpy.qos import qos_profile_sensor_data, QoSProfile
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import Image
import torch
from torch.utils import _pytree as pytree

from intradp_ros.dds.channel import DdsChannel
from intradp_ros.execution.catalogue import example_inputs, ModelSpec
from intradp_ros.execution.outcome import Outcome
from intradp_ros.execution.patience import PatiencePolicy
from intradp_ros.execution.robot import RobotClient
from intradp_ros.link.predictor import make_predictor, PREDICTORS
from intradp_ros.msg import (
    InferenceResult,
    InferenceStats,
    InferenceTimeline,
    LinkState,
    OperatorProfile,
    Tensor,
)
from intradp_ros.msg import ScheduleBook as ScheduleBookMessage
from intradp_ros.nodes.diagnostics import diagnostics
from intradp_ros.nodes.images import as_map, ImageError, to_array, to_image, to_input, to_rgb
from intradp_ros.nodes.lifecycle import LATCHED, ManagedNode, run_node
from intradp_ros.nodes.parameters import Parameter
from intradp_ros.nodes.profiles import BOOK_TOPIC, profile_message, profile_model, PROFILE_TOPIC
from intradp_ros.planning.baselines import CUT, LOCAL, LOSS, OFFLOAD
from intradp_ros.planning.book import ScheduleBook
from intradp_ros.profiling.device import prepare_process
from intradp_ros.wire.dtypes import encode_dtype
from intradp_ros.wire.frames import Stamp

MODES = {'shared': LOSS, 'local': LOCAL, 'offload': OFFLOAD, 'cut': CUT}
MODE = Parameter('mode', 'shared', 'How inferences run; may be changed at any time.',
                 choices=tuple(MODES), read_only=False)


class InferenceNode(ManagedNode):
    """
    Subscribes `image`; publishes `result`, `result_image` for a dense output, `~/stats`, `~/link`.

    Every image that the node takes is answered, whatever the server does.
    When images come faster than they can be processed, the oldest waiting
    ones make room, as with any camera driver, and are counted.
    """

    PARAMETERS = (
        Parameter('model', 'intradp_ros.zoo.hed:hed 1x3x160x384 uint8',
                  'The model: "package.module:factory shape dtype" or an archive path.'),
        Parameter('server', 'offload', 'Name of the server to share with.'),
        MODE,
        Parameter('axis', -1, 'Split axis of the input; -1 takes the longer spatial one.', -1, 4),
        Parameter('predictor', 'cautious', 'How the bandwidth is predicted.',
                  choices=tuple(PREDICTORS)),
        Parameter('deadline_ms', 0.0, 'Finish alone after this time; 0 for no deadline.',
                  0.0, 60000.0),
        Parameter('server_timeout_ms', 300.0,
                  'Finish alone when nothing was heard from the server for this long.',
                  20.0, 10000.0),
        Parameter('queue_size', 1, 'Images that may wait.', 1, 1000),
        Parameter('threads', 1, 'CPU threads for operators.', 1, 256),
        Parameter('chunk_bytes', 15000, 'Payload bytes of one chunk.', 1024, 61440),
        Parameter('max_allowed_processing_time_ms', 1000.0,
                  'Diagnostics warn when an inference takes longer.', 0.0, 60000.0),
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('inference_node', **kwargs)
        self.client: RobotClient | None = None
        self._images: queue.Queue[Image | None] = queue.Queue()
        self._worker: threading.Thread | None = None
        self._closing: list[Any] = []
        self._mode = MODE.default
        self._dropped = self._bad_images = 0
        self._last_ms: float | None = None
        self.add_on_set_parameters_callback(self._set_mode)

    def setup(self, parameters: dict[str, Any]) -> None:
        """Load and profile the model, connect, and subscribe."""
        prepare_process(parameters['threads'])
        spec = ModelSpec.parse(parameters['model'])
        model = spec.load(parameters['axis'] if parameters['axis'] >= 0 else None)
        graph = model.split.graph
        shapes = [graph.values[v].shape for v in graph.inputs]
        if len(shapes) != 1 or len(shapes[0]) != 4 or shapes[0][:2] != (1, 3):
            raise ValueError(
                f'the model takes inputs {shapes}; this node feeds one image, so it must '
                f'be 1 x 3 x height x width (batch 1, RGB)')
        self._shape, self._dtype = shapes[0], graph.values[graph.inputs[0]].dtype
        self._limits = parameters
        self._open_topics()
        profile = profile_model(model, example_inputs(model), self.info)
        self._mode = parameters['mode']
        channel = DdsChannel(self.context, parameters['server'], 'robot',
                             namespace=self.get_namespace(),
                             chunk_bytes=parameters['chunk_bytes'])
        self.client = RobotClient(
            model, channel, make_predictor(parameters['predictor']), self.info,
            patience=PatiencePolicy(silence=parameters['server_timeout_ms'] / 1e3,
                                    deadline=parameters['deadline_ms'] / 1e3),
            power=profile.power)
        self._images = queue.Queue(parameters['queue_size'])
        self._worker = threading.Thread(target=self._work, name='inference', daemon=True)
        self._worker.start()
        self._profiles.publish(profile_message('robot', model, profile))

    def teardown(self) -> None:
        """Finish the image at hand, then close everything."""
        if self._worker:
            self._images.put(None)
            self._worker.join(timeout=10.0)
            self._worker = None
        if self.client:
            self.client.close()
            self.client = None
        while self._closing:
            self._closing.pop().destroy()

    def _open_topics(self) -> None:
        changeable = QoSOverridingOptions.with_default_policies()
        reliable = QoSProfile(depth=10)
        self._results = self.create_publisher(
            InferenceResult, 'result', reliable, qos_overriding_options=changeable)
        self._maps = self.create_publisher(
            Image, 'result_image', reliable, qos_overriding_options=changeable)
        self._stats = self.create_publisher(InferenceStats, '~/stats', reliable)
        self._timelines = self.create_publisher(InferenceTimeline, '~/timeline', reliable)
        self._links = self.create_publisher(LinkState, '~/link', reliable)
        self._diagnostics = self.create_publisher(DiagnosticArray, 'diagnostics', reliable)
        self._profiles = self.create_publisher(OperatorProfile, PROFILE_TOPIC, LATCHED)
        self._closing += [
            self._results, self._maps, self._stats, self._timelines, self._links,
            self._diagnostics,
            self._profiles,
            self.create_subscription(Image, 'image', self._take, qos_profile_sensor_data,
                                     qos_overriding_options=changeable),
            self.create_subscription(ScheduleBookMessage, BOOK_TOPIC, self._take_book, LATCHED),
            self.create_timer(0.5, self._report_link), self.create_timer(1.0, self._diagnose)]

    def _set_mode(self, parameters: Sequence[RclParameter[Any]]) -> SetParametersResult:
        for parameter in parameters:
            if parameter.name == MODE.name:
                try:
                    MODE.check_choice(parameter.value)
                except ValueError as error:
                    return SetParametersResult(successful=False, reason=str(error))
                self._mode = parameter.value
        return SetParametersResult(successful=True)

    def _take_book(self, message: ScheduleBookMessage) -> None:
        if self.client is None or message.digest != self.client.model.digest:
            return  # a book for another robot's model
        try:
            self.client.use_book(ScheduleBook.from_json(message.book))
        except ValueError as error:
            self.client.reject('book', str(error))

    def _take(self, image: Image) -> None:
        """Queue an image; the oldest waiting one makes room."""
        while True:
            try:
                return self._images.put_nowait(image)
            except queue.Full:
                try:
                    self._images.get_nowait()
                    self._dropped += 1
                except queue.Empty:
                    continue

    def _work(self) -> None:
        while (image := self._images.get()) is not None:
            try:
                self._process(image)
            except ImageError as error:
                self._bad_images += 1
                self.get_logger().error(f'image rejected: {error}', throttle_duration_sec=1.0)
            except Exception as error:  # one bad frame must not end the node
                self._bad_images += 1
                self.get_logger().error(f'inference failed: {type(error).__name__}: {error}',
                                        throttle_duration_sec=1.0)

    def _process(self, image: Image) -> None:
        assert self.client is not None
        stamp = Stamp(image.header.stamp.sec, image.header.stamp.nanosec, image.header.frame_id)
        tensor = to_input(to_rgb(image), self._shape, self._dtype)
        outcome = self.client.infer((tensor,), strategy=MODES[self._mode], stamp=stamp)
        self._last_ms = outcome.stats.latency * 1e3
        self._publish(image, outcome)

    def _publish(self, image: Image, outcome: Outcome) -> None:
        tensors = [t for t in pytree.tree_leaves(outcome.outputs) if isinstance(t, torch.Tensor)]
        result = InferenceResult(header=image.header, inference=outcome.stats.inference)
        result.outputs = [_tensor_message(f'output_{i}', t) for i, t in enumerate(tensors)]
        self._stats.publish(self._stats_message(image, outcome))
        self._results.publish(result)
        dense = as_map(tensors[0]) if tensors else None
        if dense is not None:
            message = to_image(dense)
            message.header = image.header
            self._maps.publish(message)
        if self._timelines.get_subscription_count():
            self._publish_timeline(image, outcome)

    def _publish_timeline(self, image: Image, outcome: Outcome) -> None:
        assert self.client is not None
        events = self.client.timeline(outcome)
        self._timelines.publish(InferenceTimeline(
            header=image.header, inference=outcome.stats.inference,
            lane=[e.lane for e in events], kind=[e.kind for e in events],
            name=[e.name for e in events], start=[e.start for e in events],
            stop=[e.stop for e in events]))

    def _stats_message(self, image: Image, outcome: Outcome) -> InferenceStats:
        assert self.client is not None
        s = outcome.stats
        return InferenceStats(
            header=image.header, inference=s.inference, strategy=s.strategy, schedule=s.schedule,
            shared=s.shared, recovered=s.recovered, latency_ms=s.latency * 1e3,
            predicted_ms=s.predicted * 1e3, compute_ms=s.compute * 1e3,
            waiting_ms=s.waiting * 1e3, bytes_up=s.bytes_up, bytes_down=s.bytes_down,
            energy_j=s.energy, rejected=self.client.rejections.total)

    def _report_link(self) -> None:
        if self.client is None:
            return
        report = self.client.channel.report()
        message = LinkState(
            up_rate=report.send_rate, down_rate=report.receive_rate,
            predicted_rate=self.client.predicted_rate, round_trip=report.round_trip,
            age=report.age, connected=self.client.connection.alive)
        message.header.stamp = self.get_clock().now().to_msg()
        self._links.publish(message)

    def _diagnose(self) -> None:
        if self.client is None:
            return
        connection = self.client.connection
        allowed = self._limits['max_allowed_processing_time_ms']
        in_range = self._last_ms is None or self._last_ms <= allowed
        level = DiagnosticStatus.OK if in_range else DiagnosticStatus.WARN
        self._diagnostics.publish(diagnostics(self, level, connection.state.value, {
            'processing_time_ms': 'n/a' if self._last_ms is None else f'{self._last_ms:.1f}',
            'is_processing_time_ms_in_expected_range': in_range,
            'refusal': connection.refusal, 'mode': self._mode,
            'images_dropped': self._dropped, 'images_rejected': self._bad_images,
            **{f'rejected_{c}': n for c, n in self.client.rejections.by_cause().items()}}))


def _tensor_message(name: str, tensor: torch.Tensor) -> Tensor:
    code, bits = encode_dtype(tensor.dtype)
    return Tensor(name=name, dtype_code=code, dtype_bits=bits, shape=list(tensor.shape),
                  data=to_array(tensor))


def main(args: list[str] | None = None) -> None:
    """Run the inference node."""
    run_node(InferenceNode, args)


if __name__ == '__main__':
    main()
