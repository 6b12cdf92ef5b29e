# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Pages of benchmarks: one file, no scripts, nothing loaded from elsewhere."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from intradp_lab.report.statements import percent, SAME
from intradp_ros.report.view.blocks import power
from intradp_ros.report.view.standing_page import page_file

_MISSING = '–'


def number_text(value: float | None, digits: int = 3) -> str:
    """Return a number with so many significant digits, but no fewer than its whole ones."""
    if value is None:
        return _MISSING
    if value == 0:
        return '0'
    size = len(str(int(abs(value)))) if abs(value) >= 1 else 1
    return f'{value:.{max(0, digits - size)}f}'


def size_text(count: float | None) -> str:
    """Return bytes with a decimal unit."""
    if count is None:
        return _MISSING
    for unit, size in (('MB', 1e6), ('kB', 1e3)):
        if count >= size:
            return f'{number_text(count / size)} {unit}'
    return f'{count:.0f} B'


def _share(value: float | None) -> str:
    return _MISSING if value is None else percent(value)


def _change(gain: float | None) -> str:
    """Return in words how much less or more something takes."""
    if gain is None:
        return _MISSING
    if abs(gain) < SAME:
        return 'as long'
    kind, word = ('good', 'less') if gain > 0 else ('bad', 'more')
    return Markup('<span class="{}">{} {}</span>').format(kind, percent(abs(gain)), word)


def inline(text: str) -> Markup:
    """Return a text in which what stands between backticks is set as code."""
    parts = str(text).split('`')
    return Markup('').join(Markup('<code>{}</code>').format(part) if k % 2 and k + 1 < len(parts)
                           else Markup('{}').format(part if k % 2 == 0 else f'`{part}')
                           for k, part in enumerate(parts))


def render(template: str, **facts: Any) -> str:
    """
    Return a page; everything in `facts` is escaped unless it is markup already.

    :raises jinja2.UndefinedError: if the template needs something that `facts` does not have.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name('templates')), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(number=number_text, bytes=size_text, share=_share,
                               change=_change, difference=power, inline=inline)
    return environment.get_template(template).render(style=Markup(page_file('page.css')), **facts)
