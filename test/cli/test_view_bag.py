# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp view BAG`: what was heard until each moment, and what is not such a bag."""
from __future__ import annotations

import io
import json
from pathlib import Path
import re
from typing import Any

import numpy as np
import PIL.Image
import pytest
from rclpy.serialization import serialize_message
from recorded_bag import BEGIN, recorded, values
from std_msgs.msg import String

from intradp_ros.cli.view_bag import Bag, is_bag
from intradp_ros.nodes.common.bags import BagWriter
from intradp_ros.nodes.common.plain_messages import small_png


def blocks(view: Any, kind: str) -> list[Any]:
    return [block for each in view['sections'] for block in each['blocks']
            if block['kind'] == kind]


def test_a_moment_shows_what_was_heard_until_then(tmp_path: Path) -> None:
    path = recorded(tmp_path / 'bag')
    assert is_bag(path) and is_bag(next(path.glob('*.db3'))) and not is_bag(tmp_path)
    found = Bag(path)
    assert found.length == 40
    last = found.view(39, {})
    assert last['step'] == '19.0 of 19.0 s' and (last['live'], last['notes']) == (False, [])
    [bars] = blocks(last, 'frames')
    assert [row['values'][2] for row in bars['rows']] == [40.5 + k for k in range(20)]
    machines = {m['name']: m for b in blocks(last, 'map') for m in b['machines']}
    assert machines['b']['lines'][:2] == ['out for 9 s', 'b refuses: too hot']
    early = found.view(19, {'frame': '/robot 3'})  # 9.5 s
    assert 'b refuses' not in json.dumps(early)
    [bars] = blocks(early, 'frames')
    assert len(bars['rows']) == 10 and bars['chosen'] == '/robot 3'
    assert early['sections'][1]['blocks'][2]['rows'][0] == ['frame', '3']
    assert Bag(path).view(19, {'frame': '/robot 3'}) == early
    assert found.view(39, {}) == last
    assert found.view(999_999)['at'] == 39 and found.view(-1)['at'] == 0


def test_its_pictures(tmp_path: Path) -> None:
    found = Bag(recorded(tmp_path / 'bag', 4))
    for step, k in ((2, 1), (6, 3), (0, 0)):
        [rows] = blocks(found.view(step), 'bands')
        assert rows['image'] == '/robot/debug_image'
        assert found.picture('/robot/debug_image') == small_png(values(k))
    grey = np.asarray(PIL.Image.open(io.BytesIO(small_png(values(0)))))
    assert grey.shape == (6, 8) and (grey[0, 0], grey[-1, -1]) == (0, 255)
    assert found.picture('/camera') is None


@pytest.mark.parametrize('change', [{'width': 2**31}, {'step': 3}, {'encoding': 'x'},
                                    {'height': 0}, {'data': b'1'}])
def test_a_picture_that_is_none_is_refused(change: Any) -> None:
    message = values(0)
    for name, value in change.items():
        setattr(message, name, value)
    with pytest.raises(ValueError, match='image|encoding'):
        small_png(message)


def test_what_is_not_such_a_bag_is_refused_by_name(tmp_path: Path) -> None:
    writer = BagWriter(tmp_path / 'chat')
    writer.topic('/chatter', 'std_msgs/msg/String')(BEGIN, serialize_message(String(data='x')))
    writer.close()
    with pytest.raises(ValueError, match=re.escape(str(tmp_path)) + '.*ros2 bag record'):
        Bag(tmp_path / 'chat')
    path = recorded(tmp_path / 'bag', 1)
    next(path.glob('*.db3')).write_bytes(b'x' * 999)
    with pytest.raises(ValueError, match='cannot be read as a bag'):
        Bag(path)
    (path / 'metadata.yaml').write_text('{')
    with pytest.raises(ValueError, match='cannot be read as a bag'):
        Bag(path)
