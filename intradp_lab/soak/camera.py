# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The camera of a soak: ``python -m intradp_lab.soak.camera MODEL SECONDS REPORT``.

It publishes the next picture once the one before is answered, compares every
result with the unsplit model, and writes what it saw as one row for each
frame.  A frame without an answer within `LOST` seconds is lost.
"""
from __future__ import annotations

from dataclasses import astuple
import json
import math
from pathlib import Path
import sys
import time
from typing import Any

import numpy as np
import rclpy
from rclpy.node import Node
from sensor_msgs.msg import Image
import torch

from intradp_lab.soak.frame_row import FrameRow, LOST
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.serialise import load_graph
from intradp_ros.msg import InferenceResult, InferenceStats
from intradp_ros.nodes.sensors.image_messages import rgb_to_image, to_input
from intradp_ros.wire.dtypes import decode_dtype

#: Seconds that profiles and a book may take; after them the soak begins with a robot alone.
SETUP = 240.0
PICTURES = 16
_PAUSE = 0.03  # between an answer and the next frame


class Camera(Node):
    """Publishes pictures one after another and looks at the results."""

    def __init__(self, model: str) -> None:
        super().__init__('soak_camera')
        graph = load_graph(model)
        source = graph.values[graph.inputs[0]]
        random = np.random.default_rng(0)
        self.pictures = [random.integers(0, 256, (*source.shape[2:], 3), np.uint8)
                         for _ in range(PICTURES)]
        with torch.inference_mode():
            self.wanted = [run_graph(graph, [to_input(p, source.shape, source.dtype)])
                           for p in self.pictures]
        self.results: dict[int, InferenceResult] = {}
        self.stats: dict[int, InferenceStats] = {}
        self.images = self.create_publisher(Image, 'image', 10)
        self.create_subscription(InferenceResult, 'result',
                                 lambda m: self._keep(self.results, m), 10)
        self.create_subscription(InferenceStats, 'inference_node/stats',
                                 lambda m: self._keep(self.stats, m), 10)

    def _keep(self, store: dict[int, Any], message: Any) -> None:
        store[message.header.stamp.nanosec] = message

    def frame(self, number: int, patience: float) -> FrameRow:
        """Publish a picture and wait for its answer."""
        message = rgb_to_image(self.pictures[number % PICTURES])
        message.header.stamp.nanosec = number
        start = time.monotonic()
        self.images.publish(message)
        while not (number in self.results and number in self.stats):
            if time.monotonic() > start + patience:
                return FrameRow(start, math.nan, math.nan, False, False)
            rclpy.spin_once(self, timeout_sec=0.05)
        answer, stats = time.monotonic() - start, self.stats.pop(number)
        return FrameRow(start, answer, self._difference(number, self.results.pop(number)),
                        stats.shared, stats.recovered, stats.by_rows)

    def _difference(self, number: int, result: InferenceResult) -> float:
        worst = 0.0
        for tensor, wanted in zip(result.outputs, self.wanted[number % PICTURES], strict=True):
            data = torch.frombuffer(bytearray(tensor.data), dtype=decode_dtype(
                tensor.dtype_code, tensor.dtype_bits)).view(*tensor.shape)
            difference = ((data - wanted).abs().max() / (wanted.max() - wanted.min())).item()
            worst = difference if math.isnan(difference) else max(worst, difference)
        return worst


def run(camera: Camera, seconds: float) -> list[FrameRow]:
    """Publish until the time is over; what is sent before a frame was shared does not count."""
    number, patience = 1, time.monotonic() + SETUP
    while not camera.frame(number, patience=1.0).shared and time.monotonic() < patience:
        number += 1
    print('begins', flush=True)
    rows, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        number += 1
        rows.append(camera.frame(number, LOST))
        time.sleep(_PAUSE)
    return rows


def main() -> None:
    """Run with the command line's seconds and report."""
    model, seconds, report = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
    rclpy.init()
    camera = Camera(model)
    rows = run(camera, seconds)
    write_atomically(report, json.dumps([astuple(row) for row in rows]))
    camera.destroy_node()
    rclpy.try_shutdown()


if __name__ == '__main__':
    main()
