# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Pixel and channel shuffles."""
from __future__ import annotations

import numpy as np

from intradp_ros.split.calls.kernels import cropped
from intradp_ros.split.calls.site import follow, Rule, rules, Site, Split
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap


def split_pixel_shuffle(site: Site) -> Split | None:
    """Split a pixel shuffle: each input row becomes `upscale_factor` rows."""
    lead = _image_lead(site)
    if lead is None:
        return None
    dim, factor = lead[1], site.call.argument('upscale_factor')
    rows = site.output_shape[dim]
    row = np.arange(rows)
    row_map = RowMap(row // factor, row // factor + 1)

    def bind(region: Region, parameters: Parameters) -> Kernel:
        handed = row_map(region)
        start = region.start - handed.start * factor
        kernel = site.call.compile(parameters)
        return cropped(kernel, dim, start, region.rows, handed.rows * factor)

    return Split(Kind.BLOCK, dim, rows, site.maps(row_map, rows), bind)


def split_pixel_unshuffle(site: Site) -> Split | None:
    """Split its inverse: `downscale_factor` input rows become one row."""
    lead = _image_lead(site)
    if lead is None:
        return None
    dim, factor = lead[1], site.call.argument('downscale_factor')
    rows = site.output_shape[dim]
    row = np.arange(rows)
    row_map = RowMap(row * factor, (row + 1) * factor)
    return Split(
        Kind.BLOCK, dim, rows, site.maps(row_map, rows),
        lambda region, parameters: site.call.compile(parameters))


def split_channel_shuffle(site: Site) -> Split | None:
    """Split a shuffle of the channels (dimension 1) along any other dimension."""
    lead = site.lead()
    return None if lead is None or lead[1] == 1 else follow(site, Kind.ELEMENT, lead[1])


def _image_lead(site: Site) -> tuple[object, int] | None:
    """Return the first argument and its split dimension if that is height or width."""
    lead = site.lead()
    return lead if lead and lead[1] >= len(site.shape(lead[0])) - 2 else None


RULES: dict[str, Rule] = {
    'aten.pixel_shuffle.default': split_pixel_shuffle,
    'aten.pixel_unshuffle.default': split_pixel_unshuffle,
    **rules(split_channel_shuffle, (
        'aten.channel_shuffle.default', 'aten.native_channel_shuffle.default')),
}
