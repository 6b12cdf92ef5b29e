# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which requests are in which lane, with which pages, and which step of the plan that takes."""
from __future__ import annotations

import math
import time

from intradp_ros.systems.language.head_requests import Request
from intradp_ros.systems.language.lanes import PAGE
from intradp_ros.systems.language.page_table import page_names, PageTable
from intradp_ros.systems.language.segment_plan import SegmentPlan


class Seats:
    """
    Lanes of requests, those that wait for pages in the middle (`paused`), and all pages.

    Pages are given out for `reserve` tokens ahead.  `lane_count` lanes keep all devices at work;
    `step` of the plan is in use, and `wanted_step` should be, as soon as nothing is in flight.
    """

    def __init__(self, reserve: int) -> None:
        self._reserve = reserve
        self.lanes: list[list[Request]] = []
        self.lane_count = 1
        self.paused: list[Request] = []
        self.table = PageTable(0)
        self.plan: SegmentPlan | None = None
        self.step = self.wanted_step = 0
        self.shared_tokens = 0
        self._idle_since = math.inf

    def go_to(self, plan: SegmentPlan, step: int) -> None:
        """Use a step of a plan."""
        self.plan, self.step, self.wanted_step = plan, step, step
        self.table.grow(plan.at(step).pages)

    def begin_anew(self, plan: SegmentPlan, requests: list[Request]) -> None:
        """Use a plan with room for some requests, of which nothing is computed any more."""
        needed = sum(-(-self.reserved(request) // PAGE) for request in requests)
        self.paused = []
        self.go_to(plan, plan.step_for(max(needed, 1)))
        self.table = PageTable(self.table.pages)
        self.lanes = [[] for _ in range(self.lane_count)]
        for request in requests:
            request.pages, request.computed, request.resumed = (), 0, True

    def rest(self, idle: bool, seconds: float) -> None:
        """Go back to the plan's first step after some seconds without requests."""
        now = time.monotonic()
        self._idle_since = min(self._idle_since, now)
        if not idle or self.paused:
            self._idle_since = math.inf
        elif self.step and now - self._idle_since > seconds:
            self.wanted_step = 0

    def seat(self, request: Request) -> None:
        """Put a request that has pages into the shortest lane."""
        min(self.lanes, key=len).append(request)

    def reserved(self, request: Request) -> int:
        """Return the tokens for which a request gets pages: those that it has, and some more."""
        return min(request.prompt + request.most, len(request.tokens) + self._reserve)

    def want_pages(self, more: int) -> bool:
        """Ask for a step of the plan with so many pages more; return whether there is one."""
        assert self.plan
        step = self.plan.step_for(self.table.pages - self.table.free + more)
        if self.plan.at(step).pages <= self.table.pages:
            return False
        self.wanted_step = max(self.wanted_step, step)
        return True

    def has_room(self, request: Request, stop: int) -> bool:
        """
        Get the pages for tokens up to `stop`; False if a request has to wait for them.

        It waits for a step with more pages; where there is none it lets go of its own, so that
        the others can end, and is computed again after them.
        """
        if stop <= len(request.pages) * PAGE:
            return True
        for tokens in (self.reserved(request), stop):
            more = -(-tokens // PAGE) - len(request.pages)
            if found := self.table.take(more * PAGE):
                request.pages += found[0]
                return True
        if not self.want_pages(-(-stop // PAGE) - len(request.pages)):
            self.let_go(request)
        return False

    def let_go(self, request: Request) -> None:
        """Let a request give its pages back, and wait until it is computed again."""
        self.table.give_back(request.pages)
        request.pages, request.computed = (), 0
        for lane in self.lanes:
            if request in lane:
                lane.remove(request)
        self.paused.append(request)
        self.paused.sort(key=lambda r: r.ticket.order)

    def placed(self, request: Request) -> bool:
        """Give a request its pages; what an earlier one computed of them is not computed again."""
        request.names = page_names(request.tokens, request.names)
        # The last token is computed in any case: its logits are wanted.
        found = self.table.take(self.reserved(request),
                                request.names[:(len(request.tokens) - 1) // PAGE])
        if found is None:
            return False
        request.pages, shared = found
        request.computed = shared * PAGE
        self.shared_tokens += request.computed
        return True

    def want_place(self, request: Request) -> None:
        """Ask for a step of the plan with the pages of a request."""
        self.want_pages(-(-self.reserved(request) // PAGE))

    def name_pages(self, request: Request, computed: int) -> None:
        """Let others share the full pages that are computed."""
        request.names = page_names(request.tokens, request.names)
        self.table.name(request.pages, request.names[:computed // PAGE])
