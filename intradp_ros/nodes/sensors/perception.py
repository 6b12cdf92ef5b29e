# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The part of the inference node that knows its model's card: parameters, checks, names."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from intradp_ros.core.plain_file import check_file
from intradp_ros.graph.operator_graph import ParameterRef, ValueRef
from intradp_ros.graph.trees import rebuild_outputs
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.nodes.sensors.intake import Intake
from intradp_ros.nodes.sensors.sensor_inputs import Camera
from intradp_ros.perception.card import CardError, ModelCard, RESIZES
from intradp_ros.perception.card_sources import find_card
from intradp_ros.perception.decode import decode
from intradp_ros.perception.heads.named_outputs import named
from intradp_ros.perception.labels import parse_labels
from intradp_ros.perception.predictions import Prediction
from intradp_ros.perception.view import place, Region
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import SharedModel

TRANSPORTS = ('raw', 'compressed')
AS_THE_CARD_SAYS = 'card'
PERCEPTION = (
    Parameter('card', '', "The model's card, a JSON file; empty for what comes with the model.",
              check=check_file),
    Parameter('labels', '', 'Names of the classes: with commas between them, or a file of lines '
              '(.txt, .names); empty for those of the card.'),
    Parameter('score_threshold', -1.0, 'Detections and classes less sure than this are left out; '
              'below 0 as the card says.', -1.0, 1.0, formerly='score'),
    Parameter('resize', AS_THE_CARD_SAYS, "How images are brought into the input's form.",
              choices=(AS_THE_CARD_SAYS, *RESIZES), formerly='fit'),
    Parameter('roi', [0, 0, 0, 0], 'Region of the image that the model sees: left, top, width, '
              'height in pixels; all of it if the width is 0.'),
    Parameter('image_transport', 'raw', 'How images come: as sensor_msgs/Image, or compressed '
              'on the topic with /compressed behind it.', choices=TRANSPORTS),
)


def card_of(parameters: Mapping[str, Any]) -> ModelCard | None:
    """
    Return the card of the model that the parameters name, changed as they say.

    None if it has none, and they say nothing.

    :raises CardError: if the card, or what they say, cannot be.
    """
    found = find_card(ModelSpec.parse(parameters['model']), parameters['card'])
    card = found or ModelCard()
    if labels := parse_labels(parameters['labels']):
        card = replace(card, labels=labels)
    if (least := parameters['score_threshold']) >= 0:
        card = replace(card, head=replace(card.head, score_threshold=least))
    if parameters['resize'] != AS_THE_CARD_SAYS:
        card = replace(card, input=replace(card.input, resize=parameters['resize']))
    return card if found or card != ModelCard() else None


def region_of(numbers: Sequence[int]) -> Region | None:
    """Return the region of an image that four numbers name; None if its width is 0."""
    if len(numbers) != 4 or min(numbers) < 0:
        raise CardError(f'roi is left, top, width and height, got {list(numbers)}')
    left, top, width, height = numbers
    if not width:
        return None
    if not height:
        raise CardError('roi has a width but no height')
    return Region(left, top, width, height)


def warn_of_input(camera: Camera, card: ModelCard | None, warn: Callable[[str], object]) -> None:
    """Say what the model's numbers are taken to mean, where nothing says so."""
    if card is None and camera.dtype.is_floating_point:
        warn('the model takes floating-point numbers and has no card: it gets pixels in 0 to 1, '
             'stretched to its form. If it was trained with mean and std (as on ImageNet), '
             'results are wrong: say so in a card (parameter card), or make an archive of it that '
             'normalises inside (intradp model add)')


def first_answer(camera: Camera, card: ModelCard, model: SharedModel, intake: Intake,
                 ) -> Prediction | None:
    """
    Return what outputs of zeros say: shows beforehand that the head fits the model.

    Where there are several cameras, of the first.

    :raises HeadError: if the outputs do not fit the card's head.
    :raises CardError: if the card names another count of outputs.
    """
    graph = model.split.graph

    def empty(output: Any) -> Any:
        if isinstance(output, ValueRef):
            value = graph.values[output.value]
            return torch.zeros(value.shape, dtype=value.dtype)
        return graph.parameters[output.name].cpu() if isinstance(output, ParameterRef) else output

    outputs = intake.part(named(rebuild_outputs(
        graph, [empty(output) for output in graph.outputs]), card.outputs), 0)
    height, width = camera.shape[-2:]
    return decode(outputs, card.head, place((height, width), (height, width), 'stretch'))
