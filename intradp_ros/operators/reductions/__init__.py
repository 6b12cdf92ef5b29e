# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Reductions over the rows in two steps: records of parts, which travel, and their total."""
from __future__ import annotations

from collections.abc import Mapping

from intradp_ros.operators.reductions import (
    attention,
    choices,
    contractions,
    moments,
    norms,
    softmaxes,
    sums,
)
from intradp_ros.operators.reductions.draft import Reduction
from intradp_ros.operators.site import Rule

REDUCTIONS: Mapping[str, Reduction] = {
    **attention.REDUCTIONS, **choices.REDUCTIONS, **contractions.REDUCTIONS,
    **moments.REDUCTIONS, **norms.REDUCTIONS, **softmaxes.REDUCTIONS, **sums.REDUCTIONS}
"""How a reduction is taken apart, by the captured operator's target."""

RULES: Mapping[str, Rule] = {
    **attention.RULES, **choices.RULES, **contractions.RULES, **moments.PARTIALS, **norms.RULES,
    **softmaxes.PARTIALS, **softmaxes.RULES, **sums.PARTIALS}
"""Locality rules of the operators that reductions are made of."""
