# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Checks of this machine alone: packages, torch and its devices, limits of the kernel."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
import os
from pathlib import Path
import platform
import re

import torch

from intradp_ros import __version__
from intradp_ros.cli.finding import ERROR, Finding, OK, WARNING
from intradp_ros.dds.middleware import (
    fast_dds_version,
    library_folders,
    middleware_problem,
    USUAL_RMW,
)
from intradp_ros.dds.shared_memory_ports import FOLDER, unfinished_ports_problem
from intradp_ros.dds.transport_profile import (
    buffer_problem,
    transport_in_use,
    TRANSPORTS,
    VARIABLE,
)
from intradp_ros.split.calls.accelerator import Accelerator, DeviceError

#: Below these something that is used is missing.
FLOORS: Mapping[str, tuple[int, ...]] = {
    'torch': (2, 6), 'numpy': (1, 26), 'scipy': (1, 11, 1), 'safetensors': (0, 4)}
#: Modules that nodes or commands import, rclpy apart.
NEEDED = ('cv2', 'PIL', 'yaml', 'networkx', 'matplotlib', 'jinja2', 'diagnostic_msgs',
          'lifecycle_msgs', 'rcl_interfaces', 'sensor_msgs', 'std_msgs')
#: What works without, and what is lost then.
OPTIONAL: Mapping[str, str] = {
    'zstandard': 'activations and photographs cross the link uncompressed',
    'lz4': 'a quick encoding for fast links is missing',
    'numba': 'planning takes minutes in place of seconds',
    'vision_msgs': 'detections and classes are published as tensors only'}
#: Modules whose packages have another name on PyPI.
_PIP: Mapping[str, str] = {'cv2': 'opencv-python-headless', 'PIL': 'pillow', 'yaml': 'pyyaml'}


def check_machine(environment: Mapping[str, str] = os.environ, limits: Path | None = None,
                  ports: Path = FOLDER) -> Iterator[Finding]:
    """Yield what is found; `limits` is the kernel's folder of limits, `ports` of shared memory."""
    yield Finding('versions', OK, f'intradp_ros {__version__}, Python {platform.python_version()}')
    for name, floor in FLOORS.items():
        yield check_version(name, floor)
    yield from check_modules()
    yield check_accelerator()
    yield check_middleware(environment)
    yield check_transport(environment)
    for transport in TRANSPORTS.values():
        problem, _, fix = buffer_problem(transport, limits).partition('; run: ')
        chosen = environment.get(VARIABLE) == transport.name
        state = (ERROR if transport.needs_buffer and chosen else WARNING) if problem else OK
        if transport.profile:
            yield Finding(f'socket buffers for {transport.name}', state,
                          problem or f'{transport.socket_bytes} bytes are granted', fix)
    problem, _, fix = unfinished_ports_problem(ports).partition('; run: ')
    yield Finding('shared memory', ERROR if problem else OK,
                  problem or 'no port of Fast DDS is unfinished', fix)


def check_version(name: str, floor: tuple[int, ...]) -> Finding:
    """Return whether a package is installed in a version that is known to work."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, ERROR, 'not installed', f'pip install {name}')
    wanted = '.'.join(map(str, floor))
    if tuple(int(n) for n in re.findall(r'\d+', version)[:len(floor)]) < floor:
        return Finding(name, WARNING, f'{version} is older than {wanted}, the lowest that works',
                       f"pip install '{name}>={wanted}'")
    return Finding(name, OK, version)


def check_modules(find: Callable[[str], object] = find_spec) -> Iterator[Finding]:
    """Yield the modules that are not there; `find` looks for one and returns None then."""
    for name in (*NEEDED, *OPTIONAL):
        if find(name) is None:
            state, loss = (WARNING, f': {OPTIONAL[name]}') if name in OPTIONAL else (ERROR, '')
            ros = name.endswith(('_msgs', '_interfaces'))
            yield Finding(name, state, f'not installed{loss}',
                          f'sudo apt-get install ros-$ROS_DISTRO-{name.replace("_", "-")}' if ros
                          else f'pip install {_PIP.get(name, name)}')


def check_accelerator() -> Finding:
    """Return which accelerator operators could run on."""
    device = torch.accelerator.current_accelerator() if hasattr(torch, 'accelerator') else (
        torch.device('cuda') if torch.cuda.is_available() else None)
    if device is None:
        return Finding('accelerator', OK, 'none; operators run on the processor',
                       'if there is one: install the build of torch for it')
    try:
        return Finding('accelerator', OK, Accelerator(device.type).hardware,
                       f'use it with device:={device.type}')
    except DeviceError as error:
        return Finding('accelerator', WARNING, str(error), 'use device:=cpu')


def check_middleware(environment: Mapping[str, str]) -> Finding:
    """Return whether the middleware knows the package's transport profiles."""
    name = environment.get('RMW_IMPLEMENTATION') or USUAL_RMW
    version = fast_dds_version(library_folders(environment))
    if problem := middleware_problem(environment):
        what, _, fix = problem.rpartition(': ' if 'knows neither' in problem else '; ')
        return Finding('middleware', WARNING, what, fix)
    shown = '.'.join(map(str, version)) if version else 'of unknown version'
    return Finding('middleware', OK, f'{name}, Fast DDS {shown}')


def check_transport(environment: Mapping[str, str]) -> Finding:
    """Return which transport nodes of this environment use."""
    try:
        transport = transport_in_use(environment)
    except ValueError as error:
        return Finding('transport', ERROR, str(error), f'set {VARIABLE} to one of these')
    if not transport.profile:
        return Finding('transport', WARNING, "default: the middleware's own, which loses tensors "
                       'on a wireless link', 'use the launch files, or set the variables of '
                       'doc/wifi_and_dds.md, "Choose a transport"')
    return Finding('transport', OK, transport.name)
