# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A disk is measured once; what was measured is kept for this machine and file system."""
import json
from pathlib import Path

import pytest

from intradp_ros.profiling import disk
from intradp_ros.profiling.disk import disk_rate, DiskRate, measure_disk


def test_a_disk_has_a_rate_and_nothing_is_left_on_it(tmp_path: Path) -> None:
    found = measure_disk(tmp_path, 4 << 20)
    assert found.bytes_per_second > 0
    assert not list(tmp_path.iterdir())


def test_the_rate_is_measured_once_and_again_where_its_file_is_damaged(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter((1e6, 2e6))
    monkeypatch.setattr(disk, 'measure_disk', lambda folder: DiskRate(next(rates), True))
    folder, cache = tmp_path / 'store', tmp_path / 'cache'
    assert disk_rate(folder, cache) == disk_rate(folder, cache) == DiskRate(1e6, True)
    [kept] = (cache / 'profiles').iterdir()
    for damage in ('{', '[]', '{"bytes_per_second": "x", "direct": 1}', json.dumps({})):
        kept.write_text(damage)
    assert disk_rate(folder, cache) == DiskRate(2e6, True)
