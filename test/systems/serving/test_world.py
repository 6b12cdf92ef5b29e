# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The simulator beside the oracle, bounds, and itself as plain Python."""
import numpy as np
import pytest

from intradp_lab.serving.optimum import exact
from intradp_lab.serving.policies import Memory, POLICIES, replay
from intradp_lab.serving.ring import PROBATION
from intradp_lab.serving.ring_world import replay_ring
from intradp_ros.systems.serving.arrivals import arrivals, poisson, streams_of_robots
from intradp_ros.systems.serving.site_arrays import CANCELLED, IN_TIME, LATE, Place, REFUSED
from intradp_ros.systems.serving.world import (
    capacity,
    even_hops,
    Fault,
    most,
    SimulatedSite,
    World,
)
from intradp_ros.systems.serving.world_kernels import NO_SITE, SITE_LOST

TIMES = tuple(0.01 * (0.5 + 0.5 * b) for b in range(1, 9))
SLOW = tuple(0.03 * (0.5 + 0.5 * b) for b in range(1, 5))


def one_executor(times=TIMES, **more):
    site = SimulatedSite(1, (Place(0, 0, len(times), times),))
    return World((site,), 1, even_hops(1, 0), **more)


def several(sites=4, hop=0.004, **more):
    """Return sites with two executors; the second service is at every other site."""
    places = [(Place(0, 0, 8, TIMES), Place(1, 0, 8, TIMES), Place(1, 1, 4, SLOW)),
              (Place(0, 0, 8, TIMES), Place(1, 0, 4, TIMES))]
    return World(tuple(SimulatedSite(2, places[i % 2]) for i in range(sites)), 2,
                 even_hops(sites, hop), **more)


def some_requests(world, load, count, seed=1):
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(1, len(world.sites) + 1)
    service = (rng.random(count) < 0.12).astype(int)
    return arrivals(poisson(load * capacity(world), count, seed),
                    np.where(service == 0, 3 * TIMES[-1], 3 * SLOW[-1]),
                    rng.choice(len(chance), count, p=chance / chance.sum()), service,
                    priority=rng.integers(0, 2, count), stream=rng.integers(-1, 9, count))


@pytest.mark.parametrize('load', [0.8, 1.2, 2, 10])
@pytest.mark.parametrize('tight', [2.0, 3.0])
def test_seats_reach_the_optimum_and_never_exceed_it(load, tight):
    world, shares = one_executor(), []
    for seed in range(3):
        asked = arrivals(poisson(load * capacity(world), 3000, seed), tight * TIMES[-1])
        found = replay(world, asked, POLICIES['nearest'])
        best = exact(asked.time, asked.deadline, TIMES)
        assert found.in_time <= best <= most(world, asked)
        assert found.late == 0
        mine = found.fate == IN_TIME
        assert (found.finish[mine] <= found.predicted[mine] + 1e-9).all(), 'none overtakes'
        shares.append(found.in_time / best)
    assert np.mean(shares) >= 0.97


def test_other_admissions_collapse_beyond_capacity_where_batches_pay():
    times = tuple(0.01 * (0.8 + 0.2 * b) for b in range(1, 9))
    world = one_executor(times)
    asked = arrivals(poisson(2 * capacity(world), 3000, 1), 2 * times[-1])
    best = exact(asked.time, asked.deadline, times)
    shares = {name: replay(world, asked, POLICIES[name]).in_time / best
              for name in ('nearest', 'earliest deadline', 'first come')}
    assert shares['nearest'] > 0.97
    assert 0.3 < shares['earliest deadline'] < 0.5 and shares['first come'] < 0.1


@pytest.mark.parametrize('name', list(POLICIES))
@pytest.mark.parametrize('spread', [0.0, 0.2])
def test_machine_code_and_plain_python_agree(name, spread):
    world = several(spread=spread, newest=frozenset({1}))
    asked = some_requests(world, 1.3, 400)
    faults = [Fault(1, float(asked.time[100]), float(asked.time[250]))]
    plain, compiled = (replay(world, asked, POLICIES[name], faults, compiled=c,
                              memory=Memory((1.0, 2.0), (0.2, 0.3)))
                       for c in (False, True))
    for field in ('fate', 'why', 'site', 'hops', 'batch', 'events'):
        assert (getattr(plain, field) == getattr(compiled, field)).all()
    assert plain.finish == pytest.approx(compiled.finish, abs=1e-9)
    assert sum(plain.fates().values()) == 400
    assert 0 < plain.in_time < 400


def test_what_is_taken_is_in_time_where_times_are_exact():
    world = several()
    for seed in range(4):
        for load in (0.8, 2):
            asked = some_requests(world, load, 1500, seed)
            found = replay(world, asked)
            assert found.late == 0 and found.in_time <= most(world, asked)
            mine = found.fate == IN_TIME
            assert (found.finish[mine] <= asked.deadline[mine] + 1e-9).all()


def test_forwarding_helps_where_some_sites_have_more_to_do():
    world = several()
    asked = some_requests(world, 0.8, 4000)
    alone = replay(world, asked, POLICIES['nearest'])
    ours = replay(world, asked)
    assert ours.in_time > 1.2 * alone.in_time and alone.transfers == 0
    assert ours.hops.max() <= 5 and ours.wasted < ours.transfers


def test_requests_never_come_to_a_site_twice():
    world = several(6)
    asked = some_requests(world, 2.0, 2000)
    for name in ('ours', 'round robin'):
        found = replay(world, asked, POLICIES[name])
        for path, hops in zip(found.path, found.hops):
            assert len(set(path[:hops + 1])) == hops + 1


def test_the_way_there_and_back_counts():
    """A request that ends in time where it is, but not back at home, is not sent there."""
    sites = (SimulatedSite(1, ()), SimulatedSite(1, (Place(0, 0, 1, (0.05,)),)))
    for remaining, fate in ((0.0705, IN_TIME), (0.0695, REFUSED)):
        world = World(sites, 1, even_hops(2, 0.01))
        found = replay(world, arrivals([1.0], remaining))
        assert found.fate.tolist() == [fate]
    assert found.why.tolist() == [NO_SITE]


def test_rows_that_go_round_a_ring_serve_nearly_as_well_as_those_sent_to_all():
    world = several(30)
    asked = some_requests(world, 0.8, 12000)
    shares = [play(several(30, period=period), asked).share
              for play, period in ((replay, 0.1), (replay_ring, 0.1), (replay, 5.0))]
    assert shares[0] >= shares[1] > shares[2] and shares[1] >= 0.97 * shares[0]


@pytest.mark.parametrize('ring', [False, True])
def test_a_site_that_is_gone_loses_no_request_that_another_has(ring):
    world, play = several(3), replay_ring if ring else replay
    count = 5000 if ring else 3000
    asked = some_requests(world, 0.7, count)
    start, stop = float(asked.time[1000]), float(asked.time[1300 if ring else 2000])
    found = play(world, asked, faults=[Fault(1, start, stop)])
    assert sum(found.fates().values()) == count and found.late == 0
    lost = found.why[found.fate == REFUSED] == SITE_LOST
    gone = (asked.site == 1) & (asked.time >= start) & (asked.time < stop)
    assert 0 < lost.sum() <= gone.sum() + 4 * 8, 'its own clients have lost their gateway'
    after = asked.time > stop + (PROBATION + 1 if ring else 0.5)
    usual = play(world, asked).fate[after] == IN_TIME
    assert after.sum() > 300
    assert (found.fate[after] == IN_TIME).mean() == pytest.approx(usual.mean(), abs=0.01)


def test_newer_frames_replace_waiting_ones():
    """One robot sends twice as fast as the executor computes."""
    when, robot = streams_of_robots(1, 50.0, 4.0, 1)
    world = one_executor((0.04,), newest=frozenset({0}))
    fresh = replay(world, arrivals(when, 0.2, stream=robot))
    stale = replay(one_executor((0.04,)), arrivals(when, 0.2, stream=robot))
    assert fresh.cancelled == pytest.approx(100, abs=3) and fresh.refused == 0
    assert fresh.in_time >= 0.95 * stale.in_time
    assert fresh.seconds.max() < 0.081 < stale.quantile(0.5)


def test_spread_makes_late_what_means_promise_and_not_what_quantiles_do():
    mean, spread = TIMES, 0.1
    promised = tuple(1.2 * one for one in mean)
    late = {}
    for name, places, size in (('mean', mean, 8), ('quantile', promised, 8)):
        world = World((SimulatedSite(1, (Place(0, 0, size, places),), (mean,)),), 1,
                      even_hops(1, 0), spread=spread)
        asked = arrivals(poisson(2 * 8 / mean[-1], 20000, 1), 3 * mean[-1])
        late[name] = replay(world, asked).late_share
    assert late['mean'] > 0.05 and late['quantile'] <= 0.005


def test_what_no_site_has_is_answered_by_nobody_and_bounds_nothing():
    world = World(one_executor().sites, 2, even_hops(1, 0))
    asked = arrivals(np.arange(10.0), 1.0, service=[0, 1] * 5)
    assert replay(world, asked).in_time == most(world, asked) == 5


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match='names a site'):
        replay(one_executor(), arrivals([0.0], 1.0, site=1))
    with pytest.raises(ValueError, match='names a service'):
        replay(one_executor(), arrivals([0.0], 1.0, service=1))
    assert replay(one_executor(), arrivals([], 1.0)).fates() == {
        'in_time': 0, 'late': 0, 'refused': 0, 'cancelled': 0}
    assert {CANCELLED, LATE, IN_TIME, REFUSED} == {0, 1, 2, 3}


def test_a_site_keeps_room_for_what_it_alone_has():
    """What another site could answer as well goes there before this one is full."""
    sites = (SimulatedSite(1, (Place(0, 0, 8, TIMES), Place(0, 1, 8, TIMES))),
             SimulatedSite(1, (Place(0, 0, 8, TIMES),)))
    world = World(sites, 2, even_hops(2, 0.004))
    count = 8000
    asked = arrivals(poisson(0.8 * capacity(world), count, 1), 6 * TIMES[-1], 0,
                     np.arange(count) % 2)
    ours, turn = replay(world, asked), replay(world, asked, POLICIES['round robin'])
    assert ours.fates(1)['refused'] < 0.2 * turn.fates(1)['refused']
    assert ours.in_time > 1.03 * turn.in_time and ours.late == 0
    busy = arrivals(poisson(3 * capacity(world), count, 1), 6 * TIMES[-1], 0, np.arange(count) % 2)
    many = [replay(world, busy, POLICIES[name]) for name in ('ours', 'round robin')]
    assert many[0].in_time > 0.99 * many[1].in_time and many[0].wasted <= many[1].wasted


def test_what_would_never_end_is_refused():
    """A play of rows each 0.1 s until the end of time, and requests without number."""
    endless = float('inf')
    for time in ([0.0, endless], [0.0, 1e300], [float('nan')], [-1e300, 0.0]):
        for policy in (POLICIES['nearest'], POLICIES['ours']):
            with pytest.raises(ValueError, match='requests come within'):
                replay(one_executor(), arrivals(time, 1.0), policy, rechoose=lambda *_: (1,))
    with pytest.raises(ValueError, match='a period is finite'):
        replay(one_executor(period=0.0), arrivals([0.0], 1.0))
    for rate in (endless, float('nan'), 0.0, -1.0, 1e300):
        with pytest.raises(ValueError, match='in a second'):
            streams_of_robots(3, rate, 10.0, 1)
    for rate, count in ((endless, 3), (1.0, 10**12)):
        with pytest.raises(ValueError, match='in a second'):
            poisson(rate, count, 1)
