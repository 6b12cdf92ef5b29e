# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A recording as one page that opens without a server: that of `intradp view`, and its views."""
from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
import json
from pathlib import Path
from typing import Any

from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.report.view.recorded import Recorded
import intradp_ros.web

#: Views that a page has at most: of more each so-manieth.
MOST = 200
#: In what blocks of two views differ that are the same otherwise.
_PLACES = ('cursor', 'chosen')
_POLICY = ('<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
           'script-src \'unsafe-inline\'; style-src \'unsafe-inline\'; img-src data:">')


def write_page(folder: Path) -> None:
    """Write page.html beside the report of a demo; ValueError as `Recorded` raises it."""
    recorded = Recorded(folder)
    step = -(-recorded.length // MOST)
    write_atomically(folder / 'page.html', standing_page(
        map(recorded.view, range(0, recorded.length, step)), recorded.picture))


def page_file(name: str) -> str:
    """Return a file of the page of `intradp view`."""
    return (Path(intradp_ros.web.__file__).parent / 'page' / name).read_text()


def standing_page(views: Iterable[Mapping[str, Any]], picture: Callable[[str], bytes | None],
                  ) -> str:
    """Return the page of views as HTML; `picture` returns one that a view names."""
    blocks, pictures = dict[str, int](), dict[str, str]()

    def kept(block: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        if (name := block.get('image')) and name not in pictures and (data := picture(name)):
            kind = 'png' if data.startswith(b'\x89PNG') else 'jpeg'
            pictures[name] = f'data:image/{kind};base64,{base64.b64encode(data).decode()}'
        text = json.dumps({key: value for key, value in block.items() if key not in _PLACES},
                          allow_nan=False)
        return blocks.setdefault(text, len(blocks)), {
            key: block[key] for key in _PLACES if key in block}

    said = json.dumps([{**view, 'sections': [
        {**section, 'blocks': [*map(kept, section['blocks'])]} for section in view['sections']]}
        for view in views], allow_nan=False)
    data = (f'{{"views": {said}, "pictures": {json.dumps(pictures)}, '
            f'"blocks": [{", ".join(blocks)}]}}').replace('<', '\\u003c')
    page, style, script = map(page_file, ('page.html', 'page.css', 'page.js'))
    for old, new in (('<meta charset="utf-8">', f'<meta charset="utf-8">\n{_POLICY}'),
                     ('<link rel="stylesheet" href="page.css">', f'<style>\n{style}</style>'),
                     ('<script src="page.js"></script>',
                      f'<script id="kept" type="application/json">{data}</script>\n'
                      f'<script>\n{script}</script>')):
        assert page.count(old) == 1, old
        page = page.replace(old, new)
    return page
