# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How long a robot waits for rows."""
from __future__ import annotations

import pytest

from intradp_ros.systems.sharing.session.patience import LEAST_SLACK, MOST_SLACK, PatiencePolicy


def waits(policy: PatiencePolicy, elapsed: float, *, alone: float = 0.15, quiet: float = 0.0,
          round_trip: float = 0.0) -> bool:
    return policy.reason_to_stop(elapsed=elapsed, predicted=0.1, alone=alone, quiet=quiet,
                                 round_trip=round_trip, chunk_time=0.0) is None


@pytest.mark.parametrize('alone, slack', [
    (0.15, 0.15), (0.001, LEAST_SLACK), (5.0, MOST_SLACK), (0.0, MOST_SLACK)])
def test_as_long_as_the_robot_takes_alone_beyond_twice_the_prediction(
        alone: float, slack: float) -> None:
    late = 0.2 + slack
    assert waits(PatiencePolicy(), late - 1e-3, alone=alone)
    assert not waits(PatiencePolicy(), late + 1e-3, alone=alone)


def test_what_is_given_counts() -> None:
    assert waits(PatiencePolicy(late_slack=9.0), 9.0)
    assert not waits(PatiencePolicy(late_slack=9.0, deadline=0.5), 0.6)


def test_silence_counts_from_what_was_heard_last() -> None:
    patient = PatiencePolicy(late_slack=9.0)
    assert waits(patient, 5.0, quiet=0.29) and not waits(patient, 5.0, quiet=0.31)
    assert waits(patient, 5.0, quiet=0.31, round_trip=0.2)
