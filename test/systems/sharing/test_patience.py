# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How long a robot waits for rows."""
from __future__ import annotations

import pytest

from intradp_ros.systems.sharing.judge.lateness import AT_ONCE, LateThreshold
from intradp_ros.systems.sharing.policy.patience import (
    LEAST_SLACK,
    MOST_SLACK,
    PatiencePolicy,
)


def waits(policy: PatiencePolicy, elapsed: float, *, ran: float | None = None,
          alone: float = 0.15, quiet: float = 0.0, round_trip: float = 0.0) -> bool:
    return policy.reason_to_stop(elapsed=elapsed, ran=elapsed if ran is None else ran,
                                 predicted=0.1, alone=alone, quiet=quiet,
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


def works_on(ran: float, waited: float, quiet: float = 0.0, slack: float | None = None) -> bool:
    return PatiencePolicy(late_slack=slack).reason_to_work(
        ran=ran, waited=waited, predicted=0.2, alone=0.2, quiet=quiet, round_trip=0.0,
        chunk_time=0.0) is not None


def test_who_waits_works_on_well_before_patience_ends() -> None:
    """After a twentieth, in all and in this wait; or half of a silence, or of a slack given."""
    assert works_on(0.22, 0.02) and not works_on(0.205, 0.02) and not works_on(5.0, 0.005)
    assert PatiencePolicy().margin(0.1, 0.1) == LEAST_SLACK / 2  # short ones wait as they did
    assert works_on(0.2, 0.0, quiet=0.16) and not works_on(0.2, 0.0, quiet=0.14)
    assert not works_on(10.0, 9.0, slack=60.0)


def test_who_was_chosen_to_work_at_once_waits_next_to_nothing() -> None:
    def works(waited: float, at_once: bool, ran: float = 0.01) -> bool:
        return PatiencePolicy(late_slack=9.0).reason_to_work(
            ran=ran, waited=waited, predicted=0.2, alone=0.2, quiet=0.0, round_trip=0.0,
            chunk_time=0.0, at_once=at_once) is not None
    assert works(AT_ONCE.waited * 1.01, at_once=True)
    assert not works(AT_ONCE.waited, at_once=True) and not works(0.01, at_once=False)
    near = [works(0.05, True, ran) for ran in (0.19, 0.194, 0.196, 0.204, 0.206)]
    assert near == [True, True, False, False, True]  # 0.2 s are predicted


def test_lateness_is_prediction_and_margin() -> None:
    patient = PatiencePolicy()
    margin = patient.margin(0.2, 0.5)
    assert patient.lateness(0.2, 0.5) == LateThreshold(0.2 + margin, margin)


def test_the_server_is_not_late_for_what_the_robot_slept() -> None:
    patient = PatiencePolicy(deadline=7.0)
    assert waits(patient, 5.0, ran=0.3) and not waits(patient, 5.0, ran=0.5)
    assert not waits(patient, 7.1, ran=0.3)  # who set a deadline means seconds of the clock


def test_silence_counts_from_what_was_heard_last() -> None:
    patient = PatiencePolicy(late_slack=9.0)
    assert waits(patient, 5.0, quiet=1.99) and not waits(patient, 5.0, quiet=2.01)
    assert waits(patient, 5.0, quiet=2.01, round_trip=0.7)


def test_a_server_is_away_no_sooner_than_it_is_silent() -> None:
    assert PatiencePolicy(silence=5.0).away_after(0.0, 0.0) == 5.0
    assert PatiencePolicy().away_after(0.0, 0.0) == PatiencePolicy().away
