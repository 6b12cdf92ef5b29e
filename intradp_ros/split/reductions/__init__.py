# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Reductions over the rows in two steps: records of parts, which travel, and their total."""
from __future__ import annotations

from collections.abc import Mapping

from intradp_ros.split.calls.site import Rule
from intradp_ros.split.reductions import (
    attention_over_keys,
    choices,
    contractions,
    moments,
    norms,
    softmaxes,
    sums,
)
from intradp_ros.split.reductions.draft import Reduction

REDUCTIONS: Mapping[str, Reduction] = {
    **attention_over_keys.REDUCTIONS, **choices.REDUCTIONS, **contractions.REDUCTIONS,
    **moments.REDUCTIONS, **norms.REDUCTIONS, **softmaxes.REDUCTIONS, **sums.REDUCTIONS}
"""How a reduction is taken apart, by the captured operator's target."""

RULES: Mapping[str, Rule] = {
    **attention_over_keys.RULES, **choices.RULES, **contractions.RULES, **moments.PARTIALS,
    **norms.RULES,
    **softmaxes.PARTIALS, **softmaxes.RULES, **sums.PARTIALS}
"""Locality rules of the operators that reductions are made of."""
