# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Answers for pixels and points as messages of sensor_msgs."""
from __future__ import annotations

import array
import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sensor_msgs.msg import CameraInfo, Image, PointCloud2, PointField
from std_msgs.msg import Header

from intradp_ros.perception.card import ModelCard

Array = npt.NDArray[Any]
_KEY_POINT = np.dtype([('x', '<f4'), ('y', '<f4'), ('z', '<f4'), ('score', '<f4'),
                       ('point', '<u4'), ('instance', '<u4')])
_POINT = np.dtype([('x', '<f4'), ('y', '<f4'), ('z', '<f4')])
_KINDS = {'f': PointField.FLOAT32, 'u': PointField.UINT32}


def labels_image(header: Header, labels: Array, card: ModelCard) -> Image:
    """Return classes (h, w) as mono8; as 16UC1 where there are more, or their count is unknown."""
    narrow = 0 < len(card.labels) < 256 and (not labels.size or labels.max() < 256)
    return _image(header, labels.astype(np.uint8, copy=False), 'mono8') if narrow else \
        instances_image(header, labels)


def instances_image(header: Header, numbers: Array) -> Image:
    """Return numbers of objects (h, w) as 16UC1."""
    return _image(header, numbers.astype('<u2', copy=False), '16UC1')


def depth_image(header: Header, metres: Array) -> Image:
    """Return depth (h, w) as 32FC1."""
    return _image(header, metres.astype('<f4', copy=False), '32FC1')


def colour_image(header: Header, rgb: Array) -> Image:
    """Return a picture (h, w, 3) as rgb8."""
    return _image(header, rgb, 'rgb8')


class CameraInfoError(ValueError):
    """What is known of a camera cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Pinhole:
    """Focal lengths and centre of a rectified image, in its pixels."""

    across: float
    down: float
    centre_x: float
    centre_y: float


def pinhole(info: CameraInfo, size: tuple[int, int]) -> Pinhole:
    """
    Return the camera of a rectified image of that size (height, width).

    Rectified images are described by P; where a driver leaves it zero, K is
    taken.  Both are of the whole sensor: a region of interest moves the
    centre, binning divides (as image_geometry's PinholeCameraModel does).

    :raises CameraInfoError: if nothing is known of the camera, or it does not fit the size.
    """
    if not (info.width and info.height):
        raise CameraInfoError('no camera_info of the image has come')
    p, k = np.reshape(info.p, (3, 4)), np.reshape(info.k, (3, 3))
    matrix, name = (p, 'P') if p[0, 0] else (k, 'K')
    across, down, centre_x, centre_y = (float(matrix[at]) for at in ((0, 0), (1, 1), (0, 2),
                                                                     (1, 2)))
    if not np.isfinite((across, down, centre_x, centre_y)).all():
        raise CameraInfoError(f'the matrix {name} of camera_info has numbers that are not finite')
    if not (across > 0 and down > 0):
        raise CameraInfoError('camera_info says no focal length (the camera is not calibrated)'
                              if name == 'K' else 'the focal lengths in P of camera_info are '
                              f'{across:g} and {down:g}, not above 0')
    roi = info.roi
    by_x, by_y = max(1, info.binning_x), max(1, info.binning_y)
    shown = ((roi.height or info.height) // by_y, (roi.width or info.width) // by_x)
    if shown != size:
        made = ''.join(text for said, text in (
            (roi.height or roi.width, f', region {roi.width} x {roi.height}'),
            (by_x > 1 or by_y > 1, f', binning {by_x} x {by_y}')) if said)
        raise CameraInfoError(
            f'camera_info is of images of {shown[1]} x {shown[0]} ({info.width} x {info.height}'
            f'{made}), the images have {size[1]} x {size[0]}: give the camera_info of the topic '
            'that the node listens to')
    return Pinhole(across / by_x, down / by_y, (centre_x - roi.x_offset) / by_x,
                   (centre_y - roi.y_offset) / by_y)


def depth_points(header: Header, metres: Array, info: CameraInfo) -> PointCloud2:
    """
    Return depth (h, w) as points in the camera's frame, organised as the image is.

    Lens distortion is not undone: give the node rectified images.

    :raises CameraInfoError: if what is known of the camera does not say where the points lie.
    """
    height, width = metres.shape
    camera = pinhole(info, (height, width))
    points = np.empty((height, width), _POINT)
    points['x'] = (np.arange(width) - camera.centre_x) / camera.across * metres
    points['y'] = ((np.arange(height) - camera.centre_y) / camera.down)[:, None] * metres
    points['z'] = metres
    return _cloud(header, points, dense=bool(np.isfinite(metres).all()))


def with_header(info: CameraInfo, header: Header) -> CameraInfo | None:
    """Return what is known of a camera in addition to an image's header; None if nothing is."""
    if not info.width:
        return None
    copied = copy.copy(info)
    copied.header = header
    return copied


def key_points_cloud(header: Header, points: Array, numbers: Array, instances: Array,
                     ) -> PointCloud2:
    """
    Return key points (n, 3: x, y, score) in the image's pixels.

    :param numbers: which point of the model each is.
    :param instances: the number of the object that each belongs to, from 1 on.
    """
    records = np.zeros(len(points), _KEY_POINT)
    for name, values in (('x', points[:, 0]), ('y', points[:, 1]), ('score', points[:, 2]),
                         ('point', numbers), ('instance', instances)):
        records[name] = values
    return _cloud(header, records[None], dense=True)


def _image(header: Header, pixels: Array, encoding: str) -> Image:
    height, width = pixels.shape[:2]
    message = Image(header=header, height=height, width=width, encoding=encoding,
                    step=pixels.nbytes // max(1, height))
    message.data = _data(pixels)
    return message


def _cloud(header: Header, records: Array, *, dense: bool) -> PointCloud2:
    height, width = records.shape
    size = records.dtype.itemsize
    message = PointCloud2(
        header=header, height=height, width=width, point_step=size, row_step=width * size,
        is_dense=dense, fields=[
            PointField(name=name, offset=4 * n, datatype=_KINDS[records.dtype[name].kind], count=1)
            for n, name in enumerate(records.dtype.names or ())])
    message.data = _data(records)
    return message


def _data(values: Array) -> array.array[int]:
    """Return bytes as ROS wants them (anything else is copied byte by byte)."""
    data = array.array('B')
    data.frombytes(np.ascontiguousarray(values).view(np.uint8).data)
    return data
