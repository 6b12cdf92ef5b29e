# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Sampling where a grid says: all of the input may be needed, but each output row is its own."""
from __future__ import annotations

from intradp_ros.split.calls.labelled import Label, labelled_split
from intradp_ros.split.calls.site import Rule, rules, Site, Split


def split_grid_sampler(site: Site) -> Split | None:
    """
    Split sampling at the places of a grid along the grid's rows, images, or channels.

    Where the image alone has rows, all of them are needed for any rows of the grid.
    """
    rank = len(site.output_shape)
    places: list[Label] = [f'out {k}' for k in range(rank - 2)]
    pixels: list[Label] = [f'in {k}' for k in range(rank - 2)]
    return labelled_split(
        site, [['image', 'channel', *pixels], ['image', *places, 'coordinate']],
        ['image', 'channel', *places], places[0])


RULES: dict[str, Rule] = rules(split_grid_sampler, (
    'aten.grid_sampler.default',
    'aten.grid_sampler_2d.default',
    'aten.grid_sampler_3d.default',
))
