# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Point clouds to occupancy grids and back."""
from __future__ import annotations

import array
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
from sensor_msgs.msg import PointCloud2, PointField
import torch

from intradp_ros.nodes.sensors.points import (
    Grid,
    labels_of,
    occupied,
    PointsError,
    read_by_numpy,
    read_by_ros,
    read_points,
    to_cloud,
    to_points,
)

POINTS = np.random.default_rng(1).uniform(-3, 3, (40, 3))
GRID = Grid((4, 5, 6), 'xzy', (-1.0, -2.0, -0.5), 0.5)


def cloud(points: np.ndarray, form: str = '<f4', height: int = 1, padding: int = 0) -> PointCloud2:
    """Return a cloud whose points have an intensity before x, y and z, and bytes after them."""
    layout = np.dtype([('intensity', 'u1'), ('x', form), ('y', form), ('z', form), ('t', 'u4')])
    records = np.zeros(len(points), layout)
    for axis, column in zip('xyz', points.T):
        records[axis] = column
    rows = records.view(np.uint8).reshape(height, -1)
    rows = np.concatenate([rows, np.full((height, padding), 77, np.uint8)], 1)
    kind = PointField.FLOAT64 if form.endswith('8') else PointField.FLOAT32
    message = PointCloud2(
        height=height, width=len(points) // height, point_step=layout.itemsize,
        row_step=rows.shape[1], is_bigendian=form.startswith('>'), fields=[
            PointField(name='intensity', offset=0, datatype=PointField.UINT8, count=1),
            *(PointField(name=axis, offset=layout.fields[axis][1], datatype=kind, count=1)
              for axis in 'zyx')])
    message.data = array.array('B', rows.tobytes())
    return message


@pytest.mark.parametrize('form', ['<f4', '>f4', '<f8', '>f8'])
@pytest.mark.parametrize(('height', 'padding'), [(1, 0), (4, 0), (8, 5)])
def test_points_in_any_layout(form: str, height: int, padding: int) -> None:
    found = to_points(cloud(POINTS, form, height, padding))
    assert np.array_equal(found, POINTS.astype(form).astype(np.float64))


@pytest.mark.parametrize('form', ['<f4', '<f8'])
@pytest.mark.parametrize('height', [1, 4])
def test_ros_reads_as_numpy_does(form: str, height: int) -> None:
    pytest.importorskip('sensor_msgs_py', reason='sensor_msgs_py comes with ROS')
    message = cloud(POINTS, form, height)
    before = bytes(message.data)
    found = read_by_ros(message)
    assert found is not None and np.array_equal(found, read_by_numpy(message))
    assert bytes(message.data) == before


@pytest.mark.parametrize(('form', 'padding'), [('>f4', 0), ('<f4', 5)])
def test_what_ros_would_misread_is_left_to_numpy(form: str, padding: int) -> None:
    message = cloud(POINTS, form, 4, padding)
    assert read_by_ros(message) is None
    assert len(to_points(message)) == len(POINTS)


def test_a_count_that_was_left_out_is_one() -> None:
    message = cloud(POINTS)
    message.fields[-1].count = 0
    assert len(to_points(message)) == len(POINTS)


def test_points_that_were_not_measured_are_left_out() -> None:
    points = POINTS.copy()
    points[3, 1], points[7], points[9, 2] = np.nan, np.inf, -np.inf
    assert len(to_points(cloud(points))) == len(POINTS) - 3


def test_a_cloud_may_be_empty() -> None:
    assert to_points(cloud(POINTS[:0])).shape == (0, 3)


@pytest.mark.parametrize(('changes', 'says'), [
    ({'fields': []}, "no field 'x'"), ({'width': 41}, '840 bytes do not fit 1 x 41 points'),
    ({'width': 2**32 - 1}, 'do not fit'), ({'height': 2**32 - 1}, 'do not fit'),
    ({'row_step': 839}, 'row step 839'), ({'row_step': 2**32 - 1}, 'do not fit'),
    ({'point_step': 12}, 'does not fit a point of 12 bytes'),
    ({'point_step': 0}, 'does not fit a point of 0 bytes'),
    ({'point_step': 2**32 - 1}, 'do not fit'), ({'data': array.array('B')}, '0 bytes')])
def test_impossible_clouds_are_refused(changes: dict[str, Any], says: str) -> None:
    message = cloud(POINTS, '<f4')
    message.point_step += 4  # so that the bytes of a point are none of the sizes above
    message.row_step = 40 * message.point_step
    message.data = array.array('B', bytes(message.row_step))
    for name, value in changes.items():
        setattr(message, name, value)
    with pytest.raises(PointsError, match=says):
        to_points(message)


@pytest.mark.parametrize('changes', [
    {'datatype': PointField.INT32}, {'datatype': 99}, {'count': 2}, {'offset': 2**32 - 1},
    {'name': 'w'}])
def test_impossible_fields_are_refused(changes: dict[str, Any]) -> None:
    message = cloud(POINTS)
    for name, value in changes.items():
        setattr(message.fields[-1], name, value)
    with pytest.raises(PointsError, match="field 'x'"):
        to_points(message)


@given(st.lists(st.tuples(*[st.floats(-4, 4)] * 3), max_size=20), st.permutations('xyz'))
def test_cells_with_points_are_ones(points: list[tuple[float, float, float]], axes: list[str],
                                    ) -> None:
    """Against one point after another, cell by cell."""
    grid = Grid((4, 5, 6), ''.join(axes), (-1.0, -2.0, -0.5), 0.5)
    wanted = np.zeros(grid.counts, np.uint8)
    for point in points:
        place = dict(zip('xyz', ((c - o) // 0.5 for c, o in zip(point, grid.origin))))
        cell = [place[axis] for axis in axes]
        if all(0 <= c < n for c, n in zip(cell, grid.counts)):
            wanted[tuple(int(c) for c in cell)] = 1
    given_points = np.array(points, np.float64).reshape(-1, 3)
    for shape, dtype in (((1, 4, 5, 6), torch.bool), ((1, 1, 4, 5, 6), torch.float32)):
        found = occupied(given_points, grid, shape, dtype)
        assert (tuple(found.shape), found.dtype) == (shape, dtype)
        assert np.array_equal(found.to(torch.uint8).numpy().reshape(grid.counts), wanted)


def test_points_beyond_all_numbers_are_outside() -> None:
    assert not occupied(np.full((1, 3), 1.7e308), GRID, (1, 4, 5, 6), torch.bool).any()


@pytest.mark.parametrize('dtype', [torch.uint8, torch.bool, torch.int16, torch.int64])
def test_labels_come_back_where_they_were(dtype: torch.dtype) -> None:
    """Every cell's point lies in that cell, with its label."""
    labels = torch.randint(0, 2 if dtype is torch.bool else 20, GRID.counts,
                           generator=torch.Generator().manual_seed(0)).to(dtype)
    message = to_cloud(labels, GRID)
    points = to_points(message)
    assert message.width == len(points) == int(labels.count_nonzero())
    assert torch.equal(occupied(points, GRID, (1, 4, 5, 6), torch.bool)[0], labels != 0)
    found = np.frombuffer(message.data, np.uint8).reshape(-1, message.point_step)[:, 12:]
    cells = GRID.cells(points)
    assert np.array_equal(found.copy().view('<u4')[:, 0], labels.numpy()[tuple(cells.T)])


def test_cells_that_are_unknown_are_no_points() -> None:
    labels = torch.full(GRID.counts, -1)
    labels[1, 2, 3] = 4
    assert to_cloud(labels, GRID).width == 1


def test_only_labels_of_all_cells_are_labels() -> None:
    assert labels_of(torch.ones(1, 4, 5, 6, dtype=torch.uint8), GRID) is not None
    for other in (torch.ones(1, 4, 5, 6), torch.ones(1, 5, 4, 6, dtype=torch.uint8),
                  torch.ones(2, 4, 5, 6, dtype=torch.uint8), torch.ones(5, dtype=torch.uint8)):
        assert labels_of(other, GRID) is None


@pytest.mark.parametrize(('axes', 'origin', 'cell', 'says'), [
    ('xyy', (0.0, 0.0, 0.0), 0.1, "got 'xyy'"), ('', (0.0, 0.0, 0.0), 0.1, "got ''"),
    ('xyz', (0.0, float('nan'), 0.0), 0.1, 'no grid'), ('xyz', (0.0, 0.0, 0.0), 0.0, '0 m'),
    ('xyz', (0.0, 0.0, 0.0), float('inf'), 'inf m')])
def test_impossible_grids(axes: str, origin: tuple[float, float, float], cell: float, says: str,
                          ) -> None:
    with pytest.raises(ValueError, match=says):
        Grid((4, 5, 6), axes, origin, cell)


def test_points_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / 'scan.npy'
    np.save(path, np.concatenate([POINTS, POINTS[:, :1]], 1).astype(np.float32))
    assert np.array_equal(read_points(str(path)), POINTS.astype(np.float32))


@pytest.mark.parametrize('content', [b'', b'no array', None])
def test_files_that_hold_no_points(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / 'scan.npy'
    if content is None:
        np.save(path, POINTS[:, :2])
    else:
        path.write_bytes(content)
    with pytest.raises(PointsError, match='scan.npy'):
        read_points(str(path))
    with pytest.raises(PointsError, match='nowhere'):
        read_points(str(tmp_path / 'nowhere.npy'))
