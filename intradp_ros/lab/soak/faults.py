# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What goes wrong in a soak: each fault begins when its context is entered and ends with it.

Clocks that jump are left out: only the machine's own could be set.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
import signal

from intradp_ros.lab.emulation.processes import Child
from intradp_ros.lab.soak.site import OTHER_SHAPE, ROBOT, SERVER, Site

Fault = Callable[[Site], AbstractContextManager[None]]
_SLOW = 0.1  # of the link's rate


@contextmanager
def server_killed(site: Site) -> Iterator[None]:
    """End the server at once; start another one."""
    site.server.kill()
    yield
    site.server = site.start_server()


@contextmanager
def planner_killed(site: Site) -> Iterator[None]:
    """End the planner at once; start another one."""
    site.planner.kill()
    yield
    site.planner = site.start_planner()


@contextmanager
def server_stopped(site: Site) -> Iterator[None]:
    """Let the server stand still, as a machine does that swaps."""
    with _stopped(site.server):
        yield


@contextmanager
def planner_stopped(site: Site) -> Iterator[None]:
    """Let the planner stand still."""
    with _stopped(site.planner):
        yield


@contextmanager
def link_cut(site: Site) -> Iterator[None]:
    """Interrupt the link both ways."""
    assert site.link
    site.link.cut()
    try:
        yield
    finally:
        site.link.restore()


@contextmanager
def link_slow(site: Site) -> Iterator[None]:
    """Leave a tenth of the link's rate."""
    assert site.link
    site.link.set_rate(_SLOW * site.mbps)
    try:
        yield
    finally:
        site.link.set_rate(site.mbps)


@contextmanager
def robot_loaded(site: Site) -> Iterator[None]:
    """Let another program compute beside the robot."""
    with _loaded(site, ROBOT):
        yield


@contextmanager
def server_loaded(site: Site) -> Iterator[None]:
    """Let another program compute beside the server."""
    with _loaded(site, SERVER):
        yield


@contextmanager
def caches_corrupt(site: Site) -> Iterator[None]:
    """Spoil every file of the cache and start server and planner again, who read it."""
    for path in site.cache.rglob('*'):
        if path.is_file():
            path.write_bytes(b'\0' + path.read_bytes()[: path.stat().st_size // 2])
    site.server.kill()
    site.planner.kill()
    site.server, site.planner = site.start_server(), site.start_planner()
    yield


@contextmanager
def another_model(site: Site) -> Iterator[None]:
    """Put a server with another model in the server's place."""
    site.server.kill()
    site.server = site.start_server(OTHER_SHAPE, 'other-server')
    yield
    site.server.stop()
    site.server = site.start_server()


@contextmanager
def two_of_a_name(site: Site) -> Iterator[None]:
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


@contextmanager
def _loaded(site: Site, side: str) -> Iterator[None]:
    load = site.start_load(side)
    try:
        yield
    finally:
        load.kill()


_OF_THE_LINK: tuple[Fault, ...] = (link_cut, link_slow)
_OF_PROCESSES: tuple[Fault, ...] = (
    server_killed, server_stopped, planner_killed, planner_stopped, robot_loaded, server_loaded,
    caches_corrupt, another_model, two_of_a_name)


def faults_of(site: Site) -> Mapping[str, Fault]:
    """Return the faults that can be made here, by name; those of the link need one."""
    faults = (*_OF_PROCESSES, *(_OF_THE_LINK if site.link else ()))
    return {fault.__name__: fault for fault in faults}
