# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which kernel each operator runs by on a device, and split graphs that run by them."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from intradp_ros.split.calls.call import Implemented
from intradp_ros.split.calls.variants import (
    CHANNELS_LAST,
    implementation,
    LAYOUTS,
    Packs,
    Place,
    PLAIN,
    SEPARABLE,
    variants_of,
)
from intradp_ros.split.local_operator import Kernel, LocalOperator, Parameters, SplitGraph
from intradp_ros.split.regions.region import Region


@dataclass(frozen=True)
class Tuning:
    """
    Kernel variants by operator name; operators without one run as captured.

    `channels_last` means that convolutions return this layout, so that rows
    from elsewhere are better brought into it before they meet them.
    """

    channels_last: bool = False
    variants: Mapping[str, str] = field(default_factory=dict)


UNTUNED = Tuning()


def tuned(split: SplitGraph, tuning: Tuning) -> SplitGraph:
    """
    Return a split graph whose kernels are those of a tuning.

    Its graph, row maps and parameters are those of `split`; a variant that
    an operator does not have here is left out.  Weights in another order
    are made once and shared by all kernels.
    """
    packs: Packs = {}
    operators = tuple(_tuned(split, op, tuning.variants.get(op.operator.name, PLAIN), packs)
                      for op in split.operators)
    return replace(split, operators=operators, channels_last=tuning.channels_last)


def wants_channels_last(split: SplitGraph, value: int) -> bool:
    """Return whether rows of a value from elsewhere should be brought into the layout."""
    if not split.channels_last or len(split.graph.values[value].shape) not in LAYOUTS:
        return False
    readers = (split.graph.operators[i] for i in split.graph.consumers[value])
    return any({CHANNELS_LAST, SEPARABLE} & {*variants_of(split.graph, op)} for op in readers)


def _tuned(split: SplitGraph, op: LocalOperator, variant: str, packs: Packs) -> LocalOperator:
    if variant not in variants_of(split.graph, op.operator):
        return op

    def bind(region: Region, parameters: Parameters) -> Kernel:
        place = _place(split, op, region, packs)
        return op.bind(region, Implemented(parameters, implementation(variant, place)))

    return replace(op, bind=bind)


def _place(split: SplitGraph, op: LocalOperator, region: Region, packs: Packs) -> Place:
    result = next(v for v in op.operator.outputs if v is not None)
    source = split.graph.values[op.operator.inputs[0]].shape
    return Place(packs, source, split.shape(result, region.rows), split.dims[result])
