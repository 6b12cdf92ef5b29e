# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How many bits of 16-bit images a camera uses, and noticing that they are fewer than believed."""
from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

#: Images of which none needs the upper bits after which that is reported.
_ENOUGH = 30
MOST = 16
FEWEST = 8
#: Bits that no number needs from which on it is reported: one fewer is a dark scene.
_SPARE = 2
#: The share of pixels that may need more bits than are believed to be in use: hot ones.
_HOT = 0.01
#: That which may need the upper bits though the picture is dark: rows of telemetry of a small one.
_ODD = 0.05
#: One in so many images may need them: a shutter closes, a frame breaks.
_RARE = 10
#: Numbers that are looked at of an image, at most.
_LOOKED_AT = 1 << 14


class BitsInUse:
    """
    The bits of 16-bit numbers that a camera uses, from the lowest on.

    Infrared and industrial cameras put 10 to 14 bits into 16 and nothing says
    so: pictures are nearly black then.  The last images are watched for what
    all but a few of their numbers need.
    """

    def __init__(self, bits: int = MOST) -> None:
        """
        Believe that so many bits are in use.

        :raises ValueError: if they are not 8 to 16.
        """
        if not FEWEST <= bits <= MOST:
            raise ValueError(f'{FEWEST} to {MOST} of 16 bits may be in use, got {bits}')
        self.bits = bits
        self._needed: deque[tuple[int, int]] = deque(maxlen=_ENOUGH)
        self._encoding = ''

    def look(self, numbers: npt.NDArray[Any], encoding: str) -> int:
        """Look at an image (whole numbers of 16 bits); return how many bits are in use."""
        some = numbers.reshape(-1)[::max(1, numbers.size // _LOOKED_AT) | 1]
        if len(some):
            places = [len(some) - 1 - int(share * len(some)) for share in (_HOT, _ODD)]
            most, usual = np.partition(some, places)[places].tolist()
            self._needed.append((most.bit_length(), usual.bit_length()))
            self._encoding = encoding
        return self.bits

    @property
    def finding(self) -> str:
        """What does not fit what is believed, empty if all does."""
        needed = max((most for most, _ in self._needed), default=0)
        if needed > self.bits:
            return (f'numbers of {self._encoding} need {needed} bits, image_bits is '
                    f'{self.bits}: bright pixels are cut off; set image_bits to {needed} '
                    'or more')
        needed = max(sorted(usual for _, usual in self._needed)[:_ENOUGH - _ENOUGH // _RARE],
                     default=0)
        if len(self._needed) < _ENOUGH or needed > self.bits - _SPARE:
            return ''
        return (f'in {_ENOUGH} images of {self._encoding} hardly a number needs more than '
                f'{needed} of {self.bits} bits: pictures are dark; if that is all the '
                f'camera gives set image_bits to {max(FEWEST, needed)}')
