# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""sensor_msgs/PointCloud2 to occupancy grids, and labelled grids back."""
from __future__ import annotations

import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sensor_msgs.msg import PointCloud2, PointField
import torch

try:  # comes with an installation of ROS, and from no wheel
    from sensor_msgs_py import point_cloud2
except ImportError:
    point_cloud2 = None

Array = npt.NDArray[Any]
AXES = 'xyz'
_FLOATS = {PointField.FLOAT32: 'f4', PointField.FLOAT64: 'f8'}
#: A point of a labelled grid, of four bytes each.
_LABELLED = np.dtype([('x', '<f4'), ('y', '<f4'), ('z', '<f4'), ('label', '<u4')])
_KINDS = {**dict.fromkeys(AXES, PointField.FLOAT32), 'label': PointField.UINT32}


class PointsError(ValueError):
    """A point cloud that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Grid:
    """
    Where the cells of a tensor lie in the frame of the clouds.

    The last dimensions of the tensor have `counts` cells along `axes` (three
    letters, any order of x, y and z); a cell measures `cell` metres each way,
    and `origin` (x, y, z in metres) is the lowest corner of the first one.

    :raises ValueError: if there is no such grid.
    """

    counts: tuple[int, int, int]
    axes: str
    origin: tuple[float, float, float]
    cell: float

    def __post_init__(self) -> None:
        if sorted(self.axes) != sorted(AXES):
            raise ValueError(f'axes of a grid are x, y and z in any order, got {self.axes!r}')
        if not (self.cell > 0 and np.isfinite([*self.origin, self.cell]).all()):
            raise ValueError(f'no grid has cells of {self.cell:g} m from {self.origin}')

    @property
    def order(self) -> list[int]:
        """The columns x, y and z (0, 1, 2) in the order of the tensor's dimensions."""
        return [AXES.index(axis) for axis in self.axes]

    def cells(self, points: Array) -> Array:
        """Return the indices (n, 3) of the cells that points (n, 3) lie in, if they lie in any."""
        with np.errstate(over='ignore'):  # further away than numbers go is outside, too
            places = np.floor((points - np.asarray(self.origin)) / self.cell)[:, self.order]
        inside = ((places >= 0) & (places < self.counts)).all(1)
        found: Array = places[inside].astype(np.int64)
        return found

    def centres(self, cells: Array) -> Array:
        """Return x, y and z (n, 3) of the middle of cells (n, 3)."""
        points: Array = np.empty((len(cells), 3))
        points[:, self.order] = (cells + 0.5) * self.cell
        points += self.origin
        return points


def to_points(message: PointCloud2) -> Array:
    """
    Return x, y and z of all points that have them, shape (n, 3), float64.

    Where ROS is installed its own package reads the cloud, after all of it was checked here.

    :raises PointsError: if the cloud has no x, y and z as floating-point numbers, or its data do
        not fit its size.
    """
    _layout(message)
    used = message.width * message.point_step
    if message.row_step < used or message.height * message.row_step != len(message.data):
        raise PointsError(
            f'{len(message.data)} bytes do not fit {message.height} x {message.width} points of '
            f'{message.point_step} bytes with row step {message.row_step}')
    if not message.height * used:
        return np.empty((0, 3))
    points = read_by_ros(message)
    if points is None:
        points = read_by_numpy(message)
    return points[np.isfinite(points).all(1)]


def read_by_ros(message: PointCloud2) -> Array | None:
    """
    Return x, y and z (n, 3) of a cloud that was checked, by ``sensor_msgs_py``.

    None where that is not installed, and for what some of its releases misread: rows with bytes
    behind the points, bytes of a point behind its last field, and the other byte order (they
    swap that of the message itself).
    """
    if point_cloud2 is None or message.is_bigendian or (
            message.row_step != message.width * message.point_step):
        return None
    try:
        points = point_cloud2.read_points(message, field_names=list(AXES))
    except (AssertionError, KeyError, TypeError, ValueError):  # another field is none
        return None
    if points.shape != (message.height * message.width,) or points.strides != (
            message.point_step,):
        return None
    return np.stack([points[axis].astype(np.float64) for axis in AXES], 1)


def read_by_numpy(message: PointCloud2) -> Array:
    """Return x, y and z (n, 3) of a cloud that was checked, of any layout."""
    layout, used = _layout(message), message.width * message.point_step
    rows = np.frombuffer(message.data, np.uint8).reshape(message.height, message.row_step)
    records = np.ascontiguousarray(rows[:, :used]).reshape(-1, message.point_step)
    return np.concatenate([
        records[:, offset:offset + form.itemsize].copy().view(form) for form, offset in layout],
        1, dtype=np.float64)


def _layout(message: PointCloud2) -> list[tuple[np.dtype[Any], int]]:
    """Return the type and the first byte of x, y and z in a point."""
    fields = {field.name: field for field in message.fields}
    layout = []
    for axis in AXES:
        field = fields.get(axis)
        if field is None or field.datatype not in _FLOATS or field.count > 1:
            raise PointsError(f'no field {axis!r} with one floating-point number; there are '
                              f'{sorted(fields)[:16]}')
        form = np.dtype(_FLOATS[field.datatype]).newbyteorder('>' if message.is_bigendian else '<')
        if field.offset + form.itemsize > message.point_step:
            raise PointsError(f'field {axis!r} at byte {field.offset} does not fit a point of '
                              f'{message.point_step} bytes')
        layout.append((form, field.offset))
    return layout


def occupied(points: Array, grid: Grid, shape: tuple[int, ...], dtype: torch.dtype,
             ) -> torch.Tensor:
    """Return a tensor of a shape (1 x ... x counts) with ones in the cells that have points."""
    cells = np.zeros(grid.counts, np.uint8)
    cells[tuple(grid.cells(points).T)] = 1
    return torch.from_numpy(cells).view(shape).to(dtype)


def read_points(path: str) -> Array:
    """
    Read points (n, 3 or more columns) from a file of NumPy, ``.npy``; return x, y and z.

    :raises PointsError: if it is none.
    """
    try:
        points = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise PointsError(f'{path!r} is not an array that NumPy reads: {error}') from error
    if not isinstance(points, np.ndarray) or points.ndim != 2 or points.shape[1] < 3 \
            or points.dtype.kind not in 'fiu':
        raise PointsError(f'{path!r} is not an array of points (n x 3)')
    return points[:, :3].astype(np.float64)


def labels_of(tensor: torch.Tensor, grid: Grid) -> torch.Tensor | None:
    """Return an output of whole numbers, one for each cell; None if it is none."""
    labels = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and \
        tuple(tensor.shape[-3:]) == grid.counts and set(tensor.shape[:-3]) <= {1}
    return tensor.reshape(grid.counts) if labels else None


def to_cloud(labels: torch.Tensor, grid: Grid) -> PointCloud2:
    """Return a point with its label in the middle of every cell whose label is above 0."""
    values = np.maximum(labels.numpy().astype(np.int64), 0)
    cells = np.argwhere(values)
    points = np.empty(len(cells), _LABELLED)
    for axis, column in zip(AXES, grid.centres(cells).T):
        points[axis] = column
    points['label'] = values[tuple(cells.T)]
    size = _LABELLED.itemsize
    message = PointCloud2(
        height=1, width=len(points), point_step=size, row_step=len(points) * size, is_dense=True,
        fields=[PointField(name=name, offset=4 * n, datatype=kind, count=1)
                for n, (name, kind) in enumerate(_KINDS.items())])
    message.data = array.array('B', points.tobytes())
    return message
