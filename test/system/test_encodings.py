# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Planner, server and robot as processes over DDS: values cross encoded."""
from __future__ import annotations

from pathlib import Path
import time

import cv2
from node_processes import (
    DENSE,
    HEIGHT,
    nodes,
    Observer,
    own_domain,
    PATIENT,
    QUICK_PLANNER,
    relative_difference,
    TIMEOUT,
    unsplit,
    WIDTH,
)
import numpy as np
import pytest
import small_models

SLOW_LINK = {**QUICK_PLANNER, 'grid.low_mbps': 1.0, 'grid.high_mbps': 4.0}


def smooth(seed: int) -> np.ndarray:
    """Return pixels that are as smooth as a photograph's."""
    few = np.random.default_rng(seed).integers(0, 256, (5, 7, 3), np.uint8)
    return cv2.resize(few, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)


@pytest.mark.parametrize(('lossy', 'tolerance'), [
    ('none', 1e-4), pytest.param('fp16', 1e-2, marks=pytest.mark.slow)])
def test_values_cross_encoded(tmp_path: Path, lossy: str, tolerance: float) -> None:
    """Pixels cross as differences; nothing is rejected; both nodes say what crossed how."""
    example, model = tmp_path / 'example.png', small_models.dense()
    cv2.imwrite(str(example), smooth(0))
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as running:
        observer = Observer()
        try:
            running.start('planner_node', {**SLOW_LINK, 'lossy': lossy})
            running.start('offload_node', {'models': [DENSE]})
            running.start('inference_node', {
                'model': DENSE, **PATIENT, 'lossy': lossy, 'example': str(example)})
            assert observer.set_mode('offload')[0]
            observer.meet_robot(smooth(1))
            observer.wait(lambda: observer.link.connected and observer.link.predicted_rate > 0,
                          'a book and a measured link')
            shared, end = 0, time.monotonic() + TIMEOUT
            while shared < 3 and time.monotonic() < end:
                pixels = smooth(observer.sent)
                result, stats = observer.infer(pixels)
                assert relative_difference(result, unsplit(model, pixels)) <= tolerance
                assert stats.rejected == 0
                shared += stats.shared
            assert shared == 3
            assert 0 < stats.bytes_up < 0.8 * pixels.nbytes
            observer.wait(lambda: 'received_delta_bytes' in observer.status('offload_node')
                          and 'sent_delta_bytes' in observer.status('inference_node'),
                          'the counts of both nodes')
            counts = observer.status('offload_node')
            assert int(counts['received_delta_bytes']) < int(counts['received_delta_plain_bytes'])
            assert ('sent_fp16_bytes' in counts) == (lossy == 'fp16')
        finally:
            observer.close()
