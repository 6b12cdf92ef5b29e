# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a token takes is measured once for a model and a machine."""
from __future__ import annotations

from dataclasses import replace
import json
from pathlib import Path

import pytest
from tiny_language_model import save_tiny_model

from intradp_ros.blobs.store import BlobStore
from intradp_ros.systems.language import measure
from intradp_ros.systems.language.import_model import import_model
from intradp_ros.systems.language.measure import measured_blocks


def test_a_model_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('INTRADP_CACHE', str(tmp_path / 'cache'))
    store = BlobStore(tmp_path / 'blobs', 1 << 30)
    manifest = import_model(save_tiny_model(tmp_path / 'model'), store.put)
    first = measured_blocks(manifest, store)
    assert min(first.attention, first.mlp, first.head, first.memory_rate) > 0
    [kept] = (tmp_path / 'cache' / 'profiles').glob('blocks-*.json')
    assert measured_blocks(manifest, BlobStore(tmp_path / 'none', 1 << 20)) == first
    other = {'attention': 1.0, 'mlp': 2.0, 'head': 3.0, 'memory_rate': 4.0, 'blocks': [5.0] * 6}
    kept.write_text(json.dumps(other))
    assert measured_blocks(manifest, store).mlp == 2.0
    for damaged in ('', '[]', '{"attention": 1.0}', kept.read_text().replace('2.0', '-2.0'),
                    kept.read_text().replace('2.0', 'NaN'),
                    *(json.dumps(other | {'blocks': bad}) for bad in ([5.0], 5.0, ['x'] * 6))):
        kept.write_text(damaged)
        assert measured_blocks(manifest, store).head != 3.0
    with pytest.raises(OSError, match='is not in'):  # another model is another measurement
        measured_blocks(replace(manifest, digest='0' * 64), BlobStore(tmp_path / 'none', 1 << 20))


def test_other_hardware_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('INTRADP_CACHE', str(tmp_path / 'cache'))
    store = BlobStore(tmp_path / 'blobs', 1 << 30)
    manifest = import_model(save_tiny_model(tmp_path / 'model'), store.put)
    measured_blocks(manifest, store)
    monkeypatch.setattr(measure, 'device_name', lambda: 'another processor')
    measured_blocks(manifest, store)
    assert len([*(tmp_path / 'cache' / 'profiles').glob('blocks-*.json')]) == 2
