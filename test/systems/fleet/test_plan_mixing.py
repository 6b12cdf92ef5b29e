# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Mixes of plans against a mixed-integer program over all plans."""
from hypothesis import example, given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from intradp_ros.systems.fleet.plan_mixing import Choice, Mix, mix_plans, required_work

CHOICES = st.lists(st.builds(
    Choice, st.uuids().map(str), st.floats(0.1, 10), st.floats(1, 50),
    st.sampled_from([0.0, 0.0, 0.5, 2.0])), min_size=1, max_size=5)


def least_joules(choices, horizon, work):
    """Return the least energy by any number of plans; None where none does the work."""
    n = len(choices)
    watts, rates = [c.watts for c in choices], [c.rate for c in choices]
    pauses = [c.pause for c in choices]
    costs = np.array(watts + [w * p for w, p in zip(watts, pauses)])
    rows = [LinearConstraint(np.array(rates + [0.0] * n), work, np.inf),
            LinearConstraint(np.array([1.0] * n + pauses), -np.inf, horizon)]
    for k in range(n):
        row = np.zeros(2 * n)
        row[k], row[n + k] = 1, -horizon
        rows.append(LinearConstraint(row, -np.inf, 0))
    found = milp(costs, constraints=rows, integrality=[0] * n + [1] * n,
                 bounds=Bounds([0.0] * 2 * n, [horizon] * n + [1.0] * n))
    return found.fun if found.success else None


@settings(max_examples=60)
# Less work than the solver's tolerance would be none to it.
@given(CHOICES, st.floats(5, 50), st.floats(0.001, 1.2))
@example([Choice('a', 1.0, 1.0, 0.5)], 5.0, 0.001)
def test_two_plans_are_as_good_as_any_number(choices, horizon, part):
    work = part * horizon * max(c.rate for c in choices)
    exact = least_joules(choices, horizon, work)
    mix = mix_plans(choices, horizon, work)
    if exact is None:
        assert mix.work < work
        return
    assert mix.work >= work * (1 - 1e-6)
    # More than two can help only by pauses; those are whole, so that two suffice here too.
    assert mix.joules <= exact * (1 + 1e-6) + 1e-6


def test_work_that_is_left_is_spread_over_the_time_that_is_left():
    assert required_work(600, 60, 6) == pytest.approx(60)
    assert required_work(600, 5, 6) == 600


def test_a_slow_frugal_plan_is_mixed_with_a_fast_one():
    mix = mix_plans([Choice('slow', 1, 1), Choice('fast', 3, 10)], 10, 20)
    assert mix == Mix((('slow', 5.0), ('fast', 5.0)), 55.0, 20.0)


def test_nothing_to_mix_is_refused():
    with pytest.raises(ValueError, match='needs a plan'):
        mix_plans([], 10, 1)
