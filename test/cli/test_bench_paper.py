# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A case of the evaluation that fails runs once more."""
from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from intradp_lab.cli.bench_paper import _run_case
from intradp_lab.emulation.processes import ChildError
from intradp_ros.cli.output import Output


class Failing:
    """A case that fails so many times."""

    def __init__(self, failures: int) -> None:
        self.failures, self.output = failures, StringIO()
        console = Console(file=self.output)
        self.out = Output(console, console, None)

    def __call__(self) -> Any:
        """Fail, or return what came of it."""
        self.failures -= 1
        if self.failures >= 0:
            raise ChildError('they never met')
        return 'figures'


def test_a_case_that_fails_once_is_reported_and_runs_again() -> None:
    case = Failing(1)
    assert _run_case(case, 'hed sensor', case.out) == 'figures'
    assert 'hed sensor failed, and runs once more: they never met' in case.output.getvalue()


def test_a_case_that_fails_twice_has_failed() -> None:
    case = Failing(2)
    with pytest.raises(ChildError):
        _run_case(case, 'hed sensor', case.out)
    assert case.failures == 0
