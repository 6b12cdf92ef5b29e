# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The systems that are compared: which strategy of which book each one is."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from intradp_lab.report.statements import EVOLVED, FRUGAL, OURS
from intradp_lab.rivals.entries import DSCCS, SPSO_GA
from intradp_lab.testbed.evaluation_results import INPUTS, INTRA_DP, SENSOR
from intradp_lab.testbed.trial import Phase
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    OFFLOAD,
    SHARED,
)

BOOK, ENERGY_BOOK = 'book.json', 'energy.json'
INTRA_DP_BOOK, EVOLVED_BOOK = 'intra-dp.json', 'shared-de.json'
#: Emulated devices that wait for nobody take the same time for every frame: a few say all.
ALONE_SECONDS = 2.0
#: Inferences that a system makes in any case, however slow it is.
LEAST_FRAMES = 6


@dataclass(frozen=True)
class System:
    """
    A strategy of a book, run with some kinds of input.

    `linked` unless it never uses the link.
    """

    book: str
    strategy: str
    linked: bool = True
    inputs: tuple[str, ...] = INPUTS


SYSTEMS = {
    LOCAL: System(BOOK, LOCAL, linked=False), OFFLOAD: System(BOOK, OFFLOAD),
    DSCCS: System(BOOK, DSCCS), SPSO_GA: System(BOOK, SPSO_GA),
    INTRA_DP: System(INTRA_DP_BOOK, SHARED), EVOLVED: System(EVOLVED_BOOK, SHARED),
    OURS: System(BOOK, SHARED), FRUGAL: System(ENERGY_BOOK, SHARED, inputs=(SENSOR,))}


def phases(names: Sequence[str], inputs: str, books: Path, seconds: float) -> tuple[Phase, ...]:
    """Return what a robot shall do to compare systems, with the books of a folder."""
    return tuple(
        Phase(name, str((books / SYSTEMS[name].book).resolve()), SYSTEMS[name].strategy,
              seconds if SYSTEMS[name].linked else min(seconds, ALONE_SECONDS), LEAST_FRAMES)
        for name in names if inputs in SYSTEMS[name].inputs)
