# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What an emulated link is like."""
from __future__ import annotations

from dataclasses import dataclass
import math

#: Each way has the rate for itself, or both share one air time.
DUPLEX, SHARED_MEDIUM = 'duplex', 'shared'
#: Where packets queue: on the device that sends them, which holds its sender up as its own radio
#: would, or in a box between the sides, which drops what does not fit.
SENDER, ACCESS_POINT = 'sender', 'access_point'
# Linux lets a socket hold 212992 bytes by default; a shorter queue would drop.
QUEUE_BYTES = 500_000
#: Packets a second that the process which delays and loses them is sure to carry (it carries
#: more on a fast machine that has a core to spare).
MOST_PACKETS = 40_000
_PACKET_BITS = 12_000


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """
    An emulated link between robot and server.

    `mbit` is the rate in 1e6 bits per second, each way or (`medium` shared)
    of both together.  A packet takes `delay_ms` one way, and up to
    `jitter_ms` more, evenly distributed; packets keep their order.  `loss`
    is the probability that a packet is lost.  `bottleneck` says where
    `queue_bytes` of each way (or of the shared medium) wait for the rate; at
    the sender, below 213 kB, losses are seen too.

    :raises ValueError: if a setting is impossible, or nothing could carry that many packets.
    """

    mbit: float = 20.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    medium: str = DUPLEX
    bottleneck: str = SENDER
    queue_bytes: int = QUEUE_BYTES

    def __post_init__(self) -> None:
        """Raise ValueError for what no link can be."""
        check_rate(self.mbit)
        for name in ('delay_ms', 'jitter_ms'):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f'{name} must be 0 or more milliseconds, not '
                                 f'{getattr(self, name)}')
        if not 0 <= self.loss < 1:
            raise ValueError(f'loss is a probability from 0 to below 1, not {self.loss}')
        if self.medium not in (DUPLEX, SHARED_MEDIUM):
            raise ValueError(f"no medium '{self.medium}'; choose {DUPLEX} or {SHARED_MEDIUM}")
        if self.bottleneck not in (SENDER, ACCESS_POINT):
            raise ValueError(f"no bottleneck '{self.bottleneck}'; choose {SENDER} or "
                             f'{ACCESS_POINT}')
        if self.medium == SHARED_MEDIUM and self.bottleneck == SENDER:
            raise ValueError('what both ways share lies between the sides: a shared medium needs '
                             f"bottleneck='{ACCESS_POINT}'")
        if self.queue_bytes < 2000:
            raise ValueError(f'a queue must hold a packet (2000 bytes), not {self.queue_bytes}')

    @property
    def uneven(self) -> bool:
        """Whether packets are delayed or lost, each by itself."""
        return bool(self.delay_ms or self.jitter_ms or self.loss)

    @property
    def has_access_point(self) -> bool:
        """Whether there is something between the sides."""
        return self.uneven or self.bottleneck == ACCESS_POINT

    def warning(self) -> str:
        """Return what this machine may not be able to carry, and the fix; '' if nothing."""
        ways = 1 if self.medium == SHARED_MEDIUM else 2
        packets = ways * self.mbit * 1e6 / _PACKET_BITS
        if not self.uneven or packets <= MOST_PACKETS:
            return ''
        return (f'delay, jitter and loss are applied packet by packet, up to {MOST_PACKETS} a '
                f'second; {self.mbit:g} Mbit/s may be {packets:.0f}, and what comes too fast is '
                'lost: lower the rate, or emulate the rate alone')


def check_rate(mbit: float) -> None:
    """Raise ValueError unless it can be a rate in Mbit/s."""
    if not 0 < mbit < math.inf:
        raise ValueError(f'a rate must be above 0 Mbit/s, not {mbit}; use cut() for an outage')
