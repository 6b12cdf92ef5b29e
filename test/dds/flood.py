# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A stranger who sends 45 Mbit/s of datagrams to an address for some seconds."""
from __future__ import annotations

import socket
import sys
import time

PAYLOAD, PACKETS, PAUSE = bytes(1400), 40, 0.01


def main() -> None:
    """Send to the address, for the seconds that the command line says."""
    address, seconds = sys.argv[1], float(sys.argv[2])
    end = time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        while time.monotonic() < end:
            for _ in range(PACKETS):
                out.sendto(PAYLOAD, (address, 9))
            time.sleep(PAUSE)


if __name__ == '__main__':
    main()
