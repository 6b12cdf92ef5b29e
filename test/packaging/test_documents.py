# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Links between documents lead somewhere."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
import re

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / 'README.md', *sorted((ROOT / 'doc').rglob('*.md'))]


def anchors(document: Path) -> set[str]:
    """Return the names that headings have on GitHub."""
    return {re.sub(r'[^\w\- ]', '', heading.lower()).strip().replace(' ', '-')
            for heading in re.findall(r'^#+ (.*)$', document.read_text(), re.MULTILINE)}


def broken(document: Path) -> Iterator[str]:
    """Yield the links to files and headings that are not there."""
    for link in re.findall(r'\]\(([^)\s]+)\)', document.read_text()):
        name, _, heading = link.partition('#')
        target = document.parent / name if name else document
        if not re.match(r'\w+:', link) and not (
                target.exists() and (not heading or heading in anchors(target))):
            yield link


@pytest.mark.parametrize('document', DOCUMENTS, ids=lambda path: path.name)
def test_links(document: Path) -> None:
    assert not list(broken(document))


def test_broken_links_are_found(tmp_path: Path) -> None:
    path = tmp_path / 'page.md'
    path.write_text('# A b\n[1](#a-b) [2](page.md#a-b) [3](#c) [4](no.md) [5](https://c.d/e#f)')
    assert list(broken(path)) == ['#c', 'no.md']
