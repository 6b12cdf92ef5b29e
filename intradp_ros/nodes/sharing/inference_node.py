# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The robot's node: images or points in, results out, shared with the server where that pays."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
import math
from pathlib import Path
import time
from typing import Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.parameter import Parameter as RclParameter
from rclpy.qos import qos_profile_sensor_data
from std_msgs.msg import Header

from intradp_ros.dds.convert import MAX_FRAME_ID, MAX_NANOSECONDS
from intradp_ros.msg import LinkState
from intradp_ros.nodes.common.device_parameter import DEVICE
from intradp_ros.nodes.common.diagnostics import added, crossed, Status
from intradp_ros.nodes.common.key_parameter import key_of
from intradp_ros.nodes.common.lifecycle import CHANGEABLE, ManagedNode, RELIABLE, run_node
from intradp_ros.nodes.common.prometheus import Figure, Total
from intradp_ros.nodes.common.qos_mismatch import of_speakers
from intradp_ros.nodes.common.receiving import Receiver
from intradp_ros.nodes.common.silence import network_of
from intradp_ros.nodes.common.sole_publisher import SolePublisher
from intradp_ros.nodes.sensors.answer_publisher import AnswerPublisher
from intradp_ros.nodes.sensors.intake import intake_for
from intradp_ros.nodes.sensors.perception import card_of, region_of
from intradp_ros.nodes.sensors.sensor_inputs import Camera, Scene, UNUSABLE
from intradp_ros.nodes.sharing.inference_parameters import DEADLINE, INFERENCE_PARAMETERS, MODE
from intradp_ros.nodes.sharing.monitoring import Monitor
from intradp_ros.nodes.sharing.profile_publisher import (
    BOOK_TOPIC,
    profile_model,
    PROFILE_TOPIC,
)
from intradp_ros.nodes.sharing.robot_sharing import RobotSharing
from intradp_ros.nodes.sharing.robot_silence import RobotSilence
from intradp_ros.nodes.sharing.weight_loading import (
    initial_weights,
    trial,
    weight_bytes,
    WeightLoading,
    WEIGHTS_FOLDER,
)
from intradp_ros.perception.card import ModelCard
from intradp_ros.power.meter import EnergyMeter
from intradp_ros.profiling.cache import example_key
from intradp_ros.profiling.kept_memory import KeptMemory
from intradp_ros.profiling.machine import prepare_process, settle_process
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.weight_file import Weights
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.runtime.requests.worker_thread import Worker
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.srv import LoadWeights
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.strategies import LOCAL
from intradp_ros.wire.frames import Stamp


class InferenceNode(ManagedNode):
    """
    Subscribes `image` or `points`; publishes `result`, what it says, `~/stats`, `~/link`.

    Every message of the sensor that the node takes is answered, whatever the
    server does.  When they come faster than they can be processed, the oldest
    waiting ones make room, as with any camera driver, and are counted.  They
    are taken while the node is active; deactivating finishes the one at hand.
    """

    PARAMETERS = INFERENCE_PARAMETERS

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('inference_node', **kwargs)
        self._sharing: RobotSharing | None = None
        self._receiver = Receiver(self)
        self._sole = SolePublisher(self, 'diagnostics', PROFILE_TOPIC,
                                   f'{PROFILE_TOPIC}/answers', f'{BOOK_TOPIC}/questions')
        self._worker: Worker[Any] | None = None
        self._mode = MODE.default
        self._dropped = 0
        self._last_ms: float | None = None
        self.add_on_set_parameters_callback(self._change)

    @property
    def client(self) -> RobotClient | None:
        """Who shares the model in use; None before the node is configured."""
        return self._sharing.client if self._sharing else None

    @property
    def callback_threads(self) -> int:
        """Return 2 where weights are loaded meanwhile."""
        return 2 if self.get_parameter(WEIGHTS_FOLDER.name).value else 1

    def setup(self, parameters: dict[str, Any]) -> None:
        """Load and profile the model, and look for the server."""
        prepare_process(parameters['threads'])
        self._settings, self._mode = parameters, parameters['mode']
        self._silence = RobotSilence(self, parameters['model'], parameters['server'])
        self._key = key_of(parameters, self.warn)
        model = ModelSpec.parse(parameters['model']).load(
            parameters['axis'] if parameters['axis'] >= 0 else None,
            open_device(parameters[DEVICE.name]), initial_weights(parameters))
        card = card_of(parameters)
        self._intake = intake_for(model, parameters, (card or ModelCard()).input,
                                  region_of(parameters['roi']))
        self._together = self._intake.together()
        self._monitor = Monitor(self)
        self._links = self.publish_on(LinkState, '~/link', RELIABLE)
        self._answers = AnswerPublisher(self, self._intake, model, card)
        self._example = self._intake.example(parameters['example'], model)
        profile = profile_model(model, self._example, self.info, example_key(self._example))
        self._labels = card.labels if card else ()
        self._sharing = RobotSharing(self, self._receiver, parameters, self._key,
                                     model.tuned(profile.tuning), profile, self._example)
        if parameters[WEIGHTS_FOLDER.name]:
            WeightLoading(self, parameters[WEIGHTS_FOLDER.name],
                          lambda: weight_bytes(self.client.model) if self.client else 0.0,
                          self._load_weights, self._key)
        self.diagnose(self._status)

    def start(self) -> None:
        """Take what the sensor gives."""
        settle_process()
        self._memory = KeptMemory()
        self._worker = Worker(self._process, self._failed, self._settings['queue_size'])
        self.until_deactivated.callback(self._stop, self._worker)
        sensor = self._intake.sensor
        for number, source in enumerate(self._sources()):
            taken = self._receiver.subscribe(
                sensor.kind, source, partial(self._take_input, number),
                qos_profile_sensor_data, sensor.topic, qos_overriding_options=CHANGEABLE,
                event_callbacks=of_speakers(self.resolve_topic_name(source), self.mismatched))
            self.until_deactivated.callback(self.destroy_subscription, taken)
        self.call_every(0.5, self._report_link, self.until_deactivated)
        self.call_every(1.0, self._look_out, self.until_deactivated)
        self.info(self._described())

    def mismatched(self, text: str) -> None:
        """Report it to those, too, who watch this robot."""
        super().mismatched(text)
        self._monitor.mismatched(text)

    def _described(self) -> str:
        """Return what this node is set up for."""
        assert self.client is not None
        given, device = self._settings, self.client.model.split.device
        return (f'model {given["model"]} (digest {self.client.model.digest[:12]}), '
                f'server {given["server"]}, mode {self._mode}, '
                f'device {device.hardware or device.name}, from '
                f'{", ".join(map(self.resolve_topic_name, self._sources()))}, '
                f'{network_of(self)}')

    def _take_input(self, number: int, message: Any) -> None:
        self._silence.saw(number)
        stamp = message.header.stamp
        messages = self._together.take(number, stamp.sec + stamp.nanosec * 1e-9, message) \
            if self._intake.cameras else (message,)
        if self._worker is not None and messages:
            self._worker.put(messages)

    def _look_out(self) -> None:
        """Report what should be there and is not."""
        assert self._sharing is not None
        connection = self._sharing.client.connection
        if self._mode != LOCAL and connection.book is None:
            self._sharing.ask_for_book()
        self._silence.look(
            connection, self._sharing.channel.peers, self._sources(),
            sharing=self._mode != LOCAL,
            findings=[*self._intake.findings(), *self._answers.findings()])

    def _stop(self, worker: Worker[Any]) -> None:
        worker.close()
        if self._sharing is not None:
            self._sharing.wait()
        self._dropped += worker.dropped
        self._worker = None

    def _sources(self) -> list[str]:
        """Return the sensor's topics; of compressed images as image_transport names them."""
        sensor, topics = self._intake.sensor, self._intake.topics
        if isinstance(sensor, Camera) and sensor.compressed:
            return [f'{self.resolve_topic_name(topic)}/compressed' for topic in topics]
        return [*topics]

    def _load_weights(self, request: Any, pictures: Path | None, weights: Weights) -> Any:
        """Try weights, and use them from the next input on; on the thread of the service."""
        assert self._sharing is not None
        before = self._sharing.client.model
        model = ModelSpec.parse(self._settings['model']).load(
            before.split.axis, before.split.device, weights).tuned(before.tuning)
        if len(model.split.operators) != len(before.split.operators):
            raise ValueError('with these weights the model has other operators: restart the node '
                             'with them (parameter weights)')
        new, old = (math.nan, math.nan) if pictures is None else trial(
            model, before, pictures, self._labels,
            lambda path: self._intake.example(path, before), request.least_accuracy)
        text = 'these weights are in use already'
        if model.digest != before.digest:
            text = self._sharing.switch(model, replace(self._sharing.profile,
                                                       digest=model.digest))
        return LoadWeights.Response(success=True, message=text, digest=model.digest, accuracy=new,
                                    accuracy_before=old)

    def _change(self, parameters: Sequence[RclParameter[Any]]) -> SetParametersResult:
        """Take what may change while the node runs."""
        for parameter in parameters:
            if parameter.name == MODE.name:
                try:
                    MODE.check_choice(parameter.value)
                except ValueError as error:
                    return SetParametersResult(successful=False, reason=str(error))
                self._mode = parameter.value
            elif parameter.name == DEADLINE.name and self._sharing is not None:
                self._sharing.set_deadline(parameter.value / 1e3)
        return SetParametersResult(successful=True)

    def _process(self, messages: Sequence[Any]) -> None:
        """Begin the inference of an input, and wait until another may begin."""
        assert self._sharing is not None
        began = time.monotonic()
        inputs, scenes = self._intake.inputs(messages)
        headers = [message.header for message in messages]
        self._sharing.submit(inputs, partial(self._deliver, headers, began, scenes),
                             strategy=self._mode, stamp=_stamp(headers[0]))

    def _deliver(self, headers: Sequence[Header], began: float, scenes: Sequence[Scene],
                 future: Future[Outcome]) -> None:
        """Publish what an inference gave; called in the order of inputs."""
        try:
            self._report(headers, began, scenes, future.result())
        except Exception as error:  # noqa: B902 - those behind it are to be delivered
            self._failed(error)

    def _report(self, headers: Sequence[Header], began: float, scenes: Sequence[Scene],
              outcome: Outcome) -> None:
        assert self._sharing is not None
        self._last_ms = outcome.stats.latency * 1e3
        self._monitor.inferred(outcome.stats)
        self._answers.publish(headers, scenes, outcome, self._sharing.timeline)
        extra = time.monotonic() - began - outcome.stats.latency
        self._answers.publish_stats(headers[0], outcome, sum(self._rejected().values()), extra)
        self._memory.look(usual=not outcome.local_catch_up)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, UNUSABLE):
            self._receiver.reject(self._intake.sensor.topic, str(error))
        else:
            self._receiver.reject('inference', f'{type(error).__name__}: {error}')

    def _rejected(self) -> Mapping[str, int]:
        """Count what was rejected on the way from sensor and server, by cause."""
        assert self._sharing is not None
        return added(self._receiver.rejections.by_cause(), self._sharing.rejected())

    def _report_link(self) -> None:
        assert self.client is not None
        report = self.client.channel.report()
        message = LinkState(
            up_rate=report.send_rate, down_rate=report.receive_rate,
            predicted_rate=self.client.predicted_rate, round_trip=report.round_trip,
            age=report.age, connected=self.client.connection.alive)
        message.header.stamp = self.get_clock().now().to_msg()
        self._links.publish(message)
        self._monitor.look(self.client.connection, message.predicted_rate)

    def _status(self) -> Status:
        """Return what diagnostics say."""
        assert self.client is not None and self._sharing is not None
        connection = self.client.connection
        allowed = self._settings['max_allowed_processing_time_ms']
        in_range = self._last_ms is None or self._last_ms <= allowed
        dropped = self._dropped + (self._worker.dropped if self._worker else 0)
        others = self._sole.others()
        inactive = ['inactive'] if self._worker is None else []
        message = '; '.join([connection.state.value, *inactive, *self._silence.missing,
                             *self._silence.findings])
        return Status(message, {
            'processing_time_ms': 'n/a' if self._last_ms is None else Figure(
                self._last_ms, '.1f'),
            'is_processing_time_ms_in_expected_range': in_range,
            **crossed(self.client.sent, self.client.received),
            **_power(self.client.meter),
            **{name: Total(count) for name, count in self._monitor.counts.items()},
            'model_digest': self.client.model.digest[:12],
            'refusal': connection.refusal, 'last_rejection': self._receiver.last,
            'server_load': Figure(connection.clock.load, '.2f'), 'mode': self._mode,
            'inputs_dropped': Total(dropped), 'inputs_unmatched': Total(self._together.unmatched),
            'frames_of_other_sessions': Total(self._sharing.foreign),
            'servers_of_this_name': len(connection.servers),
            'other_publishers': others,
            'authenticated': self._key is not None}, self._rejected(),
            well=in_range and len(connection.servers) < 2 and not others
            and not self._silence.missing and not self._silence.findings)


def _stamp(header: Header) -> Stamp:
    """Return the stamp that chunks carry: what no server would take is cut off."""
    return Stamp(header.stamp.sec, min(header.stamp.nanosec, MAX_NANOSECONDS),
                 header.frame_id[:MAX_FRAME_ID])


def _power(meter: EnergyMeter | None) -> dict[str, Any]:
    """Return what the board drew in the last second, and which sensor says so."""
    now = time.monotonic()
    watts = meter.drawn(now - 1.0, now) if meter else None
    return {'power_w': 'n/a' if watts is None else Figure(watts, '.2f'),
            'power_sensor': meter.source if meter else 'none'}


def main(args: list[str] | None = None) -> None:
    """Run the inference node."""
    run_node(InferenceNode, args)


if __name__ == '__main__':
    main()
