# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""One set of colours for all pictures, which the colour-blind distinguish, too (Okabe and Ito)."""
from __future__ import annotations

from collections.abc import Iterable, Mapping

from matplotlib.colors import to_rgb

BLUE, GREEN, ORANGE, RED = '#0072B2', '#009E73', '#E69F00', '#D55E00'
PURPLE, SKY, BROWN, YELLOW = '#CC79A7', '#56B4E9', '#8C6D31', '#B8A800'
WINE = '#9C2F55'
GREY, DARK_GREY, INK, GRID = '#D5D8DB', '#7F7F7F', '#222222', '#E5E7EA'
_DARK_LETTERS = '#1A1A1A'  # on a bar; unlike ink they stay dark on a dark page

# What happens on the robot is blue wherever it is drawn, and so on.
LANES = {'robot': BLUE, 'uplink': ORANGE, 'server': GREEN, 'downlink': RED}
STRATEGIES = {'local': BLUE, 'offload': GREEN, 'cut': ORANGE, 'dsccs': PURPLE,
              'spso-ga': SKY, 'intra-dp': BROWN, 'shared-de': WINE, 'shared': RED,
              'shared-energy': YELLOW, 'bound': DARK_GREY}
#: Of other lanes, of which a fleet has many: dark or bright, so that neighbours differ.
_OTHERS = (DARK_GREY, BROWN, PURPLE, SKY, '#332288', '#44AA99', '#882255', '#117733', '#AA4466',
           '#6699CC', '#661100', '#DDAA33', '#AA4499', '#225522', '#4477AA', '#BB5566', '#004488',
           '#997700', '#EE99AA', '#6F4C9B', '#5289C7', '#4EB265', '#EE8026', '#A5170E', '#72190E',
           '#521913', '#1965B0', '#90C987', '#CAACCB', '#882E72', '#437DBF', '#F1932D')
#: What happens at once: colours that no lane has.
OVERLAPS = (YELLOW, WINE)


def colours(names: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Return a colour for each name: the known one, or the next free one."""
    names = list(names)
    others = [name for name in names if name not in known]
    free = {name: _OTHERS[index % len(_OTHERS)] for index, name in enumerate(others)}
    return {name: known.get(name) or free[name] for name in names}


def ink_on(colour: str) -> str:
    """Return the text colour, dark or white, that is easier to read on `colour`."""
    red, green, blue = to_rgb(colour)
    return _DARK_LETTERS if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else 'white'
