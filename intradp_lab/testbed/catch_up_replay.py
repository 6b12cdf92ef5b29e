# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Inferences by the schedules of a book on a link whose rate changes, with own rows for late."""
from __future__ import annotations

from collections.abc import Mapping

from intradp_ros.systems.sharing.book.make_book import PlanningProblem
from intradp_ros.systems.sharing.judge.catch_up_play import CatchUpPlayer
from intradp_ros.systems.sharing.partition.partition import Partition

_USUAL = 8.0  # Mbit/s that decide how large chunks are


class CatchUpPlayers:
    """CatchUpPlayers of all schedules of a book, each made when it is first asked for."""

    def __init__(self, setting: PlanningProblem, partitions: Mapping[int, Partition]) -> None:
        self._setting, self._partitions = setting, partitions
        self._known: dict[Partition, CatchUpPlayer] = {}

    def __getitem__(self, schedule: int) -> CatchUpPlayer:
        """Return the player of a schedule id."""
        partition = self._partitions[schedule]
        if partition not in self._known:
            self._known[partition] = CatchUpPlayer(
                self._setting.cost, self._setting.link(_USUAL), partition)
        return self._known[partition]
