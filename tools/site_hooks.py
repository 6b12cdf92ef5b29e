# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What mkdocs does in addition to Markdown.

Mathematics becomes MathML, which browsers show without a script; a link to a file of the
repository that is not a page becomes the file's name.
"""
from __future__ import annotations

from pathlib import PurePosixPath
import re
from typing import Any

from latex2mathml import converter

#: Code, which is left alone, or a formula: displayed, or in a line.
_CODE_OR_FORMULA = re.compile(
    r'(?P<code>^```.*?^```|`[^`\n]*`)|\$\$(?P<display>.+?)\$\$|'
    r'(?<![\\$\w])\$(?P<line>[^\s$](?:[^$\n]*[^\s$])?)\$(?![\d$])', re.DOTALL | re.MULTILINE)


#: A link by a relative path, with its words.
_LINK = re.compile(r'\[(?P<words>[^\]]+)\]\((?P<target>\.\./[^)#\s]+)\)')


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page with each formula in MathML; mkdocs calls it."""
    depth = len(PurePosixPath(page.file.src_uri).parents) - 1

    def outside(match: re.Match[str]) -> str:
        if match['target'].count('../') <= depth:
            return match.group()
        return f'{match["words"]} (`{match["target"].replace("../", "")}`)'

    return _CODE_OR_FORMULA.sub(_converted, _LINK.sub(outside, markdown))


def _converted(match: re.Match[str]) -> str:
    if match['code'] is not None:
        return match.group()
    if match['display'] is not None:
        return f'<div>{converter.convert(match["display"].strip(), display="block")}</div>'
    # In a span, as a paragraph that begins with `math` would not be one.
    return f'<span>{converter.convert(match["line"])}</span>'
