# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Other work takes the part of the time that it is asked to take."""
from __future__ import annotations

from itertools import islice
import os
from pathlib import Path
import time

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_lab.emulation.other_work import bursts, rest
from intradp_lab.emulation.processes import starter
from intradp_ros.core.processes import Command, module_arguments


@settings(max_examples=50)
@given(st.floats(0.05, 1.0), st.integers(0, 99))
def test_bursts_keep_to_their_part(part: float, seed: int) -> None:
    works = list(islice(bursts(0.05, 2.0, seed), 20))
    rests = [rest(work, part) for work in works]
    assert sum(works) / (sum(works) + sum(rests)) == pytest.approx(part)
    assert all(0.05 <= work <= 2.0 for work in works) and len(set(works)) > 10


@pytest.mark.parametrize('options', [(), ('--memory',)])
def test_the_process_works_and_rests(tmp_path: Path, options: tuple[str, ...]) -> None:
    with starter(tmp_path) as start:
        child = start(Command('work', module_arguments(
            'intradp_lab.emulation.other_work', '--part', '0.2', '--bursts', '0.01', '0.02',
            *options)))
        child.wait_for_line('^begins$', 60.0)
        before = _processor_seconds(child.pid)
        begin = time.monotonic()
        while _processor_seconds(child.pid) < before + 0.5:
            time.sleep(0.02)
        assert time.monotonic() - begin > 1.5  # 2.5 on a free core, 0.5 without rest
        child.kill()


def _processor_seconds(pid: int) -> float:
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
