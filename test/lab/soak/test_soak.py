# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time

import pytest
from resident import needs_proc

from intradp_lab.soak.frame_row import FrameRow
from intradp_lab.soak.process_resources import growth, process_resources, ProcessResources
from intradp_lab.soak.small_disk import filled, small_disk
from intradp_lab.soak.soak import figures, Happened, SoakRecord
from intradp_lab.soak.wall_clock import wall_clocks
from intradp_ros.cli.main import main


def row(at: float, answer: float = 0.1, difference: float = 1e-6, recovered: bool = False,
        shared: bool = True, by_rows: bool = False) -> FrameRow:
    return FrameRow(at, answer, difference, shared and not recovered, recovered, by_rows)


def test_lost_and_wrong_frames_count_and_belong_to_the_fault_that_lasted() -> None:
    nan = math.nan
    cuts = [Happened('link_cut', 1.0, 2.0), Happened('link_cut', 5.0, 6.0)]
    record = SoakRecord(True, {}, cuts, {}, [
        row(0.0), row(1.5, recovered=True, answer=0.3), row(5.5, nan, nan),
        row(7.0, difference=nan), row(8.0, difference=0.1)])
    found = figures(record)
    assert (found.frames, found.lost, found.wrong, found.recovered) == (5, 1, 2, 1)
    cut = found.faults['link_cut']
    assert (cut.times, cut.frames, cut.lost, cut.recovered) == (2, 2, 1, 1)
    assert cut.longest_ms == pytest.approx(300) and not found.well


def test_who_computed_is_reported_with_and_without_a_fault() -> None:
    cut, killed = Happened('link_cut', 1.0, 2.0), Happened('server_killed', 3.0, 4.0)
    found = figures(SoakRecord(True, {}, [cut, killed], {}, [
        row(0.0, by_rows=True), row(1.5, recovered=True), row(1.6, shared=False),
        row(2.5, by_rows=True), row(3.5), row(9.0)]))
    quiet, cut_figures, kill_figures = (
        (f.by_rows, f.otherwise_shared, f.recovered, f.alone)
        for f in (found.quiet, *found.faults.values()))
    assert quiet == (2, 1, 0, 0) and cut_figures == (0, 0, 1, 1) and kill_figures == (0, 1, 0, 0)


def test_answers_that_are_all_right_are_well() -> None:
    assert figures(SoakRecord(False, {}, [], {}, [row(0.0), row(1.0)])).well
    assert not figures(SoakRecord(False)).well


def test_growth_leaves_out_the_beginning() -> None:
    samples = [ProcessResources(7, t, 500 if t < 2 else 100 + t, 5, 9) for t in range(20)]
    found = growth(samples)
    assert found and found.early.resident_bytes == 102 and found.late.resident_bytes == 118
    assert found.memory == pytest.approx(118 / 102 - 1)
    assert growth(samples[:9]) is None


def test_growth_is_that_of_one_process() -> None:
    """One that was started again later, and is small as yet, must not hide it."""
    samples = [ProcessResources(7 if t < 20 else 8, t, 100 + t, 5, 9) for t in range(30)]
    assert growth(samples) == growth(samples[:20])


@needs_proc
def test_children_count_for_their_parent() -> None:
    code = 'import subprocess, sys; subprocess.run([sys.executable, "-c", "input()"])'
    with subprocess.Popen([sys.executable, '-c', code], stdin=subprocess.PIPE) as process:
        end, alone = time.monotonic() + 60, process_resources(os.getpid(), 0.0)
        while (found := process_resources(process.pid, 0.0)) is None or found.threads < 2:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert alone and found.descriptors > 2 and found.resident_bytes > 1e6
        process.communicate(b'\n')
    assert process_resources(process.pid, 0.0) is None


def test_a_folder_with_anything_in_it_is_left_alone(
        tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / 'mine').write_text('x')
    assert main(['bench', 'soak', '--out', str(tmp_path)]) == 2
    assert 'is not empty' in capsys.readouterr().err and (tmp_path / 'mine').exists()


@pytest.mark.skipif(os.geteuid() != 0, reason='mounting needs root')
def test_a_disk_is_full_for_a_while_and_gone_in_the_end(tmp_path) -> None:
    folder = tmp_path / 'cache'
    with small_disk(folder, 1) as own:
        if not own:
            pytest.skip('this machine lets even root not mount a disk')
        with filled(folder), pytest.raises(OSError, match='No space left'):
            (folder / 'book').write_bytes(bytes(1 << 12))
        (folder / 'book').write_bytes(bytes(1 << 12))
    assert not list(folder.iterdir())


WALL_CLOCK = """
import ctypes, sys, time
libc, semaphore = ctypes.CDLL(None), ctypes.create_string_buffer(64)
libc.sem_init(semaphore, 0, 0)
for _ in sys.stdin:
    wall, begin = time.time(), time.monotonic()
    libc.sem_timedwait(semaphore, (ctypes.c_long * 2)(int(wall) + 1, int(wall % 1 * 1e9)))
    time.sleep(0.1)
    print(wall, begin, time.monotonic() - begin, flush=True)
"""


@pytest.mark.skipif(sys.platform != 'linux' or not shutil.which('cc'),
                    reason='needs Linux and a C compiler')
def test_a_wall_clock_jumps_for_its_processes_only(tmp_path) -> None:
    """Waits are as long as ever, also until a time of the wall clock."""
    clocks = wall_clocks(('robot',), tmp_path)
    with subprocess.Popen([sys.executable, '-c', WALL_CLOCK], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE,
                          env={**os.environ, **clocks['robot'].environment()}) as process:
        for ahead in 0, 3600, -3600, 0:
            clocks['robot'].set_ahead(ahead)
            process.stdin.write('\n')
            process.stdin.flush()
            wall, monotonic, waited = map(float, process.stdout.readline().split())
            assert wall - time.time() == pytest.approx(ahead, abs=10.0)
            assert monotonic == pytest.approx(time.monotonic(), abs=10.0)
            assert 1.0 < waited < 10.0
        process.stdin.close()


def test_a_wall_clock_that_cannot_be_preloaded_is_none(tmp_path) -> None:
    """Else its processes would start without it, and nothing would jump."""
    folder = tmp_path / 'two words'
    folder.mkdir()
    assert not wall_clocks(('robot',), folder)


@pytest.mark.slow
def test_half_a_minute_of_faults_loses_nothing(tmp_path) -> None:
    out = tmp_path / 'soak'
    assert main(['bench', 'soak', '--minutes', '0.5', '--out', str(out), '--json']) == 0
    assert (out / 'soak.json').exists() and (out / 'soak.png').exists()
