# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Normalisation by statistics of all rows: global, but yields rows that are local again."""
from __future__ import annotations

from collections.abc import Sequence

import torch

from intradp_ros.split.calls.site import follow, Rule, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap
from intradp_ros.split.rules.pointwise import split_per_channel


def split_group_norm(site: Site) -> Split | None:
    """Split a group normalisation by statistics of each image and group of channels."""
    return _by_statistics(site, site.call.argument('num_groups'))


def split_instance_norm(site: Site) -> Split | None:
    """Split an instance normalisation; by running statistics it is element-wise."""
    if not site.call.argument('use_input_stats'):
        return split_per_channel(site)
    return _by_statistics(site, site.shape(site.operator.args[0])[1])


def _by_statistics(site: Site, groups: int) -> Split | None:
    """
    Take the statistics from all rows, and normalise the region's rows alone.

    What follows a global operator is local again only if its output is split;
    so this one needs its whole input, but yields any rows.
    """
    lead = site.lead()
    if lead is None or lead[1] == 1 or len(site.operator.inputs) > 1:
        return None
    dim, rows = lead[1], site.output_shape[lead[1]]
    if dim == 0:
        return follow(site, Kind.ROW, 0)

    def bind(region: Region, parameters: Parameters) -> Kernel:
        if region.rows == rows:
            return site.call.compile(parameters)
        weight, bias = (
            parameters[ref.name] if ref else None
            for ref in (site.call.argument('weight'), site.call.argument('bias')))
        return _normalised_rows(dim, region, groups, site.call.argument('eps'), weight, bias)

    return Split(Kind.GLOBAL, dim, rows, site.maps(RowMap.whole(rows, rows), rows), bind)


def _normalised_rows(
        dim: int, region: Region, groups: int, epsilon: float, weight: torch.Tensor | None,
        bias: torch.Tensor | None) -> Kernel:
    def normalise(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        whole = inputs[0]
        images, channels = whole.shape[:2]
        variance, mean = torch.var_mean(
            whole.reshape(images, groups, -1), 2, correction=0, keepdim=True)
        factor = (variance + epsilon).rsqrt().expand(-1, -1, channels // groups)
        shift = (-mean * factor).reshape(images, channels)
        factor = factor.reshape(images, channels)
        if weight is not None:
            factor, shift = factor * weight, shift * weight
        if bias is not None:
            shift = shift + bias
        each = (images, channels) + (1,) * (whole.dim() - 2)
        rows = whole.narrow(dim, region.start, region.rows)
        return torch.addcmul(shift.view(each), rows, factor.view(each))

    return normalise


RULES: dict[str, Rule] = {
    'aten.group_norm.default': split_group_norm,
    'aten.instance_norm.default': split_instance_norm,
}
