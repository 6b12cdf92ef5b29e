# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The errors of this floor."""
from __future__ import annotations


class CaptureError(RuntimeError):
    """A model cannot be captured; the message names the operator or input at fault."""


class GraphInputError(ValueError):
    """Inputs do not fit the graph: wrong count, structure, shape or dtype."""


class GraphFormatError(ValueError):
    """A serialised graph is malformed, or a graph cannot be serialised."""
