# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Schedules: what each device computes, sends and waits for, in order.

A schedule says nothing of how it was found and names devices only by id, so
that the simulator and the runtime take any number of them.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from intradp_ros.split.regions.region import Region
from intradp_ros.wire.codecs.names import NONE

ROBOT = 'robot'
SERVER = 'server'
SIDES = (ROBOT, SERVER)


@dataclass(frozen=True, slots=True)
class Compute:
    """Run an operator for a region of its output rows."""

    operator: int
    region: Region


@dataclass(frozen=True, slots=True)
class Send:
    """Hand a transfer to the link; its rows are there."""

    transfer: int


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait until a transfer is there."""

    transfer: int


Step = Compute | Send | Receive


@dataclass(frozen=True, slots=True)
class Transfer:
    """
    Rows of a value that cross the link from one device to another.

    `encoding` is the one to send them in; they may always come plain.
    """

    id: int
    value: int
    region: Region
    source: str
    target: str
    encoding: str = NONE


@dataclass(frozen=True)
class Schedule:
    """
    The programs of all devices for one inference, and the transfers between them.

    Transfers of one source are sent in the order of its program.
    """

    transfers: tuple[Transfer, ...]
    programs: Mapping[str, tuple[Step, ...]]

    def between(self, source: str, target: str) -> tuple[Transfer, ...]:
        """Return the transfers from one device to another."""
        return tuple(t for t in self.transfers if t.source == source and t.target == target)
