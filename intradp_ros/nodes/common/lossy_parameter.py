# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Lossy encodings on the nodes: the parameter that allows one, and a report of what it does."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import Any

import torch

from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.session.rehearsal import lossy_difference
from intradp_ros.wire.codecs.names import LOSSY, NONE

LOSSY_PARAMETER = Parameter(
    'lossy', NONE, 'A lossy encoding that values may cross the link in, allowed by planner and '
    'robot alike; with none, results are exact.', choices=(NONE, *LOSSY))


def allowed(parameters: Mapping[str, Any]) -> str:
    """Return the lossy encoding that parameters allow, '' for none."""
    name = str(parameters[LOSSY_PARAMETER.name])
    return '' if name == NONE else name


def report_difference(model: SharedModel, book: ScheduleBook, inputs: Sequence[torch.Tensor],
                      report: Callable[[str], object]) -> None:
    """
    Report what a book's lossy encoding does to the outputs, if it has one.

    That takes an inference for each of its schedules, on a thread of its own.
    """
    def measure() -> None:
        difference = lossy_difference(model, book, inputs)
        report(f'values cross as {book.lossy}: on the example, outputs differ by up to '
             f'{difference:.2g} of their spread')

    if book.lossy:
        Thread(target=measure, name='lossy-difference', daemon=True).start()
