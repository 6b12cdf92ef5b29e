# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A rival that fails is a row; one that wants memory is given more, in a row of its own."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
import sys
from typing import Any

import pytest

from intradp_lab.emulation.device_limits import available, DeviceLimits, limited_devices
from intradp_lab.emulation.processes import ChildError
from intradp_lab.language.demo_scene import MB, rival_rows
from intradp_lab.language.emulated_fleet import Talking
from intradp_ros.core.control_groups import MEMORY
from intradp_ros.core.processes import Command

NEEDS = """
import json, sys
kept = bytearray(int(sys.argv[1]))
print('a library prints')
print(json.dumps({'fate': 'done', 'peak': len(kept)}), flush=True)
"""


def asked(folder: Path, nbytes: int) -> Callable[[int], dict[str, Any]]:
    """Return what runs a rival that needs so many bytes below a limit."""
    def measure(limit: int) -> dict[str, Any]:
        with limited_devices({'rover': DeviceLimits(memory=limit)}, folder,
                             'intradp-limit-test') as groups:
            child = Talking(Command('rival', [sys.executable, '-c', NEEDS, str(nbytes)],
                                    groups=groups.of('rover')), folder / 'rival.log')
            try:
                end = child.hear('fate', 60.0)
            finally:
                child.stop()
        return {'ms_per_token': 1.0, 'peak_mb': {'rover': end['peak'] / MB},
                'limit_mb': {'rover': limit / MB}, 'tokens': [1], 'difference': None}
    return measure


@pytest.mark.skipif(available(MEMORY) is not None, reason=str(available(MEMORY)))
def test_a_rival_below_its_floor_says_so_and_is_measured_with_more(tmp_path: Path) -> None:
    rows = rival_rows('rival', 'rover', 100 * MB, asked(tmp_path, 120 * MB))
    assert list(rows) == ['rival', 'rival, 150 MB']
    assert rows['rival']['failed'] == \
        'out of memory at 100 MB: below what it takes by itself, 120 MB and its files'
    assert rows['rival']['ms_per_token'] is None
    assert not rows['rival, 150 MB']['failed'] and rows['rival, 150 MB']['ms_per_token'] == 1.0


@pytest.mark.skipif(available(MEMORY) is not None, reason=str(available(MEMORY)))
def test_one_that_no_memory_is_enough_for_is_given_up(tmp_path: Path) -> None:
    rows = rival_rows('rival', 'rover', 60 * MB, asked(tmp_path, 4000 * MB))
    assert [row['failed'] for row in rows.values()] == [
        f'out of memory at {mb} MB' for mb in (60, 90, 135, 202)]


@pytest.mark.parametrize(('error', 'said'), [
    (ChildError('a page of its log', 'ended with code 1'), 'ended with code 1'),
    (ModuleNotFoundError("No module named 'accelerate'"), "No module named 'accelerate'"),
    (OSError(28, 'No space left on device'), '[Errno 28] No space left on device')])
def test_whatever_becomes_of_a_rival_is_a_row(error: Exception, said: str) -> None:
    def measure(limit: int) -> dict[str, Any]:
        raise error

    assert [row['failed'] for row in rival_rows('rival', 'a', 1, measure).values()] == [said]
