# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What is compiled is kept where that can be, and compiled again where it cannot."""
from __future__ import annotations

from pathlib import Path
import warnings

from dispositions import files_of_at_most
import pytest

from intradp_ros.core import steady
from intradp_ros.core.numba_compile import machine_code


def twice(number: int) -> int:
    """Return a number twice."""
    return 2 * number


def test_a_full_disk_and_damaged_files_are_done_without(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest.importorskip('numba').config, 'CACHE_DIR', str(tmp_path))

    def answer() -> int:
        compiled = machine_code((steady,), [twice])
        assert compiled is not None
        return int(compiled[0](21))
    with files_of_at_most(100), pytest.warns(match='kept in .*File too large.*NUMBA_CACHE_DIR'):
        assert answer() == 42
    assert not [path for path in tmp_path.rglob('*') if path.is_file()]
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert answer() == 42
        kept = {path: path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()}
        assert {path.suffix for path in kept} == {'.nbi', '.nbc'}
        for path in kept:
            path.write_bytes(b'')
            assert answer() == 42
            assert path.read_bytes(), 'it is whole again'
