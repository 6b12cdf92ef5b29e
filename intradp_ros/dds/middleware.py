# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which middleware a process will use, as environment and installed files say beforehand."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
import os
from pathlib import Path
import re
import sys

USUAL_RMW = 'rmw_fastrtps_cpp'
#: The first version of Fast DDS that limits what is sent and takes the transports' options.
LEAST_FAST_DDS = (2, 14)
_LIBRARY = re.compile(r'libfast(?:dds|rtps)\.so\.(\d+)\.(\d+)')


def middleware_problem(environment: Mapping[str, str] = os.environ,
                       folders: Iterable[Path] | None = None) -> str:
    """Return why the transport profiles cannot work with this middleware; '' if they can."""
    name = environment.get('RMW_IMPLEMENTATION') or USUAL_RMW
    if not name.startswith('rmw_fastrtps'):
        return (f'RMW_IMPLEMENTATION={name}: the transports udp and large_data are profiles of '
                f'Fast DDS; unset it (or RMW_IMPLEMENTATION={USUAL_RMW}), or choose the '
                'transport default')
    version = fast_dds_version(library_folders(environment) if folders is None else folders)
    if version is not None and version < LEAST_FAST_DDS:
        return (f'Fast DDS {version[0]}.{version[1]} knows neither transport udp nor large_data, '
                f'which need {LEAST_FAST_DDS[0]}.{LEAST_FAST_DDS[1]} (ROS 2 Jazzy) or newer: '
                'choose the transport default')
    return ''


def fast_dds_version(folders: Iterable[Path]) -> tuple[int, int] | None:
    """Return major and minor number of the first Fast DDS library found; None if there is none."""
    for folder in folders:
        for path in sorted(folder.glob('libfast*.so.*')):
            if match := _LIBRARY.match(path.name):
                return int(match[1]), int(match[2])
    return None


def library_folders(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Return where the libraries of the middleware are looked for, in order."""
    given = [Path(folder) for folder in environment.get('LD_LIBRARY_PATH', '').split(os.pathsep)
             if folder]
    prefixes = [*environment.get('AMENT_PREFIX_PATH', '').split(os.pathsep), sys.prefix]
    return [*given, *(Path(prefix) / 'lib' for prefix in prefixes if prefix)]
