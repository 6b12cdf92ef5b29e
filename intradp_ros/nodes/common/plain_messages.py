# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Messages as plain data, of rclpy or of rosbags: what a view is made of."""
from __future__ import annotations

from dataclasses import fields, is_dataclass
import io
from itertools import islice
import math
from typing import Any

import numpy as np
from PIL import Image

#: Letters of a text; of plans and tables; entries of a list.
TEXT, LONG_TEXT, ENTRIES = 500, 4 << 20, 5000
#: Pixels of the longer side of a picture.
SIDE = 480
#: Ends of the topics of pictures that a robot makes of its results.
PICTURE_TOPICS = ('/result_image', '/debug_image')
_LONG, _LEFT_OUT = ('plan', 'book'), ('mac', 'models')


def plain(value: Any, name: str = '') -> Any:
    """Return a message or a field of one as plain data; numbers that are not finite as None."""
    if isinstance(value, str):
        return value[:LONG_TEXT if name in _LONG else TEXT]
    if isinstance(value, bytes):
        return value[0] if len(value) == 1 else None
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    names = value.get_fields_and_field_types() if hasattr(value, 'get_fields_and_field_types') \
        else [field.name for field in fields(value)] if is_dataclass(value) else None
    if names is not None:
        return {field: plain(getattr(value, field), field)
                for field in names if field not in _LEFT_OUT}
    return [plain(each) for each in (
        value[:ENTRIES].tolist() if hasattr(value, 'tolist') else islice(value, ENTRIES))]


#: Of each encoding of a picture PIL's mode and raw mode, and the bytes of a pixel.
_PIXELS = {'rgb8': ('RGB', 'RGB', 3), 'bgr8': ('RGB', 'BGR', 3), 'mono8': ('L', 'L', 1),
           '32FC1': ('F', 'F;32F', 4)}


def small_png(message: Any) -> bytes:
    """
    Return a sensor_msgs/Image as a small PNG; numbers as grey, the largest one white.

    :raises ValueError: if it is not a picture, or of an encoding that no result has.
    """
    if message.encoding not in _PIXELS:
        raise ValueError(f'encoding {message.encoding!r:.40} is not shown')
    mode, raw, size = _PIXELS[message.encoding]
    width, height, step = message.width, message.height, message.step
    if not (width and height and step >= width * size and len(message.data) == step * height):
        raise ValueError('an image whose data do not fit its size')
    if raw == 'F;32F' and message.is_bigendian:
        raw = 'F;32BF'
    picture = Image.frombytes(mode, (width, height), bytes(message.data), 'raw', raw, step)
    if mode == 'F':
        values = np.nan_to_num(np.asarray(picture), posinf=0.0, neginf=0.0)
        values = values - values.min()
        picture = Image.fromarray((255 * (values / (values.max() or 1.0))).astype(np.uint8))
    picture.thumbnail((SIDE, SIDE))
    out = io.BytesIO()
    picture.save(out, 'PNG')
    return out.getvalue()
