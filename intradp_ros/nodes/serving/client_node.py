# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A robot's node that computes nothing: images or points in, answers of gateways out."""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
import time
from typing import Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.parameter import Parameter as RclParameter
from rclpy.qos import qos_profile_sensor_data
from std_msgs.msg import String

from intradp_ros.nodes.common.device_parameter import DEVICE
from intradp_ros.nodes.common.diagnostics import SaidOnce, Status
from intradp_ros.nodes.common.key_parameter import key_of
from intradp_ros.nodes.common.lifecycle import CHANGEABLE, ManagedNode, RELIABLE, run_node
from intradp_ros.nodes.common.prometheus import Figure, Total
from intradp_ros.nodes.common.qos_mismatch import of_speakers
from intradp_ros.nodes.common.receiving import Receiver
from intradp_ros.nodes.sensors.answer_publisher import AnswerPublisher
from intradp_ros.nodes.sensors.intake import Intake, intake_for
from intradp_ros.nodes.sensors.perception import card_of, region_of
from intradp_ros.nodes.sensors.sensor_inputs import Camera, UNUSABLE
from intradp_ros.nodes.serving.client_parameters import CLIENT_PARAMETERS, GATEWAYS, STAMP
from intradp_ros.nodes.serving.frame_order import Frame, FrameOrder
from intradp_ros.nodes.serving.gateway_way import GatewayWay, open_way
from intradp_ros.nodes.serving.served_model import OwnModel, served_model, ServedModel
from intradp_ros.perception.card import ModelCard
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.runtime.requests.infer_requests import (
    DEADLY,
    InferEnd,
    InferFate,
    InferRequest,
)
from intradp_ros.runtime.requests.outcome import InferenceStats, Outcome
from intradp_ros.runtime.requests.worker_thread import Worker

#: Seconds between looks at gateways; frames that wait where all are kept.
LOOK, ALL = 0.05, 64
#: Ends that wait to be published: more frames than may be in flight.
MOST_ENDS = 4096
#: Characters of a message that names gateways.
MOST_NAMES = 4096
SERVED, OWN = 'served', 'own'
_NO_MODEL = 'builtins:none'  # of which there is no card


class ClientNode(ManagedNode):
    """
    Subscribes `image` or `points`, asks gateways, publishes `result` and what it says.

    Frames end in their order, each at most once: with the answer of a gateway; where none gives
    one, with that of the robot's own model; or with no result.
    """

    PARAMETERS = CLIENT_PARAMETERS

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('client_node', **kwargs)
        self._receiver = Receiver(self)
        self._troubles = SaidOnce(self.warn)
        self._way: GatewayWay | None = None
        self._served: ServedModel | None = None
        self._intake: Intake | None = None
        self._frames: Worker[Any] | None = None
        self._dropped = 0
        self._last_ms: float | None = None
        self._why = ''
        self._first: tuple[str, ...] = ()
        self.add_on_set_parameters_callback(self._change)

    def setup(self, parameters: dict[str, Any]) -> None:
        """Load the own model, and look for gateways."""
        prepare_process(parameters['threads'])
        self._settings = given = parameters
        self._key = key_of(given, self.warn)
        # a stranger must not choose who hears the key, or that nobody with one is asked
        self._first = self._first or tuple(filter(None, given[GATEWAYS.name]))
        self._named(given[GATEWAYS.name])
        self._own = OwnModel(given['model'], given[DEVICE.name]) if given['model'] else None
        self._card = card_of({**given, 'model': given['model'] or _NO_MODEL})
        self._region = region_of(given['roi'])
        self._ends = Worker(self._deliver, self._failed, MOST_ENDS, 'answers')
        self.until_cleanup.callback(self._ends.close)
        self._order = FrameOrder(given['max_inflight'], self._ends.put)
        self._served, self._intake = None, None
        if self._own:
            self._open_topics(served_model(self._own.specs))
        way = self._way = open_way(self, given, self._key)
        self.until_cleanup.callback(self._close_way, way)
        named = self._receiver.subscribe(String, '~/gateways', self._hear_gateways, RELIABLE,
                                         'gateways', MOST_NAMES)
        self.until_cleanup.callback(self.destroy_subscription, named)
        self.call_every(LOOK, self._look, self.until_cleanup)
        self.diagnose(self._status)

    def start(self) -> None:
        """Take what the sensor gives, as soon as it is known what the service takes."""
        given = self._settings
        self._frames = Worker(self._process, self._failed,
                              ALL if given['keep'] == 'all' else 1, 'frames')
        self.until_deactivated.callback(self._stop, self._frames)
        self._subscribed = False
        self._look()
        self.info(f'service {given["service"]} of {", ".join(given["gateways"])}; without a '
                  f'gateway: {given["model"] or "no result"}')

    def _close_way(self, way: GatewayWay) -> None:
        self._way = None
        way.close()

    def _stop(self, frames: Worker[Any]) -> None:
        self._frames = None
        frames.close()
        self._dropped += frames.dropped

    def _open_topics(self, served: ServedModel) -> None:
        """Open what the answers go to; ValueError if the sensor does not fit the service."""
        self._intake = intake_for(served.model, self._settings,
                                  (self._card or ModelCard()).input, self._region)
        self._together = self._intake.together()
        self._answers = AnswerPublisher(self, self._intake, served.model, self._card)
        self._served = served

    def _look(self) -> None:
        """Look at gateways; begin when one says what the service takes."""
        way = self._way
        if way is None:
            return
        way.look()
        if self._served is None and way.specs and not self._why:
            try:
                self._open_topics(served_model(way.specs))
            except ValueError as error:
                self._why = f'{self._settings["service"]} does not fit: {error}'
        elif self._served and way.specs and way.specs != self._served.specs:
            self._why = (f'{self._settings["service"]} takes or gives other tensors than before, '
                         'or than the own model')
        if self._frames and self._intake and not self._subscribed:
            self._subscribe(self._intake)
        if self._own and not way.gateway:  # what nobody answers any more
            for frame in self._order.in_flight():
                if frame.withdraw:
                    frame.withdraw()

    def _subscribe(self, intake: Intake) -> None:
        self._subscribed = True
        sensor = intake.sensor
        compressed = isinstance(sensor, Camera) and sensor.compressed
        for number, topic in enumerate(intake.topics):
            source = f'{self.resolve_topic_name(topic)}/compressed' if compressed else topic
            taken = self._receiver.subscribe(
                sensor.kind, source, partial(self._take_input, number), qos_profile_sensor_data,
                sensor.topic, qos_overriding_options=CHANGEABLE,
                event_callbacks=of_speakers(self.resolve_topic_name(source), self.mismatched))
            self.until_deactivated.callback(self.destroy_subscription, taken)

    def _take_input(self, number: int, message: Any) -> None:
        assert self._intake is not None
        stamp = message.header.stamp
        stamped = stamp.sec + stamp.nanosec * 1e-9
        messages = self._together.take(number, stamped, message) if self._intake.cameras \
            else (message,)
        if self._frames is not None and messages:
            now = time.monotonic()
            age = self.get_clock().now().nanoseconds * 1e-9 - stamped \
                if stamped and self._settings['frame_age'] == STAMP else 0.0
            self._frames.put((messages, now, now - max(0.0, age)
                              + self._settings['deadline_ms'] / 1e3))

    def _process(self, taken: tuple[Sequence[Any], float, float]) -> None:
        """Ask for a frame, on the thread of frames, and wait until another may be asked for."""
        messages, began, deadline = taken
        assert self._intake and self._served and self._way
        inputs, scenes = self._intake.inputs(messages)
        frame = Frame([message.header for message in messages], scenes,
                      self._served.request(inputs), began, deadline)
        self._order.begin(frame)
        left, ended = deadline - time.monotonic(), partial(self._order.end, frame)
        if left <= 0:
            ended(InferEnd(InferFate.LATE, f'the frame is {-1e3 * left:.0f} ms older than '
                           'deadline_ms: is its stamp of another clock (parameter frame_age)?'))
        elif self._own and not self._way.gateway:
            ended(InferEnd(InferFate.REFUSED, 'no gateway answers'))
        else:
            frame.withdraw = self._way.submit(InferRequest(
                self._settings['service'], frame.tensors, left, self._settings['priority']),
                ended)
        while self._frames is not None and not self._order.wait_for_room(LOOK):
            pass

    def _deliver(self, frame: Frame) -> None:
        """Publish what a frame came to, on the thread of answers, in the order of frames."""
        end, served = frame.end, self._served
        assert end is not None and served is not None
        tensors, strategy, compute = end.tensors, SERVED, 0.0
        if end.fate is not InferFate.IN_TIME:
            deadly = end.reason.startswith(DEADLY)
            self._troubles.report([f'no answer of a gateway: {_without_numbers(end.reason)}' + (
                '; nor does the own model compute it' if deadly and self._own else '')])
            if self._own is None or deadly or time.monotonic() > frame.deadline:
                return
            since = time.monotonic()
            tensors, strategy = self._own.run(frame.tensors), OWN
            compute = time.monotonic() - since
        outputs = served.outputs(tensors)
        now = time.monotonic()
        if now > frame.deadline:
            self._order.counts['too_late_to_publish'] += 1
            return
        if strategy == SERVED:
            self._troubles.report(())
        self._order.counts[f'results_{strategy}'] += 1
        self._last_ms = 1e3 * (now - frame.began)
        outcome = Outcome(outputs, InferenceStats(
            frame.number, strategy, 0, strategy == SERVED, False, end.reason, now - frame.began,
            end.predicted if strategy == SERVED else 0.0, compute,
            now - frame.began - compute, sum(t.nbytes for t in frame.tensors.values()),
            sum(t.nbytes for t in tensors.values()) if strategy == SERVED else 0, 0.0), ())
        self._answers.publish(frame.headers, frame.scenes, outcome, lambda _: ())
        self._answers.publish_stats(frame.headers[0], outcome, self._receiver.rejections.total,
                                    time.monotonic() - now)

    def _failed(self, error: Exception) -> None:
        sensor = self._intake.sensor.topic if self._intake else 'frame'
        self._receiver.reject(sensor if isinstance(error, UNUSABLE) else 'answer',
                              f'{type(error).__name__}: {error}')

    def _change(self, parameters: Sequence[RclParameter[Any]]) -> SetParametersResult:
        """Take other gateways while the node runs."""
        for parameter in parameters:
            if parameter.name == GATEWAYS.name and self._first:
                try:
                    self._move(list(parameter.value))
                except ValueError as error:
                    return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _hear_gateways(self, message: String) -> None:
        self._move([name.strip() for name in message.data.split(',')])

    def _move(self, names: Sequence[str]) -> None:
        named = self._named(names)
        if self._way is not None:
            self._way.move(named)

    def _named(self, names: Sequence[str]) -> list[str]:
        """
        Return the gateways to ask; with a key these are the first ones, in another order.

        :raises ValueError: if there are none, or others than those and this node has a key.
        """
        named = [name for name in names if name]
        if not named:
            raise ValueError('gateways: name at least one')
        if self._settings['key_file'] or self._settings['api_key']:
            if others := sorted(set(named) - set(self._first)):
                raise ValueError(f'{", ".join(others):.200}: a robot with a key asks only '
                                 'gateways that its parameter gateways names at the start')
            named += [name for name in self._first if name not in named]
        return named

    def _status(self) -> Status | None:
        """Return what diagnostics say."""
        way = self._way
        if way is None:
            return None
        gateway, counts = way.gateway, self._order.counts
        message = f'asking {gateway}' if gateway else 'no gateway answers: ' + (
            'the own model does' if self._own else 'holding, no results')
        dropped = self._dropped + (self._frames.dropped if self._frames else 0)
        return Status('; '.join(filter(None, (
            message, self._why, way.trouble, '' if self._frames else 'inactive'))), {
                'gateway': gateway, 'service': self._settings['service'],
                'processing_time_ms': 'n/a' if self._last_ms is None else Figure(
                    self._last_ms, '.1f'),
                **{f'frames_{fate.value}': Total(counts[fate.value]) for fate in InferFate},
                **{name: Total(counts[name]) for name in (
                    f'results_{SERVED}', f'results_{OWN}', 'too_late_to_publish')},
                **{name: Total(count) for name, count in way.counts.items()},
                'frames_dropped': Total(dropped), 'last_rejection': self._receiver.last,
                'authenticated': self._key is not None},
            {**self._receiver.rejections.by_cause(), **{
                f'of_gateways_{cause}': count for cause, count in way.rejected.items()}},
            bool(gateway) and not self._why and not way.trouble)


def _without_numbers(text: str) -> str:
    """Return a text without what counts in it goes on: two of one cause are equal."""
    return ''.join(letter for letter in text if not letter.isdigit())


def main(args: list[str] | None = None) -> None:
    """Run the client node."""
    run_node(ClientNode, args)


if __name__ == '__main__':
    main()
