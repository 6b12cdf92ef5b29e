# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What outages of the link did to the inferences of a run."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from intradp_lab.emulation.trace import LinkTrace
from intradp_lab.testbed.trial import Seen

#: What is wanted: an inference takes no longer than so many times the robot alone and one
#: timeout, and the next one that is shared begins so many seconds after the link's return.
TIMES_ALONE, BACK_WITHIN = 1.1, 1.0


@dataclass(frozen=True)
class Outage:
    """
    An outage and the frames that were at hand while it lasted; times in seconds.

    `worst` is the longest latency of these `frames`.  `back` is how long
    after the link's return the first inference that both sides finished had
    begun; None if there was none before the next outage.
    """

    begin: float
    end: float
    frames: int
    worst: float
    back: float | None

    def missed(self, limit: float) -> list[str]:
        """Return in words what is not as wanted; nothing may take longer than `limit`."""
        found = []
        if self.worst > limit:
            found.append('took too long')
        if self.back is None:
            found.append('did not share again')
        elif self.back > BACK_WITHIN:
            found.append('shared again late')
        return found


def with_outages(mbps: float, outages: Sequence[float], between: float) -> LinkTrace:
    """
    Return a trace of one rate that is interrupted for some times, after `between` seconds.

    It says when the link is there for `between` seconds after the last one, too.
    """
    pairs, now = [(0.0, mbps)], 0.0
    for seconds in outages:
        # Rounded, so that a time that is a tenth of a second meets a step of the replay.
        pairs += [(round(now + between, 6), 0.0), (round(now + between + seconds, 6), mbps)]
        now += between + seconds
    return LinkTrace(*(tuple(column) for column in
                       zip(*pairs, (round(now + between, 6), mbps))))


def spans(trace: LinkTrace, seconds: float) -> Iterator[tuple[float, float]]:
    """Yield begin and end of every outage that ends within some seconds."""
    begin: float | None = None
    for time, rate in trace:
        if rate == 0 and begin is None:
            begin = time
        elif rate > 0 and begin is not None:
            if time < seconds:
                yield begin, time
            begin = None


def outages(seen: Seen, trace: LinkTrace) -> list[Outage]:
    """Return what the outages of a trace, which began with the run, did to its inferences."""
    frames = list(zip(seen.at, seen.latency, seen.shared, seen.recovered))
    found = []
    ends = list(spans(trace, seen.at[-1]))
    for (begin, end), following in zip(ends, [*(b for b, _ in ends[1:]), float('inf')]):
        during = [latency for at, latency, _, _ in frames if at < end and at + latency > begin]
        back = [at - end for at, _, shared, recovered in frames
                if end <= at < following and shared and not recovered]
        found.append(Outage(begin, end, len(during), max(during, default=0.0),
                            min(back, default=None)))
    return found


def outage_figures(seen: Seen, trace: LinkTrace, alone: float, timeout: float) -> dict[str, Any]:
    """
    Return what outages did, in ms and seconds, next to what is wanted.

    :param seen, trace: what ran, and on which link; they began together.
    :param alone: seconds that the robot takes for an inference by itself.
    :param timeout: seconds of silence after which it goes on by itself.
    """
    limit = TIMES_ALONE * alone + timeout
    return {
        'mbps': max(trace.mbps), 'alone_ms': 1e3 * alone, 'timeout_ms': 1e3 * timeout,
        'limit_ms': 1e3 * limit, 'back_within_s': BACK_WITHIN, 'frames': len(seen.at),
        'shared': sum(seen.shared), 'recovered': sum(seen.recovered),
        'rows': [{'begin_s': o.begin, 'seconds': o.end - o.begin, 'frames': o.frames,
                  'worst_ms': 1e3 * o.worst, 'back_s': o.back, 'missed': o.missed(limit)}
                 for o in outages(seen, trace)]}
