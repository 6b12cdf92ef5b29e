# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Control groups of the kernel, versions 1 and 2 as they are mounted: where this process is."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

CPU, MEMORY, DISK = 'cpu', 'memory', 'disk'
#: What the kernel calls these controllers, by version.
CONTROLLERS: Mapping[int, Mapping[str, str]] = MappingProxyType({
    1: {CPU: 'cpu', MEMORY: 'memory', DISK: 'blkio'},
    2: {CPU: 'cpu', MEMORY: 'memory', DISK: 'io'}})
#: The file of a group with its limit of memory, and that in which the kernel counts its kills.
_LIMIT = {1: 'memory.limit_in_bytes', 2: 'memory.max'}
_KILLS = {1: 'memory.oom_control', 2: 'memory.events'}
#: Bytes; a limit of version 1 above them is none.
_NO_LIMIT = 1 << 60
_ENTER = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 125; shift; done; ' \
    'shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted tree of control groups, and a place in it."""

    version: int
    place: Path


def hierarchies(mounts: str, groups: str) -> dict[str, Hierarchy]:
    """
    Return where each of `CPU`, `MEMORY` and `DISK` can be limited, of those that can.

    `mounts` and `groups` are the texts of mountinfo and cgroup in ``/proc/self``.
    """
    own = {name: path for _, names, path in (line.split(':', 2) for line in groups.splitlines())
           for name in names.split(',')}
    found: dict[str, Hierarchy] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(' - ')
        root, mount = before.split()[3:5]
        kind, _, options = after.split(maxsplit=2)
        version = {'cgroup': 1, 'cgroup2': 2}.get(kind)
        if version is None:
            continue
        for limit, controller in CONTROLLERS[version].items():
            known = controller in options.split(',') if version == 1 else '' in own
            path = own.get(controller if version == 1 else '', '/')
            if known and (version == 1 or limit not in found):
                inside = path.removeprefix(root.rstrip('/')).strip('/')
                found[limit] = Hierarchy(version, Path(mount) / inside)
    return found


def own_hierarchies() -> dict[str, Hierarchy]:
    """Return `hierarchies` of this process; OSError where there is no such kernel."""
    return hierarchies(Path('/proc/self/mountinfo').read_text(),
                       Path('/proc/self/cgroup').read_text())


def memory_limit(group: Hierarchy) -> int | None:
    """Return the bytes that a group, or the one above it with the least, may have; None if any."""
    found = []
    for place in (group.place, *group.place.parents):
        try:
            text = (place / _LIMIT[group.version]).read_text().strip()
        except OSError:  # the root of version 2 has no limit, what is above the mount no file
            continue
        if text != 'max' and int(text) < _NO_LIMIT:
            found.append(int(text))
    return min(found, default=None)


def memory_kills(group: Hierarchy) -> int:
    """Return how many processes the kernel has killed in a group for its memory; 0 if unknown."""
    try:
        text = (group.place / _KILLS[group.version]).read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines()
                 if line.split()[:1] == ['oom_kill']), 0)


def entering(groups: Sequence[Path]) -> list[str]:
    """Return the words to put before a command to run it in control groups."""
    return ['sh', '-c', _ENTER, 'limited', *map(str, groups), '--'] if groups else []


def memory_group(groups: Sequence[Path]) -> Hierarchy | None:
    """Return the one of a device's groups that limits its memory, None if its memory is not."""
    found = [Hierarchy(version, group) for group in groups
             for version, file in _LIMIT.items()
             if (group / file).exists()]
    return found[0] if found else None
