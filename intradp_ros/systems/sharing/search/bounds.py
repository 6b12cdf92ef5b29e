# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A lower bound on the latency of every schedule, by linear programs.

Robot and server compute fractions of every operator's rows; transfers are one
stream each way.  What no schedule can avoid remains: every needed row is
computed somewhere, what a device reads it has computed or received, devices
and link carry no more than they can between two moments, and barrier points
divide the time.  Halos come in by asking for a time: what a side has no time
to compute at all makes what it can compute dearer.  The argument is in
doc/planning.md.
"""
from __future__ import annotations

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import SIDES
from intradp_ros.systems.sharing.partition.reach import Facts, Most, most_rows
from intradp_ros.systems.sharing.search.relaxed_program import RelaxedProgram

# The solver keeps constraints to 1e-7 of our unit of time.
_SLACK = 1e-5
# Times that are tried: fewer for larger graphs, whose programs take longer.
_OPERATORS, _FEWEST, _MOST = 400, 2, 6
# The first time that is tried, as part of the least known; how near to a time is near enough.
_FIRST, _CLOSE = 0.85, 0.99


def lower_bound(cost: CostModel, link: LinkModel) -> float:
    """Return seconds that no schedule's predicted latency can be below."""
    return Relaxation(cost).bound(link)


class Relaxation:
    """
    The linear programs of one graph on two devices, for links of any rate.

    Of each value no more bytes have to cross the link than by the best of
    its encodings.
    """

    def __init__(self, cost: CostModel) -> None:
        self.facts = Facts(cost)
        self.tries = min(_MOST, max(_FEWEST, _OPERATORS // max(1, len(self.facts.heights))))

    def bound(self, link: LinkModel, known: float = float('inf')) -> float:
        """
        Return seconds that no schedule can be below.

        `known` is what some schedule takes, where that is known; less is left to try then.
        """
        if self.facts.alone == 0:
            return 0.0
        best, top, beyond = 0.0, min(known, self.facts.alone), False
        within = _FIRST * top
        for _ in range(self.tries):
            least = self.least(link, within)
            if least < within:
                top, beyond = within, True
            best = max(best, min(least, within))
            if best >= (_CLOSE if beyond else 1.0) * top:
                break
            within = (best + top) / 2 if beyond else min(least, top)
        return best * (1 - _SLACK)

    def least(self, link: LinkModel, within: float) -> float:
        """Return what no schedule is below that takes no longer than `within`, if any does."""
        most: Most = {side: most_rows(self.facts, side, link, within) for side in SIDES}
        return RelaxedProgram(self.facts, most).solve(link)
