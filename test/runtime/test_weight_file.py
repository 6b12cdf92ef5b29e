# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Weights for a model that is an archive: another archive, or names that all are in its graph."""
from __future__ import annotations

from collections.abc import Callable
import hashlib
import math
import os
from pathlib import Path
from typing import Any
import zipfile

import pytest
from safetensors.torch import save_file
import small_models
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import GRAPH, PARAMETERS, save_graph
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import AS_GRAPH
from intradp_ros.runtime.models.weight_file import load_weights, read_weights, WeightsError

EXAMPLE = torch.zeros((1, 3, 64, 96), dtype=torch.uint8)


def plain(seed: int) -> nn.Module:
    """Return a network in which nothing is folded."""
    torch.manual_seed(seed)
    return small_models.Pixels(nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(22080, 5)))


def normed(seed: int) -> nn.Module:
    return small_models.Pixels(small_models.seeded(small_models.Mobile, seed=seed))


def archive(path: Path, module: nn.Module) -> Path:
    save_graph(capture(module.eval(), (EXAMPLE,), methods=AS_GRAPH), path)
    return path


@pytest.mark.parametrize('make', [plain, normed])
def test_an_archive_gets_the_weights_of_another(
        tmp_path: Path, make: Callable[[int], Any]) -> None:
    old, new = (archive(tmp_path / f'{n}.graph', make(n)) for n in range(2))
    (tmp_path / 'copy.graph').write_bytes(new.read_bytes())
    weights = read_weights(tmp_path / 'copy.graph', old.stat().st_size,
                           hashlib.sha256(new.read_bytes()).hexdigest())
    assert ModelSpec(str(old)).load().digest != ModelSpec(str(new)).load().digest
    assert ModelSpec(str(old)).load(weights=weights).digest == ModelSpec(str(new)).load().digest
    with pytest.raises(WeightsError, match='made by a factory'):
        load_weights(make(0), weights)


def test_weights_by_name_are_taken_where_nothing_is_folded(tmp_path: Path) -> None:
    old, new = (archive(tmp_path / f'{n}.graph', plain(n)) for n in range(2))
    save_file(plain(1).state_dict(), tmp_path / 'new.safetensors')
    weights = read_weights(tmp_path / 'new.safetensors', old.stat().st_size)
    assert ModelSpec(str(old)).load(weights=weights).digest == ModelSpec(str(new)).load().digest
    half = {name: t.half() for name, t in plain(1).state_dict().items()}
    assert ModelSpec(str(old)).load(weights=half).parameters[
        'body.0.weight'].dtype == torch.float32
    with pytest.raises(WeightsError, match='Batch norm and constants are folded.*model add'):
        ModelSpec(str(archive(tmp_path / 'normed', normed(0)))).load(
            weights=normed(1).state_dict())
    for change, reason in (({'body.0.bias': torch.zeros(5)}, 'body.0.bias is'),
                           ({'body.0.bias': torch.zeros(4, dtype=torch.int64)}, 'body.0.bias is'),
                           ({'body.0.bias': torch.full((4,), math.inf)}, 'not numbers'),
                           ({'body.0.bias': torch.full((4,), 1e300, dtype=torch.float64)},
                            'not numbers'),
                           ({'more': torch.zeros(4)}, 'the model lacks more')):
        with pytest.raises(WeightsError, match=reason):
            ModelSpec(str(old)).load(weights={**plain(1).state_dict(), **change})


def test_other_archives_are_refused(tmp_path: Path) -> None:
    old = archive(tmp_path / 'old.graph', plain(0))
    other = read_weights(archive(tmp_path / 'other.graph', normed(0)), 1e9)
    with pytest.raises(WeightsError, match='archive is of another model'):
        ModelSpec(str(old)).load(weights=other)
    with pytest.raises(WeightsError, match='too many'):
        read_weights(archive(tmp_path / 'other.graph', normed(0)), 10 - (1 << 21))
    with zipfile.ZipFile(old) as whole:
        members = {name: whole.read(name) for name in (GRAPH, PARAMETERS)}
    for name, content, way in (
            ('bomb', {**members, PARAMETERS: bytes(1 << 24)}, zipfile.ZIP_DEFLATED),
            ('cut', {**members, PARAMETERS: members[PARAMETERS][:-8]}, zipfile.ZIP_STORED),
            ('half', {GRAPH: members[GRAPH]}, zipfile.ZIP_STORED),
            ('more', {**members, 'data.pkl': b'x'}, zipfile.ZIP_STORED)):
        with zipfile.ZipFile(tmp_path / name, 'w', way) as made:
            for member, data in content.items():
                made.writestr(member, data)
        with pytest.raises(WeightsError, match='compressed|neither safetensors nor an archive'):
            read_weights(tmp_path / name, 1e9)
    (tmp_path / 'torn').write_bytes(old.read_bytes()[:-40])
    with pytest.raises(WeightsError, match='neither safetensors nor an archive'):
        read_weights(tmp_path / 'torn', 1e9)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / 'pipe')
    for path in (tmp_path, tmp_path / 'pipe'):
        with pytest.raises(WeightsError, match='not a file'):
            read_weights(path, 1e6)
