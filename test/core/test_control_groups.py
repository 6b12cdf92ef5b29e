# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Where control groups are, by the kernel's own tables, and what they say of memory."""
from __future__ import annotations

from pathlib import Path
import signal

import pytest

from intradp_ros.core.child_end import ChildEnd, ChildWatch
from intradp_ros.core.control_groups import (
    CPU,
    DISK,
    hierarchies,
    Hierarchy,
    MEMORY,
    memory_kills,
    memory_limit,
)

MIXED = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /box /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


def test_each_version_is_used_where_it_is_mounted() -> None:
    found = hierarchies(MIXED, '4:memory:/box/own\n1:cpu,cpuacct:/some\n0::/\n')
    assert found == {CPU: Hierarchy(1, Path('/sys/fs/cgroup/cpu/some')),
                     MEMORY: Hierarchy(1, Path('/sys/fs/cgroup/memory/own')),
                     DISK: Hierarchy(2, Path('/sys/fs/cgroup/unified'))}
    one = '25 20 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n'
    assert set(hierarchies(one, '0::/user\n').values()) == \
        {Hierarchy(2, Path('/sys/fs/cgroup/user'))}
    assert hierarchies('', '') == {}


def group(folder: Path, version: int, limit: str, kills: int) -> Hierarchy:
    """Write the files of a group as each version of the kernel shows them."""
    folder.mkdir(parents=True, exist_ok=True)
    if version == 1:
        (folder / 'memory.limit_in_bytes').write_text(f'{limit}\n')
        (folder / 'memory.oom_control').write_text(
            f'oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n')
    else:
        (folder / 'memory.max').write_text(f'{limit}\n')
        (folder / 'memory.events').write_text(f'low 0\noom 7\noom_kill {kills}\n')
    return Hierarchy(version, folder)


@pytest.mark.parametrize('version', [1, 2])
def test_the_least_limit_of_all_groups_above_counts(tmp_path: Path, version: int) -> None:
    none = {1: '9223372036854771712', 2: 'max'}[version]
    group(tmp_path / 'a', version, '300000000', 0)
    group(tmp_path / 'a/b', version, '720000000', 0)
    inner = group(tmp_path / 'a/b/c', version, none, 2)
    assert memory_limit(inner) == 300_000_000 and memory_kills(inner) == 2
    assert memory_limit(group(tmp_path / 'z', version, none, 0)) is None
    assert memory_kills(Hierarchy(version, tmp_path / 'nowhere')) == 0


@pytest.mark.parametrize('version', [1, 2])
def test_a_kill_is_one_for_memory_if_the_kernel_has_counted_it(tmp_path: Path, version: int,
                                                              ) -> None:
    watch = ChildWatch(group(tmp_path, version, '720000000', 3))
    assert watch.end(-signal.SIGKILL) == ChildEnd(-signal.SIGKILL)
    group(tmp_path, version, '720000000', 4)
    end = watch.end(-signal.SIGKILL)
    assert str(end) == 'was killed: out of memory at 720 MB'
    assert end.reason == 'out of memory at 720 MB'
    assert str(watch.end(-signal.SIGSEGV)) == 'was ended by SIGSEGV'
    assert str(watch.end(3)) == 'ended with code 3' and watch.end(3).reason == ''


def test_without_a_limit_the_machine_was_out_of_memory(tmp_path: Path) -> None:
    watch = ChildWatch(group(tmp_path, 2, 'max', 0))
    group(tmp_path, 2, 'max', 1)
    assert str(watch.end(-signal.SIGKILL)) == 'was killed: out of memory'
