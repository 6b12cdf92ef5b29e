# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What goes wrong in a soak: each fault begins when its context is entered and ends with it."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
import shutil
import signal

from intradp_lab.emulation.processes import Child
from intradp_lab.soak.small_disk import filled
from intradp_lab.soak.soak_site import OTHER_SHAPE, ROBOT, SERVER, SoakSite

Fault = Callable[[SoakSite], AbstractContextManager[None]]
_SLOW = 0.1  # of the link's rate
_LOSS = 0.05
_JUMP = 3600  # seconds


@contextmanager
def server_killed(site: SoakSite) -> Iterator[None]:
    """End the server at once; start another one."""
    site.server.kill()
    yield
    site.server = site.start_server()


@contextmanager
def planner_killed(site: SoakSite) -> Iterator[None]:
    """End the planner at once; start another one."""
    site.planner.kill()
    yield
    site.planner = site.start_planner()


@contextmanager
def server_stopped(site: SoakSite) -> Iterator[None]:
    """Let the server stand still, as a machine does that swaps."""
    with _stopped(site.server):
        yield


@contextmanager
def planner_stopped(site: SoakSite) -> Iterator[None]:
    """Let the planner stand still."""
    with _stopped(site.planner):
        yield


@contextmanager
def link_cut(site: SoakSite) -> Iterator[None]:
    """Interrupt the link both ways."""
    assert site.link
    site.link.cut()
    try:
        yield
    finally:
        site.link.restore()


@contextmanager
def link_slow(site: SoakSite) -> Iterator[None]:
    """Leave a tenth of the link's rate."""
    assert site.link
    site.link.set_rate(_SLOW * site.mbps)
    try:
        yield
    finally:
        site.link.set_rate(site.mbps)


@contextmanager
def link_lossy(site: SoakSite) -> Iterator[None]:
    """Lose one packet in twenty, each way."""
    assert site.link
    site.link.lose(_LOSS)
    try:
        yield
    finally:
        site.link.lose(0.0)


@contextmanager
def robot_loaded(site: SoakSite) -> Iterator[None]:
    """Let another program compute next to the robot."""
    with _loaded(site, ROBOT):
        yield


@contextmanager
def server_loaded(site: SoakSite) -> Iterator[None]:
    """Let another program compute next to the server."""
    with _loaded(site, SERVER):
        yield


@contextmanager
def robot_clock_jumps(site: SoakSite) -> Iterator[None]:
    """Put the wall clock of robot and camera an hour ahead, and back again."""
    with _set_ahead(site, ROBOT, _JUMP):
        yield


@contextmanager
def server_clock_jumps(site: SoakSite) -> Iterator[None]:
    """Put the wall clock of server and planner back by an hour, and ahead again."""
    with _set_ahead(site, SERVER, -_JUMP):
        yield


@contextmanager
def caches_corrupt(site: SoakSite) -> Iterator[None]:
    """Spoil every file of the cache and start server and planner again, who read it."""
    for path in site.cache.rglob('*'):
        if path.is_file():
            path.write_bytes(b'\0' + path.read_bytes()[: path.stat().st_size // 2])
    _restart_readers(site)
    yield


@contextmanager
def disk_full(site: SoakSite) -> Iterator[None]:
    """Leave no room for the cache, and start server and planner again, who would write it."""
    for path in site.cache.rglob('*'):
        if path.is_file():
            path.unlink()
    with filled(site.cache):
        _restart_readers(site)
        yield


@contextmanager
def another_model(site: SoakSite) -> Iterator[None]:
    """Put a server with another model in the server's place."""
    site.server.kill()
    site.server = site.start_server(OTHER_SHAPE, 'other-server')
    yield
    site.server.stop()
    site.server = site.start_server()


@contextmanager
def two_of_a_name(site: SoakSite) -> Iterator[None]:
    """Start a second server of the same name, with another model."""
    second = site.start_server(OTHER_SHAPE, 'second-server')
    yield
    second.stop()


@contextmanager
def _stopped(child: Child) -> Iterator[None]:
    child.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        child.signal(signal.SIGCONT)


def _restart_readers(site: SoakSite) -> None:
    """Kill and start again those who keep files in the cache."""
    site.server.kill()
    site.planner.kill()
    site.server, site.planner = site.start_server(), site.start_planner()


@contextmanager
def _loaded(site: SoakSite, side: str) -> Iterator[None]:
    load = site.start_load(side)
    try:
        yield
    finally:
        load.kill()


@contextmanager
def _set_ahead(site: SoakSite, side: str, seconds: int) -> Iterator[None]:
    site.clocks[side].set_ahead(seconds)
    try:
        yield
    finally:
        site.clocks[side].set_ahead(0)


_OF_PROCESSES: tuple[Fault, ...] = (
    server_killed, server_stopped, planner_killed, planner_stopped, robot_loaded, server_loaded,
    caches_corrupt, another_model, two_of_a_name)


def faults_of(site: SoakSite) -> Mapping[str, Fault]:
    """Return the faults that can be made here, by name; `left_out` has the others."""
    possible = {link_cut: site.link, link_slow: site.link, link_lossy: _can_lose(site),
                disk_full: site.own_disk, robot_clock_jumps: site.clocks,
                server_clock_jumps: site.clocks}
    faults = (*_OF_PROCESSES, *(fault for fault, can in possible.items() if can))
    return {fault.__name__: fault for fault in faults}


def left_out(site: SoakSite) -> Mapping[str, str]:
    """Return the faults that cannot be made here, with why and the fix."""
    missing = {}
    if not site.link:
        missing['link_cut, link_slow, link_lossy'] = 'there is no emulated link; run as root'
    elif not _can_lose(site):
        missing['link_lossy'] = "the command 'nft' is missing; install it: apt install nftables"
    if not site.own_disk:
        missing['disk_full'] = 'the cache has no disk of its own; run as root'
    if not site.clocks:
        missing['robot_clock_jumps, server_clock_jumps'] = (
            'no library could be made for them; install a C compiler (apt install gcc), and name '
            'a folder without spaces and colons')
    return missing


def _can_lose(site: SoakSite) -> bool:
    return site.link is not None and shutil.which('nft') is not None
