# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a device draws, by what it does."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar('T', float, npt.NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class PowerStates:
    """
    Power of a device in watts by what it does.

    `idle` is standby, ready to go on at once; `send` and `receive` are what
    the board draws while its radio works and it does nothing else (by
    default it receives at the price of sending).
    """

    compute: float
    send: float
    idle: float
    source: str
    receive: float | None = None

    def joules(self, seconds: T, compute: T, sending: T, receiving: T) -> T:
        """
        Return the energy of so many seconds, of which some with compute and with radio.

        Numbers, or arrays of them for many cases.

        Idle power all along, and on top the difference to each state while it
        lasts; they may last at the same time (paper, Table 3 and section 3.1:
        the radio adds little to a busy board).
        """
        receive = self.send if self.receive is None else self.receive
        return (self.idle * seconds + (self.compute - self.idle) * compute
                + (self.send - self.idle) * sending + (receive - self.idle) * receiving)


#: Jetson Xavier NX as in the paper, Table 3 (the board without motors).
XAVIER_NX = PowerStates(13.35, 4.25, 4.04, 'modelled: Jetson Xavier NX, paper Table 3')
