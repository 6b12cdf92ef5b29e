# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Planner, server and robot as processes over DDS: point clouds in, labelled points out."""
from __future__ import annotations

from pathlib import Path
import time

from node_processes import (
    nodes,
    Observer,
    own_domain,
    PATIENT,
    QUICK_PLANNER,
    SCENE,
    TIMEOUT,
)
import numpy as np
from sensor_msgs.msg import PointCloud2
import small_models
import torch

from intradp_ros.nodes.sensors.points import Grid, occupied, to_cloud, to_points

GRID = Grid((24, 8, 32), 'xzy', (0.0, -4.8, -1.0), 0.3)
VOXELS = {'sensor': 'points', 'voxels.axes': GRID.axes, 'voxels.origin_m': [*GRID.origin],
          'voxels.size_m': GRID.cell}


class Scanner(Observer):
    """An observer that publishes point clouds, and keeps the clouds that come back."""

    def __init__(self) -> None:
        super().__init__()
        self.scenes: dict[int, PointCloud2] = {}
        self.clouds = self.node.create_publisher(PointCloud2, 'points', 10)
        self.node.create_subscription(PointCloud2, 'result_points',
                                      lambda m: self._keep(self.scenes, m), 10)

    def publish(self, cells: np.ndarray) -> int:
        """Publish a point in each of some cells, and return the cloud's number."""
        self.sent += 1
        message = to_cloud(torch.from_numpy(cells), GRID)
        message.header.stamp.sec, message.header.frame_id = self.sent, 'lidar'
        self.clouds.publish(message)
        return self.sent


def cells(seed: int) -> np.ndarray:
    """Return a grid of which a tenth is occupied."""
    return np.random.default_rng(seed).random(GRID.counts) < 0.1


def test_clouds_are_shared_and_labelled(tmp_path: Path) -> None:
    """The scene is the unsplit model's; a cloud that cannot be used is counted, none is lost."""
    model = small_models.scene()
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as running:
        scanner = Scanner()
        try:
            running.start('planner_node', QUICK_PLANNER)
            running.start('offload_node', {'models': [SCENE]})
            running.start('inference_node', {'model': SCENE, **VOXELS, **PATIENT})
            assert scanner.set_mode('offload')[0]
            scanner.meet_robot(cells(0))
            scanner.clouds.publish(PointCloud2(height=1, width=5))
            shared, end = 0, time.monotonic() + TIMEOUT
            while shared < 3 and time.monotonic() < end:
                grid = cells(scanner.sent)
                number = scanner.publish(grid)
                result, stats = scanner.answer(number)
                shared += stats.shared
                with torch.no_grad():
                    labels, scores = model(torch.from_numpy(grid)[None, None])
                found = [np.frombuffer(output.data, dtype).reshape(output.shape)
                         for output, dtype in zip(result.outputs, (np.int64, np.float32))]
                assert np.array_equal(found[0], labels.numpy())
                assert np.abs(found[1] - scores.numpy()).max() <= 1e-4 * float(scores.std())
                scanner.wait(lambda n=number: n in scanner.scenes, 'the labelled points')
                scene = scanner.scenes[number]
                assert scene.header.frame_id == 'lidar'
                assert torch.equal(
                    occupied(to_points(scene), GRID, labels.shape, torch.bool), labels != 0)
            assert shared == 3
            scanner.wait(lambda: scanner.status('inference_node').get('rejected_points') == '1',
                         'the count of the cloud that is none')
        finally:
            scanner.close()
