# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a profile says of moving bytes, and which costs follow from it."""
from __future__ import annotations

from dataclasses import replace
import json

import pytest
from synthetic import random_split_graph

from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES
from intradp_ros.profiling.profile import OperatorTiming, Profile, TransportCost
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import ROBOT, SERVER

MOVING = TransportCost(1e-3, 1e-8, 2e-3, 2e-8)
PROFILE = Profile('digest', 2, 'device', 2, (OperatorTiming((1, 8), (0.1, 0.4)),), 0.4,
                  cores=2, moving=MOVING)


def test_it_goes_through_json_and_older_profiles_know_nothing_of_it() -> None:
    assert Profile.from_json(PROFILE.to_json()) == PROFILE
    data = json.loads(PROFILE.to_json())
    del data['moving'], data['cores']
    older = Profile.from_json(json.dumps(data))
    assert older == replace(PROFILE, moving=TransportCost(), cores=0) and not older.crowded


@pytest.mark.parametrize('moving', [{'send_byte': -1.0}, {'send_byte': float('inf')},
                                    {'other': 1.0}, [1.0], None])
def test_what_is_no_cost_is_refused(moving: object) -> None:
    data = json.loads(PROFILE.to_json())
    with pytest.raises(ValueError, match='not a profile'):
        Profile.from_json(json.dumps({**data, 'moving': moving}))


@pytest.mark.parametrize('text', ['[]', '3', '{}', '{"format": "fleet", "stages": []}'])
def test_other_json_is_no_profile(text: str) -> None:
    with pytest.raises(ValueError, match='not a profile: it has no timings'):
        Profile.from_json(text)


def test_chunks_and_bytes_of_a_transfer() -> None:
    assert MOVING.sending(0) == pytest.approx(1e-3)
    chunk = LEAST_CHUNK_BYTES
    assert MOVING.sending(chunk) == pytest.approx(1e-3 + 1e-8 * chunk)
    assert MOVING.receiving(chunk + 1) == pytest.approx(4e-3 + 2e-8 * (chunk + 1))


def test_what_an_encoding_makes_smaller_has_fewer_chunks() -> None:
    chunk = LEAST_CHUNK_BYTES
    assert MOVING.sending(2 * chunk, 2 * chunk, 0.5) == pytest.approx(1e-3 + 1e-8 * chunk)
    assert MOVING.receiving(8 * chunk, 4 * chunk, 0.01) == pytest.approx(
        4e-3 + 2e-8 * 0.08 * chunk)


def test_only_devices_without_a_free_core_pay() -> None:
    split = random_split_graph(5, operators=1)
    roomy = replace(PROFILE, cores=3)
    assert PROFILE.crowded and not roomy.crowded
    cost = CostModel.from_profiles(split, {ROBOT: PROFILE, SERVER: roomy})
    assert cost.moving == {ROBOT: MOVING}
