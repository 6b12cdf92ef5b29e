# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The likeliest classes of a whole picture."""
from __future__ import annotations

import numpy as np

from intradp_ros.perception.card import HeadCard
from intradp_ros.perception.heads.named_outputs import only, Outputs, read
from intradp_ros.perception.heads.softmax import softmax
from intradp_ros.perception.predictions import Classes
from intradp_ros.perception.view import View


def classification(outputs: Outputs, card: HeadCard, view: View) -> Classes:
    """
    Return the likeliest classes that are sure enough.

    Reads ``scores`` (or the first output), (1, classes).

    :raises HeadError: if that has another form.
    """
    scores = read(outputs, only(outputs, 'scores'), 2).astype(np.float64)
    if card.softmax:  # of one label, logits are those of yes against no
        scores = softmax(scores) if len(scores) > 1 else 1 / (1 + np.exp(-scores))
    best = np.argsort(-scores, kind='stable')[:card.max_detections]
    best = best[scores[best] >= card.score_threshold]
    return Classes(best, scores[best])
