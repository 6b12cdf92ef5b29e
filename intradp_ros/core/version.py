# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The release."""
from __future__ import annotations

VERSION = '0.2.0'
