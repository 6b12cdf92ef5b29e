# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How many bits of 16-bit images a camera uses, and noticing that they are fewer than believed."""
from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: Images without a number in the upper half after which that is reported.
_ENOUGH = 30
MOST = 16
FEWEST = 8
#: Bits that no number needs from which on it is reported: one fewer is a dark scene.
_SPARE = 2


class BitsInUse:
    """
    The bits of 16-bit numbers that a camera uses, from the lowest on.

    Infrared and industrial cameras put 10 to 14 bits into 16 and nothing says
    so: pictures are nearly black then.  What images hold is watched until a
    number needs the highest bit.
    """

    def __init__(self, bits: int = MOST) -> None:
        """
        Believe that so many bits are in use.

        Raises
        ------
        ValueError
            If they are not 8 to 16.

        """
        if not FEWEST <= bits <= MOST:
            raise ValueError(f'{FEWEST} to {MOST} of 16 bits may be in use, got {bits}')
        self.bits = bits
        self._images = 0
        self._needed = 0
        self._encoding = ''

    def look(self, numbers: npt.NDArray[Any], encoding: str) -> int:
        """Look at an image (whole numbers of 16 bits); return how many bits are in use."""
        if self._needed <= self.bits and (self._needed < self.bits or self.bits < MOST):
            self._images += 1
            self._needed = max(self._needed, int(np.max(numbers, initial=0)).bit_length())
            self._encoding = encoding
        return self.bits

    @property
    def finding(self) -> str:
        """What does not fit what is believed, empty if all does."""
        if self._needed > self.bits:
            return (f'numbers of {self._encoding} need {self._needed} bits, image_bits is '
                    f'{self.bits}: bright pixels are cut off; set image_bits to {self._needed} '
                    'or more')
        if self._images < _ENOUGH or self._needed > self.bits - _SPARE:
            return ''
        return (f'in {self._images} images of {self._encoding} no number needs more than '
                f'{self._needed} of {self.bits} bits: pictures are dark; if that is all the '
                f'camera gives set image_bits to {max(FEWEST, self._needed)}')
