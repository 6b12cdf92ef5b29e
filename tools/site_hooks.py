# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What mkdocs does in addition to Markdown.

Mathematics becomes MathML, which browsers show without a script; a link to a file of the
repository that is not a page becomes the file's name.  Of two pictures, one for each palette, the
one of the site's own palette is shown; commands are coloured as those of a shell.
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


#: A picture that is another one where the system is dark.
_PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img (?P<before>[^>]*)src="(?P<light>[^"]+)"(?P<after>[^>]*)>\s*</picture>')
#: A block without a language that begins with a command, or with a remark on one.
_COMMANDS = re.compile(
    r'^```\n(?=(?:# |cd |curl |export |git |intradp |make |mkdir |model=|pip3? |python |ros2 |'
    r'sh |sudo ))', re.MULTILINE)

#: A block that writes a Python file: coloured as what it writes.
_WRITES_PYTHON = re.compile(r"^```sh\n(?=cat > \S+\.py <<'END'\n)", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page with each formula in MathML; mkdocs calls it."""
    depth = len(PurePosixPath(page.file.src_uri).parents) - 1

    def outside(match: re.Match[str]) -> str:
        if match['target'].count('../') <= depth:
            return match.group()
        return f'{match["words"]} (`{match["target"].replace("../", "")}`)'

    shown = _CODE_OR_FORMULA.sub(_converted, _LINK.sub(outside, markdown))
    shown = _COMMANDS.sub('```sh\n', _PICTURE.sub(_by_palette, shown))
    return _WRITES_PYTHON.sub('```python\n', shown)


def _by_palette(match: re.Match[str]) -> str:
    """Return both pictures, of which the site's style shows that of the palette in use."""
    return '\n'.join(f'<img {match["before"]}src="{match[name]}#only-{name}"{match["after"]}>'
                     for name in ('light', 'dark'))


def _converted(match: re.Match[str]) -> str:
    if match['code'] is not None:
        return match.group()
    if match['display'] is not None:
        return f'<div>{converter.convert(match["display"].strip(), display="block")}</div>'
    # In a span, as a paragraph that begins with `math` would not be one.
    return f'<span>{converter.convert(match["line"])}</span>'
