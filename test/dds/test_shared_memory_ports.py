# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Ports in shared memory that a killed process left empty: found, reported, and what they do."""
from __future__ import annotations

import fcntl
import os
from pathlib import Path
import subprocess
import sys
import time

import pytest

from intradp_ros.dds.middleware import fast_dds_version, library_folders
from intradp_ros.dds.shared_memory_ports import (
    FILLED_WITHIN,
    FOLDER,
    unfinished_ports,
    unfinished_ports_problem,
)

PATIENCE = 60.0
_NODE = """
import rclpy
rclpy.init()
print('begun', flush=True)
rclpy.create_node('opens_ports')
print('made', flush=True)
"""


def port(folder: Path, name: str, age: float, content: bytes = b'') -> Path:
    """Make the file of a port that is so many seconds old."""
    path = folder / name
    path.write_bytes(content)
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def test_what_is_left_empty_is_reported_with_its_fix(tmp_path: Path) -> None:
    assert unfinished_ports_problem(tmp_path) == ''
    old = 2 * FILLED_WITHIN
    port(tmp_path, 'fastdds_port7000', old, b'\2')
    port(tmp_path, 'fastdds_port7001', 0.0)
    port(tmp_path, 'fastdds_port7002_el', old)
    port(tmp_path, 'sem.fastdds_port7002_mutex', old)
    assert unfinished_ports(tmp_path) == []
    left = [port(tmp_path, name, old) for name in ('fastdds_port7003', 'fastrtps_port7411')]
    assert unfinished_ports(tmp_path) == left
    assert f'; run: rm {left[0]} {left[1]}; ' in unfinished_ports_problem(tmp_path)


def test_a_folder_that_is_missing_has_none(tmp_path: Path) -> None:
    assert unfinished_ports(tmp_path / 'missing') == []


def served(name: str) -> bool:
    """Return if a living node reads this port: Fast DDS locks a file beside it."""
    lock = FOLDER / f'{name}_el'
    if not lock.exists():
        return False
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def freed(domain: int) -> bool:
    """Return whether a node waits for an empty port, and see that it goes on once that is free."""
    version = fast_dds_version(library_folders(os.environ))
    kind = 'fastrtps' if version is not None and version < (3, 0) else 'fastdds'
    # a domain's participants, of which some may belong to a test that is not quite over
    names = [f'{kind}_port{7400 + 250 * domain + 11 + 2 * number}' for number in range(10)]
    for name in (names := [name for name in names if not served(name)]):
        for left in (name, f'{name}_el'):  # by a node that a test of this domain killed
            (FOLDER / left).unlink(missing_ok=True)
    ports = [port(FOLDER, name, -3600.0) for name in names]
    plain = {name: value for name, value in os.environ.items()
             if not name.startswith(('FASTDDS', 'FASTRTPS', 'RMW'))}
    with subprocess.Popen([sys.executable, '-c', _NODE], stdout=subprocess.PIPE, text=True,
                          env=plain | {'ROS_DOMAIN_ID': str(domain)}) as node:
        try:
            assert node.stdout and node.stdout.readline() == 'begun\n'
            time.sleep(2.0)
            if node.poll() is not None:
                return False
            assert not any(empty.stat().st_size for empty in ports)
            for empty in ports:
                os.utime(empty, (0, 0))
            assert node.communicate(timeout=PATIENCE)[0] == 'made\n'
            return True
        finally:
            node.kill()
            for empty in ports:
                empty.unlink(missing_ok=True)


@pytest.mark.skipif(not FOLDER.is_dir(), reason='no shared memory')
def test_a_node_waits_for_an_empty_port_and_tests_free_it(domain: int) -> None:
    """
    Fast DDS is as described, and what tests kill does not make the others wait for ever.

    Where somebody else is in a domain, in another network namespace say, a node may take a port
    that nobody looks for here: then another domain is tried.
    """
    assert any(freed(1 + (domain + 17 * number) % 100) for number in range(5))
