# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Locality rules, one module for each family of operators, and who serves which operator."""
from __future__ import annotations

from collections.abc import Mapping

from intradp_ros.split.calls.site import Rule
from intradp_ros.split.rules import (
    adaptive_pooling,
    attention,
    convolution,
    copying,
    distances,
    einsum,
    indexing,
    joining,
    matrices,
    over_dims,
    overwriting,
    padding,
    pointwise,
    pooling,
    recurrent,
    reshaping,
    sampling,
    shuffling,
    slicing,
    sliding_blocks,
    statistics,
    transposed_convolution,
    triangles,
    unpooling,
    upsampling,
    views,
)

_FAMILIES = (
    adaptive_pooling, attention, convolution, copying, distances, einsum, indexing, joining,
    matrices, over_dims, overwriting, padding, pointwise, pooling, recurrent, reshaping, sampling,
    shuffling, slicing, sliding_blocks, statistics, transposed_convolution, triangles, unpooling,
    upsampling, views)

RULES: Mapping[str, Rule] = {
    target: rule for family in _FAMILIES for target, rule in family.RULES.items()}


def rule_for(target: str, function: object) -> Rule | None:
    """Return the rule for a target and the function it names, None if it is not known local."""
    if target in RULES:
        return RULES[target]
    return pointwise.split_pointwise if pointwise.is_pointwise(function) else None
