# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""BS chosen by playing the last minute anew, and how a site changes over."""
from dataclasses import replace

import numpy as np
import pytest
from whole_site import check_whole

from intradp_lab.serving.batch_choice import replayed_sizes
from intradp_lab.serving.optimum import exact
from intradp_lab.serving.policies import replay
from intradp_ros.systems.serving.allocator import largest_batch
from intradp_ros.systems.serving.arrivals import arrivals, merged, poisson
from intradp_ros.systems.serving.service_table import exact_table
from intradp_ros.systems.serving.site_arrays import Asked, make_site, Place
from intradp_ros.systems.serving.site_functions import PLAIN, site_functions
from intradp_ros.systems.serving.world import even_hops, SimulatedSite, World

#: A batch of 8 takes 2.4 times as long as one row.
PAYS = tuple(0.01 * (0.8 + 0.2 * b) for b in range(1, 9))


def one_site(size, executors=1, seconds=PAYS):
    return SimulatedSite(executors, tuple(Place(k, 0, size, seconds) for k in range(executors)))


def answered(size, asked, seconds=PAYS):
    return replay(World((one_site(size, 1, seconds),), 1, even_hops(1, 0)), asked).in_time


@pytest.mark.parametrize('tight', [1.1, 1.5, 2.0])
def test_a_minute_chooses_what_is_good_in_the_next_one(tight):
    """Where not even two batches fit, the rule is far below the best fixed size."""
    deadline, gains = tight * PAYS[-1], []
    by_rule = largest_batch(exact_table(PAYS), deadline)
    for load in (0.8, 1.2, 2.0):
        before, after = (arrivals(poisson(load * 8 / PAYS[-1], 3000, seed), deadline)
                         for seed in (1, 2))
        size, = replayed_sizes(one_site(by_rule), before)
        best = max(answered(b, after) for b in range(1, 9))
        found, rule = answered(size, after), answered(by_rule, after)
        assert found >= 0.98 * best and found >= 0.995 * rule
        assert found <= exact(after.time, after.deadline, PAYS)
        gains.append(found / rule)
    assert max(gains) > 1.1 or tight == 2.0


def test_only_a_margin_changes_what_runs_well():
    asked = arrivals(poisson(20.0, 500, 1), 1.0)
    for size in (1, 4, 8):
        assert replayed_sizes(one_site(size, 2), asked) == (size, size), 'all are answered'
    busy = arrivals(poisson(2 * 8 / PAYS[-1], 3000, 1), 3 * PAYS[-1])
    assert replayed_sizes(one_site(1), busy) == (8,)
    assert replayed_sizes(one_site(1), busy, sizes={0: (1, 2, 4)}) == (4,)
    assert replayed_sizes(one_site(1), busy, sizes={}) == (1,)
    assert replayed_sizes(one_site(1), busy, margin=1.0) == (1,)
    assert replayed_sizes(one_site(1), arrivals([], 1.0)) == (1,)


def test_services_of_one_executor_are_chosen_by_what_both_answer():
    """A long batch of one would make the other late; alone it would be chosen."""
    slow = tuple(5 * one for one in PAYS)
    both = SimulatedSite(1, (Place(0, 0, 1, PAYS), Place(0, 1, 1, slow)))
    few = merged(arrivals(poisson(30.0, 600, 1), 0.06), arrivals(poisson(6.0, 120, 2), 0.6, 0, 1))
    sizes = replayed_sizes(both, few)
    alone = replayed_sizes(replace(both, places=both.places[1:]), arrivals(
        poisson(40.0, 600, 2), 0.6, 0, 1))

    def value(chosen):
        site = replace(both, places=tuple(replace(place, size=size)
                                          for place, size in zip(both.places, chosen)))
        return replay(World((site,), 2, even_hops(1, 0)), few).in_time
    assert value(sizes) >= max(value((a, b)) for a in (1, 2, 8) for b in (1, 8)) * 0.97
    assert alone[0] > 2


def test_the_simulator_goes_over_to_what_is_chosen():
    deadline = 1.2 * PAYS[-1]
    size = largest_batch(exact_table(PAYS), deadline)
    asked = arrivals(poisson(2 * 8 / PAYS[-1], 9000, 3), deadline)
    world = World((one_site(size),), 1, even_hops(1, 0))
    asked_for = []

    def rechoose(site, came):
        asked_for.append((site.places[0].size, len(came.time)))
        return replayed_sizes(site, came)
    by_rule, changed = replay(world, asked), replay(world, asked, rechoose=rechoose, every=2.0)
    assert sum(changed.fates().values()) == 9000 and changed.late == 0
    assert changed.in_time > 1.1 * by_rule.in_time
    assert asked_for[0][0] == size != asked_for[1][0]
    assert sum(came for _, came in asked_for) == 9000, 'each is told once'
    plain = replay(world, arrivals(asked.time[:800], deadline), compiled=False, every=2.0,
                   rechoose=replayed_sizes)
    quick = replay(world, arrivals(asked.time[:800], deadline), every=2.0,
                   rechoose=replayed_sizes)
    assert (plain.fate == quick.fate).all() and (plain.batch == quick.batch).all()


@pytest.mark.parametrize('compiled', [False, True])
def test_a_place_changes_once_nobody_sits_there(compiled):
    f = site_functions() if compiled else PLAIN
    site = make_site([Place(0, 0, 2, PAYS)], 1, 1)
    seats = [f.take_seat(site, Asked(k, 0, 9.0, 0), 0.0) for k in range(3)]
    assert f.start_batch(site, 0, 0.0) == 2
    site.wanted[0] = 8
    assert f.take_seat(site, Asked(4, 0, 9.0, 0), 0.0).executor == -1, 'it is closing'
    f.end_batch(site, 0, 0.1)
    assert f.start_batch(site, 0, 0.1) == 1 and site.size[0] == 2
    check_whole(site)
    later = [f.take_seat(site, Asked(k, 0, 9.0, 0), 0.1) for k in range(5, 14)]
    assert site.size[0] == 8 and [one.batch for one in later] == [0] * 8 + [1]
    assert later[-1].finish == pytest.approx(0.1 + PAYS[0] + 2 * PAYS[7])
    assert np.isfinite([one.finish for one in seats]).all()
    check_whole(site)
