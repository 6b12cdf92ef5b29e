# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Serving in the simulator beside its targets and bounds: ``python bench/serving.py [--short]``.

admission  one site of 1, 2 and 4 executors, and one executor beside the exact optimum: independent
           requests, mixed deadlines, requests that come as in recorded traces, times that spread
dispatch   3, 6 and 100 sites beside all baselines
state      rows of 30 and 100 sites round a ring: age, bytes, and goodput beside rows sent to all
placement  small cases beside brute force; seconds of large ones
choice     seconds of choosing one of 100 sites

A batch of 8 rows takes 2.4, 4.5 or 5.9 times as long as one row.  Seconds are of a processor, the
best of several; counts do not depend on the machine.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
import json
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from simulator import best_seconds

from intradp_lab.serving.batch_choice import replayed_sizes
from intradp_lab.serving.optimum import exact
from intradp_lab.serving.policies import POLICIES, replay
from intradp_lab.serving.recorded import like_azure
from intradp_lab.serving.ring import bound, MOST_MESHED, refresh
from intradp_lab.serving.ring_world import play_ring, replay_ring
from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.systems.serving.allocator import largest_batch
from intradp_ros.systems.serving.arrivals import Arrivals, arrivals, poisson
from intradp_ros.systems.serving.placement import (
    candidates,
    checked,
    demand,
    fluid,
    improve,
    place,
    Placement,
)
from intradp_ros.systems.serving.placement_kernels import Demand
from intradp_ros.systems.serving.service_table import exact_table, ServiceTable
from intradp_ros.systems.serving.site_arrays import Place
from intradp_ros.systems.serving.site_functions import PLAIN, site_functions
from intradp_ros.systems.serving.site_kernels.dispatch import make_rows
from intradp_ros.systems.serving.world import (
    capacity,
    even_hops,
    most,
    Report,
    SimulatedSite,
    World,
)

#: Seconds of batches of 1 to 8 rows.
TABLES = {name: tuple(0.01 * (1 - more + more * b) for b in range(1, 9))
          for name, more in (('2.4', 0.2), ('4.5', 0.5), ('5.9', 0.7))}
MIDDLE = TABLES['4.5']
#: Bytes of a state row of 20 services, and of a message in addition.
ROW_BYTES, MESSAGE_BYTES = 36 + 26 * 20, 40
OTHERS = [name for name in POLICIES if name not in ('ours', 'least recently used')]


@dataclass(frozen=True)
class Row:
    """One figure: `reached` says whether the target is, None where there is none."""

    part: str
    what: str
    target: str
    measured: str
    bound: str = ''
    reached: bool | None = None


def one_site(executors: int, seconds: Sequence[float], deadline: float, spread: float = 0.0,
             ) -> World:
    """Return a site with one service, in the batches that the allocator chooses."""
    table = ServiceTable(tuple(seconds), tuple(spread * one for one in seconds))
    size, promised = largest_batch(table, deadline), table.quantiles()
    places = tuple(Place(k, 0, size, promised) for k in range(executors))
    return World((SimulatedSite(executors, places, (tuple(seconds),) * executors),), 1,
                 even_hops(1, 0), spread=spread)


def replayed(world: World, before: Arrivals) -> World:
    """Return a single site with the batches that a replay of what came before chooses."""
    site = world.sites[0]
    sizes = replayed_sizes(site, before, world.spread)
    return replace(world, sites=(replace(site, places=tuple(
        replace(place, size=size) for place, size in zip(site.places, sizes))),))


def per_capacity(found: Report, world: World) -> float:
    """Return answers in time by those that full batches make until the last answer."""
    seconds = float(found.finish.max() - found.arrivals.time[0])
    return found.in_time / (capacity(world) * seconds)


def admission(short: bool) -> list[Row]:
    """Play single sites."""
    seeds, count = range(2 if short else 5), 4000 if short else 20000
    rows = []
    for executors in (1, 2, 4):
        shares: dict[float, list[float]] = {0.8: [], 2.0: [], 10.0: []}
        tops = []
        for (load, found), seconds, seed in product(shares.items(), TABLES.values(), seeds):
            world = one_site(executors, seconds, 3 * seconds[-1])
            asked = arrivals(poisson(load * capacity(world), count, seed), 3 * seconds[-1])
            report = replay(world, asked)
            found.append(report.share if load < 1 else per_capacity(report, world))
            if load < 1 and executors == 1:
                tops.append(exact(asked.time[:3000], asked.deadline[:3000], seconds) / 3000)
        name = f'{executors} executor{"s" * (executors > 1)}, deadline 3 t(BS)'
        rows.append(_share(f'{name}, load 0.8: in time', 0.994, shares[0.8],
                           f'optimum {_percent(np.mean(tops))}' if tops else ''))
        rows += [_share(f'{name}, load {load:g}: of capacity', 0.981, shares[load], '100 %')
                 for load in (2.0, 10.0)]
    rows += [*_optimum(short), *_mixed(short), *_recorded(short), *_spread(short)]
    return rows


def _optimum(short: bool) -> list[Row]:
    rows = []
    for tight in (2.0, 3.0, 5.0):
        shares: list[float] = []
        ends: list[float] = []
        for seconds, load, seed in product(TABLES.values(), (0.8, 1.0, 1.2, 2.0, 10.0),
                                           range(1 if short else 3)):
            world = one_site(1, seconds, tight * seconds[-1])
            asked = arrivals(poisson(load * 8 / seconds[-1], 3000, seed), tight * seconds[-1])
            best = exact(asked.time, asked.deadline, seconds)
            shares.append(replay(world, asked).in_time / best)
            ends.append(replay(world, asked, POLICIES['earliest deadline']).in_time / best)
        rows.append(_share(f'of the optimum, deadline {tight:g} t(8), loads 0.8 to 10', 0.97,
                           shares, f'1; earliest deadline first: {np.mean(ends):.3f}',
                           plain=True))
    return rows


def _mixed(short: bool) -> list[Row]:
    shares = []
    for seconds, (near, far), load, seed in product(
            TABLES.values(), ((2, 8), (2, 30), (3, 10)), (0.8, 1.2, 2.0, 10.0),
            range(1 if short else 3)):
        world = one_site(1, seconds, near * seconds[-1])
        rng = np.random.default_rng(seed)
        rate = load * capacity(world)
        asked = arrivals(poisson(rate, 6000, seed),
                         np.where(rng.random(6000) < 0.5, near, far) * seconds[-1])
        report = replay(world, asked)
        span = float(report.finish.max() - asked.time[0])
        shares.append(report.in_time / min(6000, capacity(world) * span))
    return [_share('mixed deadlines, loads 0.8 to 10: of min(requests, capacity x time)', 0.97,
                   shares, '', plain=True)]


def _recorded(short: bool) -> list[Row]:
    rows = []
    for kind, load, target in (('conversations', 0.8, 0.97), ('conversations', 2.0, 0.97),
                               ('code', 0.5, 0.9), ('code', 2.0, 0.9)):
        for tight in (2.0, 3.0, 10.0):
            shares, tops = [], []
            for seed in range(2 if short else 4):
                world = one_site(1, MIDDLE, tight * MIDDLE[-1])
                asked = arrivals(like_azure(kind, load * 8 / MIDDLE[-1], 6000, seed),
                                 tight * MIDDLE[-1])
                best = exact(asked.time, asked.deadline, MIDDLE)
                shares.append(replay(world, asked).in_time / best)
                tops.append(best / 6000)
            rows.append(_share(f'{kind}, load {load:g}, deadline {tight:g} t(8): of the optimum',
                               target, shares, f'optimum in time {_percent(np.mean(tops))}',
                               plain=True))
    return rows


def _spread(short: bool) -> list[Row]:
    rows = []
    for tight in (2.0, 3.0):
        late, shares, ruled = [], [], []
        for seconds, load, seed in product(TABLES.values(), (0.8, 2.0),
                                           range(2 if short else 4)):
            rule = one_site(1, seconds, tight * seconds[-1], 0.1)
            before, asked = (arrivals(poisson(load * 8 / seconds[-1], 6000, one),
                                      tight * seconds[-1]) for one in (seed + 100, seed))
            report, best = replay(replayed(rule, before), asked), exact(
                asked.time, asked.deadline, seconds)
            late.append(report.late_share)
            shares.append(report.in_time / best)
            ruled.append(replay(rule, asked).in_time / best)
        rows.append(Row('admission', f'times spread by 10 %, deadline {tight:g} t(8): taken and '
                        'late', '<= 0.5 %', f'{_percent(np.mean(late))} (worst '
                        f'{_percent(max(late))})', '0', bool(np.mean(late) <= 0.005)))
        rows.append(_share(f'times spread by 10 %, deadline {tight:g} t(8): of the optimum for '
                           'mean times', 0.96, shares, f'1; batches by the rule alone: '
                           f'{np.mean(ruled):.3f}', plain=True))
    return rows


def _share(what: str, target: float, found: Sequence[float], bound: str, plain: bool = False,
           part: str = 'admission') -> Row:
    mean, least = float(np.mean(found)), min(found)
    text: Callable[[float], str] = (lambda one: f'{one:.3f}') if plain else _percent
    return Row(part, what, f'>= {text(target)}', f'{text(mean)} (worst {text(least)})', bound,
               mean >= target)


def _percent(share: Any) -> str:
    return f'{100 * share:.2f} %'


def joined(sites: int, hop: float, some: bool, seed: int = 5) -> World:
    """
    Return sites with two executors each, deadlines being 250 ms.

    One service everywhere; `some`: six services, 20 at 100 sites, each at 40 % of the sites.
    """
    rng = np.random.default_rng(seed)
    services = (20 if sites >= 100 else 6) if some else 1
    scale = rng.uniform(0.5, 1.5, services) if some else np.ones(1)
    held = np.ones((sites, services), bool)
    if some:
        held = np.array([rng.permutation(services) < max(1, round(0.4 * services))
                         for _ in range(sites)])
        for s in np.flatnonzero(~held.any(0)):
            held[rng.integers(sites), s] = True
    tables = [tuple(float(k) * one for one in MIDDLE) for k in scale]
    sizes = [largest_batch(exact_table(one), 0.25) for one in tables]
    return World(tuple(SimulatedSite(2, tuple(
        Place(e, int(s), sizes[s], tables[s][:sizes[s]])
        for e in range(2) for s in np.flatnonzero(row))) for row in held), services,
        even_hops(sites, hop))


def joined_requests(world: World, skewed: bool, load: float, count: int) -> Arrivals:
    """Return requests for all services equally, at the first sites more often if skewed."""
    rng = np.random.default_rng(2)
    sites = len(world.sites)
    chance = 1 / np.arange(1, sites + 1) if skewed else np.ones(sites)
    work = float(np.mean([row[-1] / len(row) for row in world.seconds()]))
    return arrivals(poisson(load * world.executors / work, count, 3), 0.25,
                    rng.choice(sites, count, p=chance / chance.sum()),
                    rng.integers(0, world.services, count))


def dispatch(short: bool) -> tuple[list[Row], list[Mapping[str, Any]]]:
    """Play joined sites by all policies."""
    cases: list[Mapping[str, Any]] = []
    for sites, some, hop, skewed, load in product(
            (3, 6) if short else (3, 6, 100), (False, True), (0.004, 0.02), (False, True),
            (0.8, 2.0)):
        world = joined(sites, hop, some)
        asked = joined_requests(world, skewed, load, 6000 if short else 60000 if sites < 100
                                else 100000)
        reports = {name: replay(world, asked, POLICIES[name]) for name in ('ours', *OTHERS)}
        cases.append({
            'sites': sites, 'held': '40 %' if some else 'all', 'hop_ms': 1e3 * hop,
            'skewed': skewed, 'load': load, 'requests': len(asked.time),
            'bound': most(world, asked),
            'in_time': {name: report.in_time for name, report in reports.items()},
            'wasted': {name: report.wasted for name, report in reports.items()},
            'transfers': {name: report.transfers for name, report in reports.items()}})
    by_best = {k: one['in_time']['ours'] / max(one['in_time'][name] for name in OTHERS)
               for k, one in enumerate(cases)}
    worst = cases[min(by_best, key=lambda k: by_best[k])]
    turn = [one['in_time']['ours'] / one['in_time']['round robin'] for one in cases]
    wasted = [sum(one['wasted'][name] for one in cases) for name in ('ours', 'round robin')]
    near = [one['in_time']['ours'] / one['in_time']['nearest'] for one in cases]
    old = [one['in_time']['ours'] / one['in_time']['best of old rows'] for one in cases]
    bound = [one['in_time']['ours'] / one['bound'] for one in cases]
    of_bound = f'of what no policy exceeds {np.mean(bound):.3f} (worst {min(bound):.3f})'

    def row(what: str, target: str, measured: str, bound: str = '',
            reached: bool | None = None) -> Row:
        return Row('dispatch', what, target, measured, bound, reached)
    low = min(by_best.values())
    return [
        row(f'{len(cases)} cases: against the best baseline of each', '>= 0.98 in each',
            f'{np.mean([*by_best.values()]):.3f} (worst {low:.3f}, against '
            f'{max(OTHERS, key=lambda name: worst["in_time"][name])}: {worst["sites"]} sites, '
            f'{worst["held"]} of the services, hop {worst["hop_ms"]:g} ms, '
            f'{"skewed" if worst["skewed"] else "even"}, load {worst["load"]:g}); missed in '
            f'{sum(one < 0.98 for one in by_best.values())}', of_bound, low >= 0.98),
        row('against round robin, mean', '>= 1', f'{np.mean(turn):.3f} (worst {min(turn):.3f})',
            '', bool(np.mean(turn) >= 1)),
        row('transfers in vain against round robin', '<= 0.85',
            f'{wasted[0] / max(1, wasted[1]):.2f}', '', wasted[0] <= 0.85 * wasted[1]),
        row('against nearest only', 'paper 2.2 to 3.1', f'{min(near):.2f} to {max(near):.2f}'),
        row('against the best of old rows', '', f'{min(old):.2f} to {max(old):.2f}'),
    ], cases


def state(short: bool) -> list[Row]:
    """Let rows go round a ring."""
    rows: list[Row] = []
    for sites in (30,) if short else (30, 100):
        start, stop = bound(sites, 0.004) + refresh(sites), bound(sites, 0.004) + 6
        heard = play_ring(sites, lambda i, j, now: 0.004, 0.0, stop)
        ages: list[float] = []
        for i, j in product(range(sites), repeat=2):
            mine = slice(heard.first[i], heard.first[i + 1])
            of = heard.of[mine] == j
            came, made = heard.time[mine][of], heard.made[mine][of]
            late = came[1:] >= start
            ages += [*(came[1:] - made[:-1])[late]] if i != j else []
        sent = ROW_BYTES * heard.rows + MESSAGE_BYTES * heard.messages
        meshed = (MOST_MESHED - 1) * 10 * (ROW_BYTES + MESSAGE_BYTES)
        limit = bound(sites, 0.004)
        rows += [
            Row('state', f'ring of {sites} sites, 20 services, hop 4 ms: oldest row',
                f'<= {limit:.2f} s', f'{max(ages):.2f} s (mean of the oldest {np.mean(ages):.2f})',
                'what is promised', max(ages) <= limit),
            Row('state', f'ring of {sites} sites: what a site sends in a second', '<= 125 kB',
                f'{sent[:, 1:-1].max() / 1000:.0f} kB in {heard.messages[:, 1:-1].max()} messages',
                f'{MOST_MESHED} sites, each to all: {meshed / 1000:.0f} kB in '
                f'{(MOST_MESHED - 1) * 10}', sent[:, 1:-1].max() <= 125_000)]
        shares: list[float] = []
        wasted = [0, 0]
        for skewed, load in product((False, True), (0.8, 2.0)):
            world = joined(sites, 0.004, True)
            asked = joined_requests(world, skewed, load, 30000 if short else 100000)
            mesh, ring = replay(world, asked), replay_ring(world, asked)
            shares.append(ring.in_time / mesh.in_time)
            wasted = [a + b for a, b in zip(wasted, (ring.wasted, mesh.wasted))]
        rows.append(Row('state', f'ring of {sites} sites against rows sent to all: in time', '',
                        f'{np.mean(shares):.3f} (worst {min(shares):.3f}); transfers in vain '
                        f'{wasted[0] / max(1, wasted[1]):.2f} x'))
    return rows


def small_case(rng: np.random.Generator) -> Demand:
    """Return a placement of 4 services on 3 sites."""
    rate = rng.uniform(5, 60, (1, 4)) * rng.uniform(0.5, 2, (3, 1))
    asked = rng.uniform(1, 60, 4) * rng.choice([0.3, 1, 2])
    return demand(rng.dirichlet(np.ones(3), 4).T * asked, rate, rng.uniform(1, 4, 4),
                  rng.uniform(3, 7, 3))


def best_of_all(d: Demand) -> float:
    """Return the most that any placement answers: all largest sets of each lane are tried."""
    sets = []
    for room in d.room:
        fit = [one for one in product((False, True), repeat=d.rate.shape[1])
               if d.nbytes[list(one)].sum() <= room]
        sets.append([one for one in fit if not any(
            one != other and all(x <= y for x, y in zip(one, other)) for other in fit)])
    tops = sorted(((_top(d, np.array(one)), one) for one in product(*sets)), reverse=True)
    best = 0.0
    for top, one in tops:
        if top <= best:
            break
        best = max(best, fluid(d, np.array(one)))
    return best


def _top(d: Demand, placed: Any) -> float:
    """Return what a placement answers at most, as lanes or else services alone say."""
    rate = d.rate * placed
    return float(min(rate.max(1).sum(), np.minimum(d.asked.sum(0), rate.sum(0)).sum()))


def large_case(sites: int, services: int) -> Demand:
    """Return a placement whose memory holds a few services at each site."""
    rng = np.random.default_rng(1)
    rate = rng.uniform(5, 60, (1, services)) * rng.uniform(0.5, 2, (sites, 1))
    asked = rng.uniform(1, 60, services) * sites / services * 1.2
    return demand(rng.dirichlet(np.ones(sites), services).T * asked, rate,
                  rng.uniform(1, 4, services), rng.uniform(6, 12, sites))


def placed_world(d: Demand, found: Placement, hop: float = 0.004) -> World:
    """Return the sites of a placement: batches of 8 answer what a lane can."""
    sites: list[list[Place]] = [[] for _ in d.asked]
    for lane, service in found.places:
        scale = 8 / d.rate[lane, service] / MIDDLE[-1]
        sites[d.site[lane]].append(Place(0, service, 8, tuple(
            float(scale) * one for one in MIDDLE)))
    return World(tuple(SimulatedSite(1, tuple(places)) for places in sites), d.rate.shape[1],
                 even_hops(len(sites), hop))


def placed_requests(d: Demand, count: int) -> Arrivals:
    """Return requests as they are asked for, with time for two of the longest batches."""
    rng = np.random.default_rng(3)
    flat = rng.choice(d.asked.size, count, p=d.asked.ravel() / d.asked.sum())
    return arrivals(poisson(float(d.asked.sum()), count, 4), 2.5 * 8 / float(d.rate.min()),
                    flat // d.asked.shape[1], flat % d.asked.shape[1])


def placements(short: bool) -> list[Row]:
    """Judge placements, and time them."""
    rng = np.random.default_rng(3)
    ratios, better = [], []
    for _ in range(12 if short else 300):
        d = small_case(rng)
        best = best_of_all(d)

        def goodput(one: Placement, d: Demand = d) -> float:
            return fluid(d, one.placed)
        chosen = checked(candidates(d), goodput)
        ratios.append(goodput(chosen) / best)
        better.append(goodput(improve(d, chosen, goodput)) / best)
    d = large_case(100, 20)
    asked = placed_requests(d, 20000 if short else 100000)
    found = place(d)
    world = placed_world(d, found)
    replayed = replay(world, asked)
    both = best_seconds(lambda: replay(placed_world(d, place(d)), asked), 3)
    alone = best_seconds(lambda: place(d), 5)
    many = large_case(10_000, 20)
    huge = best_seconds(lambda: place(many), 2)
    return [
        Row('placement', f'{len(ratios)} small cases against brute force, mean', '>= 0.97',
            f'{np.mean(better):.3f}', f'1; without exchanges {np.mean(ratios):.3f}',
            bool(np.mean(better) >= 0.97)),
        Row('placement', 'the worst of them', '>= 0.75', f'{min(better):.3f}',
            f'1; without exchanges {min(ratios):.3f}', min(better) >= 0.75),
        Row('placement', f'100 sites, 20 services, with a replay of {len(asked.time)} requests',
            '<= 200 ms', f'{1e3 * both:.0f} ms', f'placement alone {1e3 * alone:.1f} ms; '
            f'{int(replayed.events.sum())} events', both <= 0.2),
        Row('placement', '10,000 sites, 20 services, no replay', '<= 1 s', f'{huge:.2f} s', '',
            huge <= 1.0)]


def choices(short: bool) -> list[Row]:
    """Time the choice of one of 100 sites."""
    rng = np.random.default_rng(1)
    rows = make_rows(100, 20)
    rows.ends[:] = rng.uniform(0, 0.2, rows.ends.shape)
    rows.least[:] = 0.01
    visited = np.zeros(100, bool)
    visited[7] = True
    found = []
    for name, choose, target in (('compiled', site_functions().choose_site, 5e-6),
                                 ('plain Python', PLAIN.choose_site, 50e-6)):
        count = 1000 if short else 20000

        def work(choose: Callable[..., int] = choose, count: int = count) -> None:
            for number in range(count):
                choose(rows, number % 20, 0.15, visited, number, 1.0)
        seconds = best_seconds(work, 5) / count
        found.append(Row('choice', f'of one of 100 sites, {name}', f'<= {1e6 * target:g} us',
                         f'{1e6 * seconds:.1f} us', '', seconds <= target))
    return found


def main() -> None:
    """Measure, print a table, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: Mapping[str, Callable[[bool], Any]] = {
        'admission': admission, 'dispatch': dispatch, 'state': state, 'placement': placements,
        'choice': choices}
    parser.add_argument('--short', action='store_true', help='fewer requests and cases: a minute')
    parser.add_argument('--only', choices=list(parts))
    parser.add_argument('--json', type=result_file, help='write the figures here')
    arguments = parser.parse_args()
    rows: list[Row] = []
    cases: list[Mapping[str, Any]] = []
    for name, measure in parts.items():
        if arguments.only in (None, name):
            found = measure(arguments.short)
            if name == 'dispatch':
                found, cases = found
            rows += found
    table = Table('', 'target', 'measured', 'bound', 'reached')
    for row in rows:
        table.add_row(row.what, row.target, row.measured, row.bound,
                      '' if row.reached is None else 'yes' if row.reached else 'NO')
    Console(width=200).print(table)
    if arguments.json:
        write_atomically(arguments.json, json.dumps(
            {'rows': [asdict(row) for row in rows], 'dispatch': cases}, indent=1))


if __name__ == '__main__':
    main()
