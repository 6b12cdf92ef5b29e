# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whatever `intradp model add` is given: one line that names the cause, never a traceback."""
from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip('onnx')
if find_spec('onnx2torch') is None:
    pytest.skip('onnx2torch is not installed', allow_module_level=True)

from odd_files import Make, ODD  # noqa: E402


@pytest.mark.parametrize(('name', 'make', 'options', 'says'), ODD, ids=[
    f'{name} {n}' for n, (name, *_) in enumerate(ODD)])
def test_a_file_that_cannot_be_is_refused_in_one_line(
        intradp, tmp_path: Path, name: str, make: Make, options: tuple[str, ...],
        says: str) -> None:
    path, out = tmp_path / name, tmp_path / 'a.graph'
    make(path)
    result = intradp('model', 'add', path, *options, '--out', out)
    line = result.err.rstrip('\n').rpartition('\n')[2]
    assert result.status == 2 and says in line, result.err
    assert line.startswith(('intradp model: ', 'intradp model add: ')) and len(line) < 1000
    assert 'Traceback' not in result.err and not out.exists()
    assert not path.with_suffix('.ran').exists()
