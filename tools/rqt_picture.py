# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Draw the picture of the rqt plugin in the documentation, from a run of the real nodes.

A robot (slowed) and a server in two network namespaces share HED on a video;
the link is cut for a moment.  Needs root, as `make demo` does:

    python tools/rqt_picture.py doc/images/rqt.png
"""
from __future__ import annotations

from pathlib import Path
import sys
import time

from shared_video import COMMON, SETUP_TIMEOUT, shared_video

from intradp_ros.core.processes import Command, module_arguments

RATE_HZ = 1.5
BEFORE, CUT, AFTER = 15.0, 4.0, 25.0  # seconds


def main(path: Path) -> None:
    """Run the nodes, and let the window write its picture."""
    with shared_video('144x336', RATE_HZ) as (link, start):
        window = start(Command(
            'window', module_arguments(
                'intradp_ros.rqt.sharing_window', '--timeline', '--picture', str(path), '--after',
                str(BEFORE + CUT + AFTER)),
            link.exec_prefix('robot'), (), {**COMMON, 'QT_QPA_PLATFORM': 'offscreen'}))
        time.sleep(BEFORE)
        link.cut()
        time.sleep(CUT)
        link.restore()
        deadline = time.monotonic() + AFTER + SETUP_TIMEOUT
        while window.returncode is None and time.monotonic() < deadline:
            time.sleep(0.5)
        if window.returncode:
            raise SystemExit(window.output())


if __name__ == '__main__':
    main(Path(sys.argv[1]).resolve())
