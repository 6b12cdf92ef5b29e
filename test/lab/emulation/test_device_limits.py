# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Emulated devices have the processor, memory and disk that they were given, and no more."""
from __future__ import annotations

import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import pytest

from intradp_lab.emulation.device_limits import (
    available,
    DeviceLimits,
    limited_devices,
    LimitedDevices,
    LimitError,
    remove_stale,
    settings,
)
from intradp_lab.emulation.processes import Child, ChildError, starter
from intradp_ros.core.control_groups import CPU, DISK, Hierarchy, MEMORY
from intradp_ros.core.processes import Command

PREFIX = 'intradp-limit-test'


def needs(kind: str) -> pytest.MarkDecorator:
    reason = available(kind)
    return pytest.mark.skipif(reason is not None, reason=str(reason))


def run(limited: LimitedDevices, code: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*limited.exec_prefix('a'), sys.executable, '-I', '-S', '-c', code, *map(str, words)],
        stdout=subprocess.PIPE, text=True, check=False, timeout=120)


BUSY = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass
print(time.process_time())
"""


@needs(CPU)
def test_a_quota_of_half_a_core_is_half_a_core() -> None:
    """Other work may keep it from using its quota, as the kernel says; never from keeping it."""
    seconds = 4.0
    with limited_devices({'a': DeviceLimits(cpus=0.5)}, prefix=PREFIX) as limited:
        begin = time.monotonic()
        busy = run(limited, BUSY, seconds)
        lasted = time.monotonic() - begin
        (group,) = limited.groups['a']
        reported = dict(line.split() for line in (group / 'cpu.stat').read_text().splitlines())
    assert busy.returncode == 0
    used = float(busy.stdout) / seconds
    throttled = int(reported['nr_throttled']) / int(reported['nr_periods'])
    assert used <= 0.5 * 1.15
    assert used >= 0.5 * 0.85 * throttled, (used, throttled, lasted)
    assert throttled > 0


@needs(MEMORY)
def test_who_takes_more_memory_than_there_is_is_ended_and_others_are_not() -> None:
    code = 'import sys; kept = bytearray(int(sys.argv[1]) << 20); print(len(kept) >> 20)'
    with limited_devices({'a': DeviceLimits(memory=128 << 20)}, prefix=PREFIX) as limited:
        assert run(limited, code, 64).stdout == '64\n'
        assert run(limited, code, 256).returncode == -signal.SIGKILL


@needs(MEMORY)
def test_who_was_killed_for_memory_is_said_to_have_been_and_others_are_not(tmp_path: Path) -> None:
    """Both are killed by the same signal; only the kernel's count tells why."""
    greedy = 'kept = bytearray(512 << 20); print(len(kept))'
    with limited_devices({'a': DeviceLimits(memory=64_000_000)}, prefix=PREFIX) as limited, \
            starter(tmp_path) as start:
        def started(name: str, code: str) -> Child:
            return start(Command(name, [sys.executable, '-I', '-S', '-c', code],
                                 groups=limited.of('a')))
        greedy_child, patient = started('greedy', greedy), started(
            'patient', 'import time; print("ready", flush=True); time.sleep(600)')
        with pytest.raises(ChildError, match=r'was killed: out of memory at 64 MB before it '
                           r'printed /\\d/; it printed nothing') as caught:
            greedy_child.wait_for_line(r'\d', 60.0)
        assert caught.value.what == 'out of memory at 64 MB'
        patient.wait_for_line('ready', 60.0)
        own = started('killed', 'import time; time.sleep(600)')
        own.kill()
        assert str(own.end) == 'was killed (SIGKILL)' and not own.end.out_of_memory


READ = """
import os, sys, time
handle = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
begin = time.monotonic()
while os.read(handle, 1 << 18):
    pass
print(time.monotonic() - begin)
"""


@needs(DISK)
def test_a_limit_of_reading_holds() -> None:
    nbytes, rate = 24_000_000, 8e6
    path = Path('/var/tmp') / f'intradp-test-{os.getpid()}'
    try:
        with path.open('wb') as file:
            file.write(os.urandom(nbytes))
            file.flush()
            os.fsync(file.fileno())
        with limited_devices({'a': DeviceLimits(disk=rate)}, path.parent, PREFIX) as limited:
            held = float(run(limited, READ, path).stdout)
        free = float(run(LimitedDevices({}), READ, path).stdout)
    finally:
        path.unlink(missing_ok=True)
    assert held >= 0.85 * nbytes / rate
    assert held > free


@needs(CPU)
def test_nothing_is_left_behind_not_even_processes() -> None:
    with limited_devices({'a': DeviceLimits(cpus=0.5)}, prefix=PREFIX) as limited:
        left = subprocess.Popen([*limited.exec_prefix('a'), 'sleep', '100'])
        (group,) = limited.groups['a']
        while str(left.pid) not in (group / 'cgroup.procs').read_text().split():
            time.sleep(0.01)
    assert left.wait(60) == -signal.SIGKILL
    assert not group.exists()


OWNER = """
import sys, time
from intradp_lab.emulation.device_limits import DeviceLimits, limited_devices
with limited_devices({'a': DeviceLimits(cpus=0.5)}, prefix=sys.argv[1]) as limited:
    print(*limited.groups['a'], flush=True)
    time.sleep(100)
"""


@needs(CPU)
def test_what_a_killed_owner_left_is_removed_by_the_next() -> None:
    owner = subprocess.Popen([sys.executable, '-c', OWNER, PREFIX], stdout=subprocess.PIPE,
                             text=True)
    assert owner.stdout
    group = Path(owner.stdout.readline().strip())
    assert group.is_dir()
    assert group not in remove_stale({Hierarchy(1, group.parent)}, PREFIX) and group.is_dir()
    owner.kill()
    owner.wait()
    with limited_devices({'b': DeviceLimits(cpus=0.1)}, prefix=PREFIX):
        assert not group.exists()


@needs(CPU)
def test_a_device_without_limits_has_none_and_all_together_have_one_machine() -> None:
    with limited_devices({'a': DeviceLimits(), 'b': DeviceLimits(cpus=0.5)},
                         prefix=PREFIX) as limited:
        assert limited.exec_prefix('a') == limited.exec_prefix('c') == []
        assert limited.exec_prefix('b')
    cores = os.cpu_count() or 1
    with pytest.raises(ValueError, match=f'{cores} cores'), \
            limited_devices(dict.fromkeys('ab', DeviceLimits(cpus=0.6 * cores))):
        pass


def test_what_is_written_is_what_each_version_reads() -> None:
    limits = DeviceLimits(0.5, 1 << 20, 8e6)
    assert settings(limits, 2, ['8:0']) == {
        CPU: {'cpu.max': '10000 20000', 'cpu.weight': '2000'},
        MEMORY: {'memory.max': '1048576', 'memory.swap.max': '0'},
        DISK: {'io.max': '8:0 rbps=8000000'}}
    assert settings(limits, 1, ['8:0'])[DISK] == \
        {'blkio.throttle.read_bps_device': '8:0 8000000'}


def test_a_folder_on_no_disk_cannot_be_limited() -> None:
    if available(DISK):
        pytest.skip(str(available(DISK)))
    with pytest.raises(LimitError, match='no disk'), \
            limited_devices({'a': DeviceLimits(disk=1e6)}, Path('/proc'), PREFIX):
        pass
