# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A profile with impossible numbers is refused when it is read, not when it is used."""
from __future__ import annotations

import json
from typing import Any

import pytest

from intradp_ros.profiling.profile import OperatorTiming, Profile

PROFILE = Profile('digest', 2, 'device', 1, (OperatorTiming((1, 2), (0.1, 0.2)),), 0.2)


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(PROFILE.to_json()), **changes})


def power(**changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(PROFILE.to_json())['power']
    return {**known, **changes}


def test_a_good_profile_is_read() -> None:
    assert Profile.from_json(changed()) == PROFILE


@pytest.mark.parametrize(('once', 'lowest'), [(0.0, 2.0), (2.0, 3.0)])
def test_below_the_lowest_height_half_is_left_and_all_of_what_is_taken_once(
        once: float, lowest: float) -> None:
    table = OperatorTiming((4, 8), (4.0, 8.0), once=once).table(8)
    assert table.tolist() == [0.0, lowest, max(2.0, lowest), 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


@pytest.mark.parametrize(('changes', 'message'), [
    ({'whole_seconds': 1e308}, 'below 1e.06 seconds'),
    ({'scale': float('inf')}, 'below 1e.06 seconds'),
    ({'scale': float('nan')}, 'times must be positive'),
    ({'timings': [{'rows': [1], 'seconds': [1e300]}]}, 'bad timing'),
    ({'timings': [{'rows': [1], 'seconds': [1.0], 'least': [0.5, 0.5]}]}, 'bad timing'),
    ({'timings': [{'rows': [1], 'seconds': [1.0], 'least': [-0.5]}]}, 'bad timing'),
    ({'timings': [{'rows': [1], 'seconds': [1.0], 'once': -0.5}]}, 'bad timing'),
    ({'least_seconds': -1.0}, 'shortest time -1'),
    ({'spread': float('nan')}, 'spread nan'),
    ({'joining': {'once': 0.0, 'byte': -1e-9}}, 'bad cost of joining rows'),
    ({'axis': -1}, 'axis -1'),
    ({'threads': 0}, '0 threads'),
    ({'power': power(compute=float('nan'))}, 'bad power'),
    ({'power': power(receive=-1.0)}, 'bad power'),
    ({'power': power(send='much')}, 'could not convert'),
    ({'power': {}}, 'missing 4 required'),
])
def test_impossible_numbers_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Profile.from_json(changed(**changes))
