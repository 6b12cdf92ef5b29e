# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Figures as SVG text inside an HTML page, in the page's own font and light or dark colours."""
from __future__ import annotations

from io import StringIO
import re

from markupsafe import escape, Markup
import matplotlib
from matplotlib.figure import Figure

from intradp_ros.report.palette import GREY, GRID, INK

#: What follows the page's theme, by the colour that it is drawn in.
_THEMED = {INK: 'currentColor', '#000000': 'currentColor', GREY: 'var(--shade)',
           GRID: 'var(--grid)', '#ffffff': 'var(--paper)'}
_TEXT = re.compile(r'(<text [^>]*style="[^"]*)')
#: What is said about the maker, and fonts: the page has its own.
_LEFT_OUT = re.compile(r'<metadata>.*?</metadata>\s*|font-family: [^;\"]*;? ?', re.DOTALL)
_SIZE = re.compile(r'(<svg [^>]*?)\s(?:width|height)="[^"]*"(?=[^>]*>)')


def inline_svg(figure: Figure, label: str) -> Markup:
    """
    Return a figure as an SVG element as wide as the page lets it be.

    :param label: says in words what the figure shows, for those who cannot see it.
    """
    text = StringIO()
    with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': label}):
        figure.savefig(text, format='svg', transparent=True, metadata={'Date': None})
    svg = text.getvalue()
    svg = _themed(_LEFT_OUT.sub('', svg[svg.index('<svg'):]))
    for _ in range(2):
        svg = _SIZE.sub(r'\1', svg, count=1)
    return Markup(svg.replace('<svg', f'<svg role="img" aria-label="{escape(label)}"', 1))


def _themed(svg: str) -> str:
    """Let ink, grid and paper follow the theme; letters in bars keep their colour."""
    for colour, variable in _THEMED.items():
        pattern = re.compile(f'(?<=[:" ]){colour}', re.IGNORECASE)
        svg = pattern.sub(variable, svg)
    return _TEXT.sub(lambda found: found[1].replace('var(--paper)', '#ffffff'), svg)
