# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Sentences say what the figures say, also where sharing loses."""
from __future__ import annotations

from typing import Any

import pytest

from intradp_lab.report.statements import emulation_remarks, headline, remarks


def row(mean: float, **more: Any) -> dict[str, Any]:
    return {'mean_ms': mean, 'energy_j': mean / 100, 'error_median': 0.02, 'recovered': 0,
            'frames': 10, **more}


@pytest.mark.parametrize('ours, words', [
    (60.0, 'Sharing wins: 60.0 ms an inference, 25 % less than offload'),
    (100.0, 'Sharing loses: 100 ms an inference, 25 % more than offload (80.0 ms)'),
    (81.0, 'No difference'), (79.0, 'No difference')])
def test_the_headline_compares_with_the_best_of_the_others(ours: float, words: str) -> None:
    rows = {'local': row(200.0), 'offload': row(80.0), 'shared': row(ours)}
    assert headline(rows).startswith(words)


def test_a_system_alone_is_compared_with_nothing() -> None:
    assert headline({'local': row(200.0)}) == 'local takes 200 ms an inference in the mean.'
    assert remarks({'local': row(200.0)}, None) == []


def test_remarks_tell_the_bound_energy_misses_and_outages() -> None:
    rows = {'offload': row(80.0), 'shared': row(60.0, error_median=0.3, recovered=2)}
    bound, energy, missed, outage = remarks(rows, 40.0)
    assert '40.0 ms' in bound and 'shared 1.50, offload 2.00' in bound
    assert 'least energy: 0.60 J' in energy and 'modelled' in energy
    assert '30 %' in missed and outage.startswith('2 of 10')


def test_the_most_frugal_system_is_named() -> None:
    rows = {'offload': row(80.0, energy_j=0.1), 'shared': row(60.0)}
    assert 'offload is the most frugal with 0.10 J' in remarks(rows, None)[0]


@pytest.mark.parametrize('error, said', [(0.01, 0), (0.2, 1)])
def test_devices_that_were_emulated_badly_are_reported(error: float, said: int) -> None:
    rows = {'local': row(100.0, error_median=error), 'offload': row(80.0, error_median=0.5)}
    found = emulation_remarks([rows])
    assert len(found) == said and all('20 %' in text for text in found)
    assert set(found) <= set(remarks(rows, None))
