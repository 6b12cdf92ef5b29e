# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The command ``intradp``; Ctrl-C is one line while the command itself is imported, too."""
from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return the exit status."""
    try:
        from intradp_ros.cli.main import main as command
        return command()
    except KeyboardInterrupt:
        print('intradp: interrupted', file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
