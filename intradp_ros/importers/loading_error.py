# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What is wrong with a model that somebody brings."""
from __future__ import annotations


class LoadingError(Exception):
    """A model cannot be read, found or understood; the text is for the user: cause and fix."""
