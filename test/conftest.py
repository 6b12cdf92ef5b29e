# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which tests run side by side, and which get a second try.

``make check`` runs two processes (pytest-xdist).  Tests that share network
namespaces or the machine's time stay in one of them, one after another, with
most that start ROS nodes; of the others the tests of a file stay together.

Tests that wait for other processes or threads get a second try.  Their limits are
generous, but a shared machine may stand still for longer.  What fails once is
listed as RERUN in the summary; what fails twice fails.  For the same reason
examples of hypothesis have no limit of time each.

Nodes begin as copies of an interpreter that has imported what they need (`copied_interpreters`);
`--start-anew` starts each from nothing.

Tests kill nodes.  One that is killed while it makes a port of Fast DDS would make
all nodes after it wait without end (`shared_memory_ports`): such ports are freed.
"""
from __future__ import annotations

from collections.abc import Iterator
import gc
from importlib.util import find_spec, module_from_spec, spec_from_file_location
import os
from pathlib import Path, PurePosixPath
import struct
import sys
import threading
import time
from typing import Any

from hypothesis import settings
import pytest

from intradp_ros.dds.shared_memory_ports import unfinished_ports

settings.register_profile('shared machine', deadline=None)
settings.load_profile('shared machine')


def _find_the_laboratory() -> None:
    """Take the laboratory beside the tests where none is installed, as by `colcon test`."""
    if find_spec('intradp_lab') is None:
        folder = Path(__file__).parents[1] / 'intradp_lab'
        spec = spec_from_file_location(folder.name, folder / '__init__.py')
        if spec is not None and spec.loader is not None:
            sys.modules[folder.name] = module_from_spec(spec)
            spec.loader.exec_module(sys.modules[folder.name])


_find_the_laboratory()

#: What Boost writes at the beginning of a segment whose making failed.
_CORRUPTED = struct.pack('=I', 3).ljust(4096, b'\0')
#: Rooms whose tests start processes, wait for threads or what comes over DDS, or take a device for
#: silent that other tests keep from a processor.
WAITING = ('cli', 'core', 'dds', 'lab', 'nodes', 'rqt', 'runtime', 'system', 'systems', 'web')
#: Rooms and files of which tests need the machine's network, or its time.
TOGETHER = (
    'cli/test_demo_fleet.py', 'cli/test_doctor.py', 'cli/test_fleet_run.py',
    'cli/test_pipeline_check.py', 'core', 'dds', 'lab/emulation', 'lab/fleet', 'lab/soak',
    'lab/testbed', 'link', 'nodes', 'profiling', 'rqt', 'system')
#: Files of these rooms whose nodes have a domain of their own and no limit but patience.
APART = ('system/test_books.py', 'system/test_encodings.py', 'system/test_fuzz.py',
         'system/test_points.py', 'system/test_refusals.py')


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what else can be chosen."""
    parser.addoption('--start-anew', action='store_true', help='copy no interpreter for nodes')


def pytest_configure(config: pytest.Config) -> None:
    """Leave the other process a processor, and free ports as long as this one lives."""
    threading.Thread(target=_free_ports, name='free-ports', daemon=True).start()
    if 'PYTEST_XDIST_WORKER' in os.environ:
        import torch
        torch.set_num_threads(1)


def _free_ports() -> None:
    while True:
        for port in unfinished_ports():
            _free(port)
        time.sleep(1.0)


def _free(port: Path) -> None:
    """Let those who wait for a port go on, and the next one make it anew."""
    try:
        with port.open('r+b') as file:
            file.write(_CORRUPTED)
        port.unlink()
    except OSError:
        pass  # another process of these was faster


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return who deals out tests by place (groups of xdist 3.8 do nothing with pytest 9.2)."""
    from xdist.scheduler import LoadScopeScheduling

    class ByPlace(LoadScopeScheduling):

        def _split_scope(self, nodeid: str) -> str:
            place = PurePosixPath(nodeid.split('::', 1)[0])
            together, apart = (any(place.is_relative_to(f'test/{room}') for room in rooms)
                               for rooms in (TOGETHER, APART))
            return 'together' if together and not apart else str(place)
    return ByPlace(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that get a second try."""
    waiting = [config.rootpath / 'test' / place for place in WAITING]
    for item in items:
        if any(item.path.is_relative_to(place) for place in waiting):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(autouse=True, scope='session')
def copied_interpreters(pytestconfig: pytest.Config) -> Iterator[None]:
    """Let nodes begin as copies of an interpreter; the first of them starts it."""
    from copied_interpreters import copies
    if pytestconfig.getoption('--start-anew'):
        yield
    else:
        with copies():
            yield


@pytest.fixture(autouse=True, scope='module')
def short_collections() -> None:
    """
    Have the collector look only at what a file's tests make.

    A process of thousands of tests keeps millions of objects.  To look through all of them
    takes seconds, in which no thread runs: longer than devices of tests may be silent.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def eager_switches() -> Iterator[None]:
    """Let threads take turns as often as they can, so that they meet in what they share."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture(scope='module')
def one_thread() -> Iterator[None]:
    """Compute with one thread: times are those of the thread, and none starts for each core."""
    import torch
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
