# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Files that users name are files: nothing waits for a pipe or reads a device without end."""
from __future__ import annotations

from collections.abc import Callable
import os
from pathlib import Path
from typing import Any

import pytest

from intradp_lab.serving.recorded import read_azure
from intradp_ros.cluster.fleet_file import read_fleet
from intradp_ros.core.json_text import read_text
from intradp_ros.core.plain_file import open_to_read
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.graph.serialise import load_graph, load_notes
from intradp_ros.nodes.training.bag_images import labels_of_csv
from intradp_ros.perception.card_sources import read_card
from intradp_ros.perception.labels import parse_labels
from intradp_ros.runtime.models.weight_file import read_weights
from intradp_ros.systems.serving.placement_plan import read_placement
from intradp_ros.systems.serving.service import read_services
from intradp_ros.systems.training.layers.checkpoint import read_checkpoint
from intradp_ros.web.access import ApiKeys, own_key

READERS: tuple[Callable[[Path], Any], ...] = (
    open_to_read, read_text, read_fleet, read_services, SharedKey.load, load_graph, load_notes,
    read_card, lambda path: parse_labels(str(path)), lambda path: read_weights(path, 10.0),
    labels_of_csv, read_azure, read_placement, read_checkpoint, ApiKeys.load, own_key)


@pytest.mark.parametrize('read', READERS, ids=lambda read: getattr(read, '__name__', 'read'))
def test_what_is_not_a_file_is_refused_at_once(read: Callable[[Path], Any], tmp_path: Path,
                                               ) -> None:
    pipe = tmp_path / 'pipe.txt'
    os.mkfifo(pipe, 0o600)
    device = tmp_path / 'device.txt'
    device.symlink_to('/dev/zero')
    (tmp_path / 'folder.txt').mkdir(0o700)
    for path in (pipe, device, tmp_path / 'folder.txt'):
        with pytest.raises((OSError, ValueError), match='not a file|others may read'):
            read(path)


def test_a_file_is_opened(tmp_path: Path) -> None:
    (tmp_path / 'file').write_text('text')
    with open_to_read(tmp_path / 'file') as stream:
        assert stream.read() == b'text'
    with pytest.raises(FileNotFoundError):
        open_to_read(tmp_path / 'none')


@pytest.mark.parametrize('data', [b'', b'# none', bytes(range(128, 160)),
                                  b'dock 0123456789abcdef\nhall fedcba9876543210\n'])
def test_a_file_of_no_or_many_api_keys_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / 'robot.key'
    path.touch(0o600)
    for one in (b'# mine\nrobot1 0123456789abcdef\n', b'0123456789abcdef'):
        path.write_bytes(one)
        assert own_key(path) == '0123456789abcdef'
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r'robot\.key must hold one API key'):
        own_key(path)
