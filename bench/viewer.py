# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a page that is open costs a robot: ``python bench/viewer.py [--rounds N] [--json FILE]``.

A robot shares pictures with a server over DDS, one after another, at 20 Mbit/s.  The page of
`intradp view`, on the server's side, is open and closed in turn; the latencies of the frames of
neighbouring turns are compared.  A page that is open asks every second, as the one in a browser
does.  Target: at most 2 % above.
"""
from __future__ import annotations

import argparse
from contextlib import closing
import json
import os
from pathlib import Path
from statistics import median
import tempfile
import time
from typing import Any

from intradp_lab.soak.soak_site import open_site, SERVER
from intradp_ros.cli.output_paths import result_file
from intradp_ros.cli.view_live import LINGER, Live
from intradp_ros.core.atomic_write import write_atomically

#: Seconds of a turn, and at its beginning those in which the listener starts or ends.
TURN, SETTLE = 20.0, LINGER + 5.0


def measure(rounds: int) -> dict[str, Any]:
    """Return the medians of the latencies in all turns, and their ratios by neighbours."""
    turns: list[tuple[bool, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        with open_site(out, 20.0) as site:
            seconds = 2 * rounds * (TURN + SETTLE)
            site.start_camera(seconds, out / 'rows.json')
            prefix = site.link.exec_prefix(SERVER) if site.link else ()
            with closing(Live(prefix=prefix, environment=dict(os.environ))) as live:
                for number in range(2 * rounds):
                    turns.append((number % 2 == 1, time.monotonic() + SETTLE))
                    _turn(live, number % 2 == 1)
            site.camera.wait(seconds)
        rows = json.loads((out / 'rows.json').read_text())
    medians = [median(row[1] for row in rows if begun < row[0] < begun + TURN)
               for _, begun in turns]
    ratios = [opened / closed for closed, opened in zip(medians[::2], medians[1::2])]
    return {'frames': len(rows), 'closed_ms': 1e3 * median(medians[::2]),
            'open_ms': 1e3 * median(medians[1::2]), 'ratio': median(ratios), 'ratios': ratios}


def _turn(live: Live, wanted: bool) -> None:
    end = time.monotonic() + SETTLE + TURN
    if not wanted:
        time.sleep(end - time.monotonic())
        return
    with live.look({}) as view:
        while time.monotonic() < end:
            shown = json.dumps(view())
            time.sleep(1.0)
        assert 'Sharing' in shown, 'the page shows no robot'


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--json', type=result_file, metavar='FILE')
    args = parser.parse_args()
    found = measure(args.rounds)
    print(json.dumps(found, indent=1))
    if args.json:
        write_atomically(args.json, json.dumps(found, indent=1))


if __name__ == '__main__':
    main()
