# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Requests that were recorded by gateways, or come as those of a public trace.

Two generators imitate the Azure LLM inference trace of 2023 (CC-BY 4.0; Patel
et al., Splitwise, ISCA 2024), which is not part of the package: `read_azure`
reads its files.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
import csv
from datetime import datetime
import io
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from intradp_ros.core.atomic_write import replacing
from intradp_ros.core.plain_file import open_to_read
from intradp_ros.systems.serving.arrivals import Arrivals, arrivals, Floats, MAX_REQUESTS

#: Characters of a line of a file.
MAX_LINE = 1024
COLUMNS = ('time', 'site', 'service', 'remaining', 'priority', 'stream', 'number')


class _Gaps(NamedTuple):
    """Gaps over their mean by share of the gaps that are shorter, and how they hang together."""

    share: tuple[float, ...]
    gap: tuple[float, ...]
    correlation: float
    memory: float


_SHARE = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.997, 0.999,
          0.9995, 1.0)
#: Coefficients of variation of gaps about 1.1 and 13; the busiest 10 s have about 1.8 and 12 times
#: the mean, as in the trace.
KINDS = {
    'conversations': _Gaps(
        _SHARE, (1e-5, 0.00302, 0.03495, 0.08928, 0.20196, 0.33581, 0.48252, 0.6549, 0.87752,
                 1.18127, 1.59725, 2.32629, 3.1256, 4.92, 6.47853, 7.80397, 9.4, 16.0),
        0.04, 0.99),
    'code': _Gaps(
        _SHARE, (2e-5, 6e-5, 0.00023, 0.00054, 0.00304, 0.00845, 0.03876, 0.16373, 0.24378,
                 0.25697, 0.4108, 0.70026, 1.02855, 5.65908, 72.07962, 203.3419, 390.0, 640.0),
        0.36, 0.98),
}


def like_azure(kind: str, rate: float, count: int, seed: int) -> Floats:
    """
    Return times whose gaps are distributed as in the trace, and as bursty.

    `kind`: conversations or code.  The gaps are those of the trace by their rank; ranks follow
    from normal numbers that remember those before, so that short gaps come together.
    """
    if kind not in KINDS:
        raise ValueError(f'there is {" and ".join(KINDS)}, not {kind!r}')
    gaps = KINDS[kind]
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=count) * math.sqrt(1 - gaps.memory**2)
    slow, last = np.empty(count), rng.normal()
    for k in range(count):
        last = slow[k] = gaps.memory * last + steps[k]
    drawn = (math.sqrt(gaps.correlation) * slow
             + math.sqrt(1 - gaps.correlation) * rng.normal(size=count))
    share = (np.argsort(np.argsort(drawn)) + 0.5) / max(count, 1)
    found = np.exp(np.interp(share, gaps.share, np.log(gaps.gap)))
    return np.asarray(np.cumsum(found / found.mean() / rate))


def read_azure(path: Path) -> Floats:
    """
    Return the times of a file of the Azure LLM trace of 2023, seconds from the first request.

    :raises ValueError: names file and line where there is no time.
    """
    found = array('d')
    for line, row in _rows(path):
        try:
            text, _, part = row[0].partition('.')
            when = datetime.fromisoformat(text).timestamp() + float(f'0.{part or 0}')
        except (ValueError, IndexError, OverflowError):
            if line == 1:
                continue  # names of columns
            raise ValueError(f'{path}:{line}: begins with no time such as '
                             '2023-11-16 18:15:46.68') from None
        found.append(when)
    if not found:
        raise ValueError(f'{path}: has no requests')
    times = np.sort(np.array(found))
    return np.asarray(times - times[0])


def read_recorded(path: Path, sites: Sequence[str], services: Sequence[str]) -> Arrivals:
    """
    Return the requests that gateways recorded (CSV; the first line names `COLUMNS`).

    :raises ValueError: names file, line, column and fix.
    """
    index = {'site': {name: k for k, name in enumerate(sites)},
             'service': {name: k for k, name in enumerate(services)}}
    columns: dict[str, array[Any]] = {
        name: array('d' if name in ('time', 'remaining') else 'q') for name in COLUMNS}
    place: dict[str, int] = {}
    for line, row in _rows(path):
        if line == 1:
            place = {name: k for k, name in enumerate(row)}
            if missing := [name for name in COLUMNS if name not in place]:
                raise ValueError(f'{path}:1: lacks the columns {", ".join(missing)}')
            continue
        for name, values in columns.items():
            text = row[place[name]] if place[name] < len(row) else ''
            try:
                if name in index:
                    values.append(index[name][text])
                elif name in ('time', 'remaining'):
                    number = float(text)
                    if not 0 <= number < math.inf:
                        raise ValueError
                    values.append(number)
                else:
                    values.append(int(text))
            except (KeyError, ValueError, OverflowError):
                want = (f'one of {", ".join(index[name])}' if name in index else
                        'seconds, at least 0' if name in ('time', 'remaining') else
                        'a whole number of 64 bits')
                raise ValueError(f'{path}:{line}: {name} is {text[:40]!r}: write {want}'
                                 ) from None
    if not place:
        raise ValueError(f'{path}: is empty: its first line names {", ".join(COLUMNS)}')
    found = {name: np.array(values) for name, values in columns.items()}
    return arrivals(**found)


def write_recorded(path: Path, found: Arrivals, sites: Sequence[str], services: Sequence[str],
                   ) -> None:
    """Write requests as `read_recorded` reads them."""
    with replacing(path) as part, part.open('w', newline='', encoding='utf-8') as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for time, site, service, *others in zip(*(one.tolist() for one in (
                found.time, found.site, found.service, found.remaining, found.priority,
                found.stream, found.number))):
            writer.writerow([time, sites[site], services[service], *others])


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield lines with their number; none is long, and there are not too many."""
    try:
        with io.TextIOWrapper(open_to_read(path), 'utf-8-sig', newline='') as stream:
            line = 0
            while text := stream.readline(MAX_LINE + 1):
                line += 1
                if len(text) > MAX_LINE:
                    raise ValueError(f'{path}:{line}: is longer than {MAX_LINE} characters')
                if line > MAX_REQUESTS:
                    raise ValueError(f'{path}: has more than {MAX_REQUESTS} requests')
                if text.strip():
                    yield line, next(csv.reader([text]))
    except UnicodeDecodeError:
        raise ValueError(f'{path}: is not encoded in UTF-8') from None
    except (OSError, csv.Error) as error:
        raise ValueError(f'{path}: cannot be read: {error}') from None
