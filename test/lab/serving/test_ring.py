# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Rows of all sites go round a ring: how old they get, what is sent, and what faults do."""
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from intradp_lab.serving.ring import (
    bound,
    LEAST_REFRESH,
    PERIOD,
    PROBATION,
    refresh,
    RELAPSE,
    RingMessage,
    RingRow,
    RingSite,
    ROWS,
    SILENT,
)
from intradp_lab.serving.ring_world import Absence, play_ring

HOP = 0.004


def even(i, j, now):
    return HOP


def oldest_known(found, sites, start, stop):
    """Return, by receiver and origin, the greatest age of what was known within a time."""
    worst = np.full((sites, sites), np.inf)
    for i in range(sites):
        mine = slice(found.first[i], found.first[i + 1])
        time, of, made = found.time[mine], found.of[mine], found.made[mine]
        for j in range(sites):
            when, what = time[of == j], made[of == j]
            assert (np.diff(what) > 0).all(), 'an older row took the place of a newer one'
            assert (when >= what).all()
            k = np.searchsorted(when, start, 'right') - 1
            if k >= 0:
                until = np.minimum(np.append(when[k + 1:], stop), stop)
                worst[i, j] = (until - what[k:])[when[k:] <= stop].max()
    np.fill_diagonal(worst, 0)
    return worst


@pytest.mark.parametrize('sites', [17, pytest.param(40, marks=pytest.mark.slow),
                                   pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize('phases', ['even', 'odd'])
def test_rows_of_all_reach_all_within_the_bound_and_no_site_sends_more_than_another(sites, phases):
    begins = np.random.default_rng(sites).uniform(0, refresh(sites), sites)
    first = bound(sites, HOP) + refresh(sites)
    found = play_ring(sites, even, 0.0, first + 2.5, phases=begins if phases == 'odd' else ())
    worst = oldest_known(found, sites, first, first + 2.5)
    assert worst.max() <= bound(sites, HOP) + PERIOD
    assert worst.max() >= sites // 2 * (PERIOD + HOP) / 2, 'that is how far it is'
    sent = found.rows[:, 1:-1]
    assert sent.max() <= 2 * ROWS / PERIOD * 1.02, 'of any number of sites'
    assert found.messages.max() <= 4 / PERIOD * 1.02


def cut(*lost):
    """Return links of which some carry nothing, and some are slow, within times."""
    def seconds(i, j, now):
        for pair, start, stop, slow in lost:
            if {i, j} == set(pair) and start <= now < stop:
                return slow
        return HOP
    return seconds


@pytest.mark.parametrize('still', [False, True])
def test_sites_that_die_or_lie_still_are_bypassed_and_come_back(still):
    sites, start, stop = 17, 2.0, 3.5
    gone = [Absence(4, start, stop, still), Absence(5, start, stop, still),
            Absence(13, start + 0.1, stop, still)]
    end = stop + PROBATION + 2.5
    found = play_ring(sites, even, 0.0, end, gone)
    there = np.setdiff1d(np.arange(sites), [4, 5, 13])
    worst = oldest_known(found, sites, 1.5, end)[np.ix_(there, there)]
    assert worst.max() <= bound(sites, HOP, 2) + refresh(sites)
    after = oldest_known(found, sites, stop + PROBATION + bound(sites, HOP, 1), end)
    assert after.max() <= bound(sites, HOP) + PERIOD, 'the ring is whole again'
    assert found.messages.max() <= 4 / PERIOD * 1.02 + 4


def test_links_that_break_or_are_slow_part_nobody():
    lost = cut(((2, 3), 2.0, 4.0, np.inf), ((9, 10), 2.0, 4.5, 0.4), ((15, 16), 2.0, 4.5, 0.25))
    found = play_ring(17, lost, 0.0, 8.0)
    during = oldest_known(found, 17, 3.5, 4.5)
    assert during.max() <= bound(17, HOP, 1) + 0.4 + 0.25 + SILENT
    after = oldest_known(found, 17, 7.0, 8.0)
    assert after.max() <= bound(17, HOP) + PERIOD


class Two:
    """Two of three sites by hand: the third never answers."""

    def __init__(self):
        self.now, self.life = 0.0, 7
        self.sites = [RingSite(0, 3, 1, 0.0), RingSite(1, 3, 2, 0.0)]

    def run(self, seconds, silent=False):
        for _ in range(round(seconds / PERIOD)):
            self.now += PERIOD
            sent = [(k, site.look(self.now, lambda: 'x')) for k, site in enumerate(self.sites)]
            for sender, messages in sent:
                for target, message in messages:
                    if target < 2 and not (silent and sender == 1):
                        self.sites[target].heard(message, 0.0, self.now)


def test_each_relapse_doubles_the_probation():
    two = Two()
    two.run(1)
    assert two.sites[0].neighbours == (1, 1), 'the third is bypassed on both sides'
    lasted = []
    for _ in range(4):
        two.run(1.5, silent=True)
        assert two.sites[0].neighbours == (-1, -1)
        begin = two.now
        while two.sites[0].neighbours != (1, 1):
            two.run(PERIOD)
        lasted.append(two.now - begin)
    assert np.diff(np.log2(lasted)) == pytest.approx(1, abs=0.15)
    two.run(RELAPSE * 16 * PROBATION)
    two.run(1.5, silent=True)
    begin = two.now
    while two.sites[0].neighbours != (1, 1):
        two.run(PERIOD)
    assert two.now - begin == pytest.approx(PROBATION, abs=0.2), 'long ago is forgiven'


def test_a_site_that_lay_still_itself_blames_nobody():
    two = Two()
    two.run(1)
    two.now += 5.0
    two.run(2 * PERIOD)
    assert two.sites[0].neighbours == (1, 1) and two.sites[1].neighbours == (0, 0)


def test_a_site_that_starts_anew_is_believed():
    site = RingSite(0, 3, 1, 0.0)
    old = RingRow(1, 5, 100, 0.0, 'old')
    assert site.heard(RingMessage(1, True, True, (old,)), 0.0, 1.0) == [old]
    new = RingRow(1, 6, 0, 0.1, 'new')
    assert site.heard(RingMessage(2, True, True, (new,)), 0.0, 2.0) == [new]
    late = RingRow(1, 5, 101, 1.5, 'late')
    assert site.heard(RingMessage(2, True, True, (late,)), 0.0, 2.1) == []
    assert site.known(2.1) == {1: (pytest.approx(0.2), 'new')}
    assert site.known(1e4) == {}, 'it is gone'


messages = st.lists(st.tuples(
    st.sampled_from([0, 1, 3, 4]), st.booleans(), st.booleans(), st.floats(0, 0.5),
    st.floats(0, 1),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 9),
                       st.floats(0, 3)), max_size=ROWS)), max_size=40)


@given(messages)
@settings(max_examples=25)
def test_whatever_comes_no_row_gets_older_and_what_is_sent_is_bounded(events):
    site, now = RingSite(2, 5, 1, 0.0), 0.0
    seen = {}
    for sender, hears, asks, wait, hop, rows in events:
        now += wait
        site.heard(RingMessage(sender, hears, asks, tuple(RingRow(*row, content=row)
                                                          for row in rows)), hop, now)
        for other, (age, content) in site.known(now).items():
            life, version = content[1:3]
            before, then = seen.get(other, (life, version))
            assert age >= 0 and (life != before or version >= then)
            seen[other] = life, version
        sent = site.look(now, lambda: (2, 1, 0, 0.0))
        assert len(sent) <= 4 and sum(len(message.rows) for _, message in sent) <= 2 * ROWS
        assert all(0 <= target < 5 and target != 2 for target, _ in sent)
        assert 2 not in site.known(now)


def test_what_cannot_be_is_refused():
    for wrong in ({'age': -1.0}, {'age': np.nan}, {'life': -1}, {'version': -1}):
        with pytest.raises(ValueError, match='of a row'):
            RingRow(**{'site': 0, 'life': 0, 'version': 0, 'age': 0.0, 'content': 0, **wrong})
    row = RingRow(9, 0, 0, 0.0, 0)
    with pytest.raises(ValueError, match='number of a site'):
        RingSite(0, 3, 1, 0.0).heard(RingMessage(1, True, True, (row,)), 0.0, 0.0)
    with pytest.raises(ValueError, match='came to itself'):
        RingSite(0, 3, 1, 0.0).heard(RingMessage(0, True, True), 0.0, 0.0)
    with pytest.raises(ValueError, match='rows of a message'):
        RingMessage(0, True, True, (row,) * (ROWS + 1))
    assert refresh(3) == LEAST_REFRESH
