# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Foxglove's layouts: each topic is one that a node may publish, of a type that has the field."""
from __future__ import annotations

from collections.abc import Iterator
import importlib
import json
import re
from typing import Any

from policies import FOLDER, names_of, profiles
import pytest
from requirements import ROOT

LAYOUTS = sorted((ROOT / 'config' / 'foxglove').glob('*.json'))
ROW = re.compile(r'^\| (?:publishes )?`([^`]+)` \| `?(?:(\w+)/)?([A-Z]\w+)`? \|')


def types() -> dict[str, str]:
    """Return the types of topics as the documents name them, by their last names."""
    rows = map(ROW.match, (ROOT / 'doc' / 'nodes.md').read_text().splitlines())
    return {row[1].rpartition('/')[2]: f'{row[2] or "intradp_ros"}/{row[3].removeprefix("msg/")}'
            for row in rows if row}


def paths(panel: dict[str, Any]) -> Iterator[str]:
    yield from (path['value'] for path in panel.get('paths', ()))
    yield from filter(None, (panel.get('topicPath'), panel.get('topicToRender'),
                             panel.get('imageMode', {}).get('imageTopic')))


def panels(layout: Any) -> list[str]:
    return [layout] if isinstance(layout, str) else [
        name for side in ('first', 'second') for name in panels(layout[side])]


def test_there_is_one_for_a_robot_and_one_for_a_fleet() -> None:
    assert [path.stem for path in LAYOUTS] == ['fleet', 'robot']


@pytest.mark.parametrize('path', LAYOUTS, ids=lambda path: path.stem)
def test_each_topic_and_field_of_a_layout_is_there(path: Any) -> None:
    layout, known = json.loads(path.read_text()), types()
    assert sorted(panels(layout['layout'])) == sorted(layout['configById'])
    published = {name for policy in FOLDER.glob('*.policy.xml')
                 for profile in profiles(policy.name.partition('.')[0]).values()
                 for name in names_of(profile, 'topics', 'publish')}
    for panel in layout['configById'].values():
        found = list(paths(panel))
        # the keys that Foxglove and its open fork read titles by; neither reads `title`
        assert found and panel['foxglovePanelTitle'] == panel['lichtblickPanelTitle'] != ''
        for topic, _, field in (each.partition('.') for each in found):
            assert topic in published
            package, kind = known[topic.rpartition('/')[2]].split('/')
            message = getattr(importlib.import_module(f'{package}.msg'), kind)
            assert not field or field in message.get_fields_and_field_types(), (topic, field)
