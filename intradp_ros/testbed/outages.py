# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What outages of the link did to the inferences of a run."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from intradp_ros.link.trace import LinkTrace
from intradp_ros.testbed.trial import Seen


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


def with_outages(mbps: float, outages: Sequence[float], between: float) -> LinkTrace:
    """Return a trace of one rate that is interrupted for some times, after `between` seconds."""
    pairs, now = [(0.0, mbps)], 0.0
    for seconds in outages:
        pairs += [(now + between, 0.0), (now + between + seconds, mbps)]
        now += between + seconds
    return LinkTrace(*(tuple(column) for column in zip(*pairs, (now + between, mbps))))


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
