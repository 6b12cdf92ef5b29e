# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The solvers by name."""
from __future__ import annotations

from collections.abc import Mapping

from intradp_ros.planning.loss import de
from intradp_ros.planning.search import search
from intradp_ros.planning.solving import Solver

SOLVERS: Mapping[str, Solver] = {'de': de, 'search': search}

__all__ = ['Solver', 'SOLVERS']
