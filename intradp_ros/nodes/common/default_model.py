# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The model that nodes take unless they are given another: one that needs no file."""
from __future__ import annotations

DEFAULT_MODEL = 'intradp_ros.perception.oriented_energy:oriented_energy 1x3x144x336 uint8'
