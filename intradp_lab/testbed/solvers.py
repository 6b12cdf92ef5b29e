# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The solvers by name."""
from __future__ import annotations

from collections.abc import Mapping

from intradp_ros.systems.sharing.search.annealing import search
from intradp_ros.systems.sharing.search.differential_evolution import de
from intradp_ros.systems.sharing.search.solving import Solver

SOLVERS: Mapping[str, Solver] = {'de': de, 'search': search}

__all__ = ['Solver', 'SOLVERS']
