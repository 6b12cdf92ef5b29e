# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The topics on which a robot's node answers: tensors, a picture, what they say, figures."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from std_msgs.msg import Header

from intradp_ros.msg import InferenceResult, InferenceStats, InferenceTimeline
from intradp_ros.nodes.common.lifecycle import CHANGEABLE, ManagedNode, RELIABLE
from intradp_ros.nodes.sensors.intake import Intake
from intradp_ros.nodes.sensors.perception import first_answer, warn_of_input
from intradp_ros.nodes.sensors.result_messages import (
    result_message,
    stats_message,
    timeline_message,
)
from intradp_ros.nodes.sensors.sensor_inputs import Camera, Scene
from intradp_ros.nodes.sensors.typed_results import TypedResults
from intradp_ros.perception.card import ModelCard
from intradp_ros.perception.heads.named_outputs import named
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.runtime.transport.timeline import Event


class AnswerPublisher:
    """
    Publishes what inferences gave: `result`, a picture of it, typed messages, `~/stats`.

    Tensors and timelines are made into messages only where somebody subscribes.
    """

    def __init__(self, node: ManagedNode, intake: Intake, model: SharedModel,
                 card: ModelCard | None) -> None:
        self._node, self._intake, self._sensor = node, intake, intake.sensor
        self._results = node.publish_on(
            InferenceResult, 'result', RELIABLE, qos_overriding_options=CHANGEABLE)
        self._pictures = node.publish_on(
            self._sensor.shown_kind, f'result_{self._sensor.topic}', RELIABLE,
            qos_overriding_options=CHANGEABLE)
        self._stats = node.publish_on(InferenceStats, '~/stats', RELIABLE)
        self._timelines = node.publish_on(InferenceTimeline, '~/timeline', RELIABLE)
        self._output_names = card.outputs if card else ()
        self._typed = self._open_typed(model, card)

    def _open_typed(self, model: SharedModel, card: ModelCard | None) -> list[TypedResults]:
        """Open the topics of what the card says that the outputs mean, for each camera."""
        if not isinstance(self._sensor, Camera):
            return []
        warn_of_input(self._sensor, card, self._node.get_logger().warning)
        if self._intake.cameras and not self._intake.batched:
            return []  # what an output says of which camera nobody knows
        like = first_answer(self._sensor, card, model, self._intake) if card else None
        return [TypedResults(self._node, card, like, name)
                for name in self._intake.cameras or ('',)] if card and like else []

    def findings(self) -> list[str]:
        """Return what keeps messages that somebody listens for from being made."""
        return [typed.finding for typed in self._typed if typed.finding]

    def publish(self, headers: Sequence[Header], scenes: Sequence[Scene], outcome: Outcome,
                timeline: Callable[[Outcome], Sequence[Event]]) -> None:
        """Publish an answer to inputs of these headers and scenes."""
        inference, header = outcome.stats.inference, headers[0]
        tensors = named(outcome.outputs, self._output_names)
        for number, (typed, own, scene) in enumerate(zip(self._typed, headers, scenes)):
            typed.publish(own, self._intake.part(tensors, number), scene)
        if self._results.get_subscription_count():
            self._results.publish(result_message(header, inference, tensors))
        picture = self._sensor.shown(next(iter(tensors.values()))) if tensors else None
        if picture is not None:
            picture.header = header
            self._pictures.publish(picture)
        if self._timelines.get_subscription_count():
            self._timelines.publish(timeline_message(header, inference, timeline(outcome)))

    def publish_stats(self, header: Header, outcome: Outcome, rejected: int, extra: float,
                      ) -> None:
        """Publish the figures of an answer that took `extra` seconds besides the inference."""
        self._stats.publish(stats_message(header, outcome.stats, rejected, max(0.0, extra)))
