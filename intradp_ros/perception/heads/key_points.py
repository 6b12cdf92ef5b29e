# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Key points of one body from heat maps: the hottest pixel of each."""
from __future__ import annotations

import numpy as np

from intradp_ros.perception.card import HeadCard
from intradp_ros.perception.heads.named_outputs import only, Outputs, read
from intradp_ros.perception.predictions import KeyPoints
from intradp_ros.perception.view import View


def key_points(outputs: Outputs, card: HeadCard, view: View) -> KeyPoints:
    """
    Return the key points that are sure enough, in a picture's pixels.

    Reads ``heat`` (or the first output), (1, points, h, w).

    :raises HeadError: if that has another form.
    """
    heat = read(outputs, only(outputs, 'heat'), 4)
    count, rows, columns = heat.shape
    places = heat.reshape(count, -1).argmax(1)
    scores = heat.reshape(count, -1)[np.arange(count), places]
    cells = np.stack((places % columns, places // columns), 1) + 0.5
    points = view.points_back(cells * np.array(view.target[::-1]) / (columns, rows))
    sure = np.flatnonzero(scores >= card.score_threshold)
    return KeyPoints(np.column_stack((points, scores))[sure], sure)
