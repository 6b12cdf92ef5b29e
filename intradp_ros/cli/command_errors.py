# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the command line says instead of a traceback."""
from __future__ import annotations


class CommandError(Exception):
    """The command cannot do what it was asked for; the text is for the user: cause and mend."""
