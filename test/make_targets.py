# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What `make` can be asked for."""
from __future__ import annotations

from pathlib import Path
import re

TARGETS = frozenset(re.findall(
    r'^([a-z][\w-]*):', (Path(__file__).parents[1] / 'Makefile').read_text(), re.MULTILINE))
