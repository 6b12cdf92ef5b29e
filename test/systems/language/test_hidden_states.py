# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Hidden states of a lane arrive as they left, or are refused before anything is computed."""
from __future__ import annotations

from dataclasses import replace

from language_models import tiny_model
import pytest
import torch

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.systems.language.frames import Arriving, MAX_LANES, Passing, to_chunks
from intradp_ros.systems.language.lanes import Lane, Part
from intradp_ros.systems.language.manifest import COMPUTED
from intradp_ros.wire.frames import MalformedFrameError


@pytest.fixture(scope='module')
def manifest(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp('model'))[0]


def passing(manifest) -> Passing:
    hidden = torch.arange(3.0 * manifest.width, dtype=COMPUTED).view(3, manifest.width)
    return Passing(7, 1, 0, 2, 1, 0, Lane((Part(0, 3, (4,)),)), hidden, (0.5, 0.0))


def arrived(manifest, sent: Passing) -> Passing:
    arriving = Arriving(manifest, stages=2, participants=2, pages=8, most=16)
    *before, last = [arriving.add(chunk) for chunk in to_chunks(PlanId(1, 1), sent, 300)]
    assert before and not any(before)
    return last


def test_they_arrive_as_they_left(manifest) -> None:
    sent = passing(manifest)
    found = arrived(manifest, sent)
    assert torch.equal(found.hidden, sent.hidden)
    assert replace(found, hidden=sent.hidden) == sent


@pytest.mark.parametrize('change', [
    {'waits': (1.1e6, 0.0)}, {'waits': (-1.0, 0.0)}, {'waits': (float('nan'), 0.0)},
    {'waits': (0.5,)}, {'lanes': 0}, {'lanes': MAX_LANES + 1}, {'base': 8},
    {'lane': Lane((Part(0, 4, (4,)),))}], ids=str)
def test_impossible_ones_are_refused(manifest, change) -> None:
    with pytest.raises(MalformedFrameError):
        arrived(manifest, replace(passing(manifest), **change))
