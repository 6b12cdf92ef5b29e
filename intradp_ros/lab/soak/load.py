# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A process that computes without end: the load that other programs are."""
from __future__ import annotations


def main() -> None:
    """Count until the process is ended."""
    number = 0
    while True:
        number += 1


if __name__ == '__main__':
    main()
