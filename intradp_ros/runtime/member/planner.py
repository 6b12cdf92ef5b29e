# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What makes the plans of one format for a coordinator: the interface to the systems."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from intradp_ros.cluster.fleet_messages import Heartbeat
from intradp_ros.runtime.member.role import Plan
from intradp_ros.wire.frames import Control, MalformedFrameError


@dataclass(frozen=True)
class Proposal:
    """A plan, and the boundary (frame, token, round) from which it is used; 0: from now on."""

    plan: Plan
    boundary: int = 0


class Planner(Protocol):
    """
    One system's planner in one coordinator; inherit from it: `look` and `text` have defaults.

    `heard` is called by the channel's threads, several at once, and must return at once;
    `plan` and `look` are called on threads of their own, and may take seconds.  Only the
    coordinator that leads calls `plan` and `look`.
    """

    #: Name of the plans that it makes.
    format: str  # noqa: A003
    #: Whether there is nothing to do, so that no plan is not an error.
    rests: bool = False
    #: Why there was no plan the last time; '' where nothing is known but that there is none.
    why: str = ''
    #: The devices that it could plan for: that there is no plan is not said before they had time.
    devices: Collection[str] = ()

    def plan(self, alive: frozenset[str], now: float) -> Proposal | None:
        """
        Return the plan for the devices that are there; None where there is none.

        Called when the fleet needs a plan: at the start, when devices come or go, when one
        cannot run the plan in use.
        """

    def look(self, now: float) -> Proposal | None:
        """Return the plan that should be in use now (called once a second); None: no other."""
        return None

    def heard(self, beat: Heartbeat, now: float) -> None:
        """Take a heartbeat: what a device measured of links, battery and requests."""
        return None

    def forget(self, device: str) -> None:
        """Forget what a device said: it is gone, and others that came are remembered."""
        return None

    def handle(self, peer: str, frame: Control) -> None:
        """
        Take lines that a device's role sends (`line_way.py`); must return at once.

        :raises MalformedFrameError: if they make no sense; they are counted and dropped.
        """
        raise MalformedFrameError(f'{frame.kind.name} for {self.format}', 'kind')

    def status(self) -> Mapping[str, Any]:
        """Return values for diagnostics."""
        return {}

    def text(self, plan: Plan) -> str:
        """Return a plan in a few lines for people."""
        return ', '.join(plan.participants)


class PlannerOf(Planner):
    """The planner that a function is: of the devices that are there it makes a plan, or None."""

    def __init__(self, format_: str, make: Callable[[frozenset[str]], Plan | None]) -> None:
        self.format, self._make = format_, make

    def plan(self, alive: frozenset[str], now: float) -> Proposal | None:
        """Return what the function makes."""
        plan = self._make(alive)
        return Proposal(plan) if plan else None
