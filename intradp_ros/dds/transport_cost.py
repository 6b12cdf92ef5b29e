# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What moving bytes costs this device's processor, measured over DDS between two processes.

Threads that cut, publish, receive, acknowledge and put together take the
processor from operators where it has no core to spare.  Processor seconds
are counted, so that it matters little what else runs; they are those of the
transport that the environment names, over the machine's own loopback.
"""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
import json
import logging
import os
from pathlib import Path
import secrets
import signal
import subprocess
import sys

from intradp_ros.core.child_end import ChildWatch
from intradp_ros.core.measured_once import figures_once, measured_path
from intradp_ros.dds.transport_profile import transport_in_use
from intradp_ros.profiling.machine import available_cores, device_name
from intradp_ros.profiling.profile import CHUNK_BYTES, Profile, TransportCost

#: Bytes of the chunks that are sent.
SIZES = (CHUNK_BYTES, 1000)
SIDES = ('server', 'robot')
#: Bytes of a packet of a link.
PACKET_BYTES = 1472
TIMEOUT = 90.0
# Like ``python -m``, but the working directory is not searched for this package.
_RUN = ('import runpy, sys; sys.path[:] = [path for path in sys.path if path]; '
        'runpy.run_module("intradp_ros.dds.transport_cost_side", run_name="__main__", '
        'alter_sys=True)')
_LOG = logging.getLogger(__name__)


class TransportCostError(RuntimeError):
    """It could not be measured; the text says what a process said last."""


def with_transport_cost(profile: Profile, folder: Path | None = None) -> Profile:
    """
    Return a profile of this device that knows its cores, and what moving bytes takes from them.

    Measured only where there is no core in addition to those that compute.
    """
    known = replace(profile, cores=available_cores())
    return replace(known, moving=cached_transport_cost(folder)) if known.crowded else known


def cached_transport_cost(folder: Path | None = None) -> TransportCost:
    """
    Return what moving bytes costs this device, measuring it only the first time.

    Where it cannot be measured it counts as nothing, with a warning.
    """
    path = measured_path('moving', device_name(), transport_in_use().name,
                         'beside work, 20 Mbit/s', folder=folder)
    try:
        return figures_once(path, TransportCost, lambda: measure_transport_cost(TIMEOUT))
    except TransportCostError as error:
        _LOG.warning('what moving bytes costs is not known, and counts as nothing: %s', error)
        return TransportCost()


def measure_transport_cost(timeout: float = TIMEOUT) -> TransportCost:
    """
    Send chunks of two sizes from one process to another and count their processor seconds.

    :raises TransportCostError: if nothing arrives, or a process fails or takes longer than
        `timeout` (seconds).
    """
    name, watch = f'moving_{secrets.token_hex(6)}', ChildWatch()
    children = [subprocess.Popen(
        [sys.executable, '-c', _RUN, side, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL, text=True, start_new_session=True) for side in SIDES]
    try:
        received, sent = (_said(child, timeout, watch) for child in children)
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
    return _cost(sent, received)


def _said(child: subprocess.Popen[str], timeout: float, watch: ChildWatch) -> list[float]:
    try:
        said, errors = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise TransportCostError(f'nothing was measured within {timeout:g} s') from None
    if child.returncode:
        raise TransportCostError(errors.strip().rpartition('\n')[2]
                                 or f'a process {watch.end(child.returncode)}')
    return [float(seconds) for seconds in json.loads(said.strip().rpartition('\n')[2])]


def _cost(sent: Sequence[float], received: Sequence[float]) -> TransportCost:
    """
    Return what a chunk and a byte cost, from chunks of two sizes and a packet by itself.

    What a packet costs more than its bytes did is charged to the bytes received.
    """
    large, small = SIZES
    bytes_ = [max(0.0, (a - b) / (large - small)) for a, b, _ in (sent, received)]
    chunk = [max(0.0, b - each * small) for each, (_, b, _) in zip(bytes_, (sent, received))]
    packet = received[2] / PACKET_BYTES
    return TransportCost(chunk[0], bytes_[0], chunk[1], bytes_[1] + packet)
