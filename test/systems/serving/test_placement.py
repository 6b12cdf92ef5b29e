# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Placements beside brute force, and what they must keep."""
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from intradp_lab.serving.pooled import pooled
from intradp_ros.systems.serving import placement, placement_kernels
from intradp_ros.systems.serving.placement import (
    candidates,
    checked,
    demand,
    fluid,
    improve,
    place,
)


def best_of_all(d):
    """Return the most that any placement answers, by trying all largest sets of every lane."""
    lanes, services = d.rate.shape
    sets = []
    for lane in range(lanes):
        fit = [one for one in product((False, True), repeat=services)
               if d.nbytes[list(one)].sum() <= d.room[lane]
               and all(d.shares[a, b] for a in np.flatnonzero(one) for b in np.flatnonzero(one))]
        sets.append([one for one in fit if not any(
            one != other and all(x <= y for x, y in zip(one, other)) for other in fit)])
    return max(fluid(d, np.array(one)) for one in product(*sets))


def small_case(rng, share=1.0):
    """Return a case of 3 sites and 4 services as the measured ones are."""
    rate = rng.uniform(5, 60, (1, 4)) * rng.uniform(0.5, 2, (3, 1))
    asked = rng.uniform(1, 60, 4) * rng.choice([0.3, 1, 2])
    shares = rng.random((4, 4)) < share
    return demand(rng.dirichlet(np.ones(3), 4).T * asked, rate, rng.uniform(1, 4, 4),
                  rng.uniform(3, 7, 3), shares=shares & shares.T | np.eye(4, dtype=bool))


@pytest.mark.parametrize('share', [1.0, 0.7])
def test_greedy_is_near_the_best_of_all_placements(share):
    rng = np.random.default_rng(3)
    ratios, better = [], []
    for _ in range(7):
        d = small_case(rng, share)
        best, found = best_of_all(d), candidates(d)
        chosen = checked(found, lambda one, d=d: fluid(d, one.placed))
        ratios.append(fluid(d, chosen.placed) / best)
        improved = improve(d, chosen, lambda one, d=d: fluid(d, one.placed))
        better.append(fluid(d, improved.placed) / best)
    assert max(better) <= 1 + 1e-9
    assert np.mean(ratios) >= 0.95 and min(ratios) >= 0.75
    assert all(b >= a - 1e-9 for a, b in zip(ratios, better)) and np.mean(better) >= 0.97


cases = st.integers(0, 2**32 - 1)


@settings(max_examples=60)
@given(cases, st.integers(1, 6), st.integers(1, 5), st.booleans())
def test_memory_sharing_and_demand_are_kept(seed, lanes, services, travel):
    rng = np.random.default_rng(seed)
    sites = max(1, lanes // 2)
    shares = rng.random((services, services)) < 0.6
    d = demand(
        rng.uniform(0, 50, (sites, services)), rng.uniform(0, 40, (lanes, services)).round(-1),
        rng.uniform(0, 4, services), rng.uniform(0, 9, 2), rng.integers(0, 2, lanes),
        rng.integers(0, sites, lanes), rng.random(services) < (0.5 if travel else 0),
        shares & shares.T | np.eye(services, dtype=bool))
    for one in candidates(d, first=[(0, 0), (0, 0), (lanes - 1, services - 1)]):
        for device in range(2):
            used = one.placed[d.device == device] @ d.nbytes
            assert used.sum() <= d.room[device] + 1e-9
        for lane in range(lanes):
            held = np.flatnonzero(one.placed[lane])
            assert d.shares[np.ix_(held, held)].all()
            assert (d.rate[lane, held] > 0).all()
        assert one.answered <= fluid(d, one.placed) + 1e-6, 'the greedy count can be carried out'
        assert fluid(d, one.placed) <= d.asked.sum() + 1e-6


@settings(max_examples=40)
@given(cases)
def test_the_heap_finds_what_trying_all_finds(seed):
    """Each placement has the largest gain of all that are left."""
    rng = np.random.default_rng(seed)
    d = small_case(rng, 0.8)._replace(travels=rng.random(4) < 0.7, close=float(rng.random()))
    left = placement.untouched(d)
    while True:
        gains = np.array([[placement_kernels.gain(d, left, n, s) for s in range(4)]
                          for n in range(3)])
        if gains.max() <= 0:
            break
        placement_kernels.put(d, left, *(int(k) for k in np.unravel_index(gains.argmax(),
                                                                          gains.shape)))
    assert (place(d).placed == left.placed).all()


def test_what_is_leased_comes_first_though_it_gains_nothing():
    d = demand(np.array([[0.0, 9.0]]), np.array([[5.0, 5.0]]), np.array([2.0, 2.0]),
               np.array([3.0]))
    assert place(d).places == ((0, 1),)
    assert place(d, [(0, 0)]).places == ((0, 0),)
    assert place(d, [(0, 0), (0, 1)]).places == ((0, 0),), 'only what fits'


def test_requests_that_cannot_travel_are_answered_where_they_come():
    asked = np.array([[9.0, 0.0], [0.0, 9.0]])
    d = demand(asked, np.full((2, 2), 5.0), np.ones(2), np.ones(2), travels=np.zeros(2, bool))
    assert place(d).places == ((0, 0), (1, 1)) and place(d).answered == pytest.approx(10)
    swapped = np.array([[False, True], [True, False]])
    assert fluid(d, swapped) == 0
    assert fluid(d._replace(travels=np.ones(2, bool)), swapped) == pytest.approx(10)


def test_left_over_memory_of_several_sites_is_pooled():
    d = demand(np.array([[4.0, 6.0], [4.0, 6.0]]), np.array([[9.0, 0.0], [9.0, 0.0]]),
               np.array([1.0, 5.0]), np.array([4.0, 4.0]))
    found = place(d)
    assert found.answered == pytest.approx(8)
    more, one = pooled(d, found, np.array([0.0, 3.0]))
    assert one.places == ((0, 1),) and more == pytest.approx(3 * (2 - 8 / 9))


def test_numbers_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match='below 0'):
        demand(np.array([[-1.0]]), np.array([[1.0]]), np.ones(1), np.ones(1))
    with pytest.raises(ValueError, match='need a device of 1'):
        demand(np.array([[1.0]]), np.ones((2, 1)), np.ones(1), np.ones(1))
