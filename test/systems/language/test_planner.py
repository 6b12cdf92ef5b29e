# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The offline planner against brute force, against the paper's, and against memory."""
from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
import math
import random

from hypothesis import given as given_
from hypothesis import settings
from hypothesis import strategies as st
from language_models import costs as fleet_costs
from language_models import tiny_model
import numpy as np
from paper_planner import paper_plan
import pytest

from intradp_ros.systems.language.estimate import play
from intradp_ros.systems.language.limits import DeviceRates, fleet_limit, plan_limit
from intradp_ros.systems.language.memory import memory_need
from intradp_ros.systems.language.plan_kernels import round_seconds
from intradp_ros.systems.language.plan_search import Search
from intradp_ros.systems.language.planner import (
    choose,
    hop_seconds,
    NoPlanError,
    plain_pipeline,
    plan_language,
    ring_order,
    share,
)
from intradp_ros.systems.language.segment_plan import SegmentPlan

CASES = 2000
WIDER = {'hidden_size': 128, 'intermediate_size': 320, 'head_dim': 32}


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    return [tiny_model(tmp_path_factory.mktemp('blobs'), num_hidden_layers=layers, **WIDER)[0]
            for layers in (2, 3, 4, 5, 6)]


@pytest.fixture(scope='module')
def mixtures(tmp_path_factory):
    return [tiny_model(tmp_path_factory.mktemp('blobs'), 'mixtral', num_hidden_layers=layers,
                       **WIDER)[0] for layers in (2, 3)]


def random_case(models, source, whole=False):
    """Return a small fleet whose memories are about what the model needs; one holds the whole."""
    manifest = source.choice(models)
    count = source.randint(1 + whole, 3)
    given = fleet_costs(manifest, count, mbit=source.choice((20, 200, 1000)), tokens=64)
    body = sum(block.nbytes for block in manifest.blocks)
    topology = replace(
        given.topology,
        devices=tuple(replace(d, memory_bytes=source.uniform(0.1, 1.3) * body / count ** 0.5
                              + (manifest.head_bytes if d.name == 'a' else 0) + 3e5
                              + source.choice((0, whole * 1.1 * body)),
                              speed=source.choice((0.5, 1.0, 1.0, 3.0)))
                      for d in given.topology.devices),
        media=tuple(replace(m, bytes_per_second=source.uniform(2e7, 2e9))
                    if m.name.startswith('disk') else m for m in given.topology.media))
    return replace(given, topology=topology, hop=source.choice((0.0, 5e-4, 5e-3)))


def brute_force(given, head):
    """Try all: devices, segments, layers of each, and what each streams."""
    layers, best = given.manifest.layers, math.inf
    names = given.topology.names
    for size in range(1, len(names) + 1):
        for subset in combinations(names, size):
            ring = ring_order(subset, head)
            for segments in range(1, -(-layers // size) + 1):
                fixed = given.head_seconds(head) + hop_seconds(given, head, ring, segments)
                for counts in product(range(1, layers + 1), repeat=size):
                    if sum(counts) != layers:
                        continue
                    shares = [least_stream(given, head, name, count, segments)
                              for name, count in zip(ring, counts)]
                    if None not in shares:
                        computing = fixed + sum(
                            count * (given.block(name, 0) + given.block(name, 1))
                            for name, count in zip(ring, counts))
                        best = min(best, max(computing, *shares))
    return best


def partitions(items):
    """Yield all ways to put items into slots."""
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for place in range(len(rest)):
            yield [*rest[:place], [items[0], *rest[place]], *rest[place + 1:]]


def best_of_all(given, head):
    """Try all owners of layers and all slots; return the least seconds of those that fit."""
    manifest, names = given.manifest, given.topology.names
    layers, best = manifest.layers, math.inf
    for owners in product(names, repeat=layers):
        each = []
        for name in dict.fromkeys(owners):
            own = [b for b in range(2 * layers) if owners[b // 2] == name]
            fitting = [slots for slots in partitions(own)
                       if given.disk(name) or len(slots) == len(own)]
            each.append([(name, slots) for slots in fitting])
        computing = sum(given.block(owners[b // 2], b) for b in range(2 * layers))
        if computing >= best:
            continue
        for chosen in product(*each):
            plan = SegmentPlan('0' * 64, head, 2 * layers, {
                name: tuple(tuple(slot) for slot in slots) for name, slots in chosen},
                -(-given.tokens // 16))
            if all(memory_need(plan, d.name, manifest, given.lane).total <= d.memory_bytes
                   for d in given.topology.devices if d.name in plan.participants):
                best = min(best, play(plan, given).seconds)
    return best


@pytest.mark.parametrize('kind, count', [('parts', 25), ('whole', 25), ('experts', 25), *(
    pytest.param(kind, 600, marks=pytest.mark.slow) for kind in ('parts', 'whole', 'experts'))])
def test_plans_are_the_best_of_any_owners_and_slots(models, mixtures, kind, count):
    source = random.Random(11)
    compared = streaming = alone = 0
    while compared < count:
        given = random_case(mixtures if kind == 'experts' else models[:2], source,
                            kind == 'whole')
        best = best_of_all(given, 'a')
        if best == math.inf:
            with pytest.raises(NoPlanError):
                plan_language(given, 'a')
            continue
        planned = plan_language(given, 'a')
        compared += 1
        streaming += any(planned.plan.streamed(name) for name in planned.plan.slots)
        assert planned.seconds <= 1.02 * best
        blocks, head = range(len(given.manifest.blocks)), given.topology.device('a')
        all_of_it = SegmentPlan('-', 'a', len(blocks), {'a': tuple((b,) for b in blocks)}, 4)
        if given.need(all_of_it, 'a').total <= head.memory_bytes and head.speed == max(
                device.speed for device in given.topology.devices):
            alone += 1
            assert planned.answer.startswith('alone on a')
        else:
            assert len(planned.plan.slots) == 1 or 'lacks' in planned.answer or any(
                given.need(replace(all_of_it, slots={name: all_of_it.slots['a']}), name).total
                <= given.topology.device(name).memory_bytes for name in given.topology.names)
    assert streaming > count // 10 or kind == 'whole' and alone > count // 10


@settings(max_examples=150, deadline=None)
@given_(data=st.data())
def test_the_searchs_clock_is_that_of_plays(models, mixtures, data):
    case = random_case([*models, *mixtures], random.Random(data.draw(st.integers(0, 10**6))))
    case = replace(case, topology=replace(case.topology, devices=tuple(
        replace(d, memory_bytes=math.inf) for d in case.topology.devices)))
    names, count = case.topology.names, len(case.manifest.blocks)
    owner = np.repeat(data.draw(st.lists(st.integers(0, len(names) - 1), min_size=count // 2,
                                         max_size=count // 2)), 2)
    slots = np.arange(count)
    for block in range(count):
        alike = [b for b in range(block) if owner[b] == owner[block]]
        slots[block] = data.draw(st.sampled_from([block, *(slots[b] for b in alike)]))
    search = Search(case, 'a', names)
    seconds = round_seconds(search.tables, owner, slots, search._work)
    assert seconds == pytest.approx(play(search._plan(owner, slots), case).seconds, rel=1e-9)


def test_a_head_needs_room_also_where_it_computes_nothing(models):
    given = fleet_costs(models[2], 2)
    full = replace(given, topology=replace(given.topology, devices=tuple(
        replace(d, memory_bytes=1e4 if d.name == 'a' else math.inf)
        for d in given.topology.devices)))
    with pytest.raises(NoPlanError, match='MB short'):
        plan_language(full, 'a')


def least_stream(given, head, name, layers, segments):
    """Return the least seconds of loading and running what is streamed, by trying all."""
    found = None
    turns = min(segments, layers)
    for attention, mlp in product(range(layers + 1), repeat=2):
        if (attention or mlp) and (turns < 2 or not given.disk(name)):
            continue
        seconds = sum(count * (given.load(name, kind) + given.block(name, kind))
                      for kind, count in ((0, attention), (1, mlp)) if count)
        slots = [-(-count // turns) for count in (attention, mlp)]
        from intradp_ros.systems.language.memory import SLOT_MARGIN
        from intradp_ros.systems.language.plan_search import fixed_bytes
        from intradp_ros.systems.language.planner import _pages
        size = [given.manifest.blocks[kind].nbytes + SLOT_MARGIN for kind in (0, 1)]
        need = sum((layers - count + slot) * nbytes for count, slot, nbytes
                   in zip((attention, mlp), slots, size)) \
            + fixed_bytes(given, head, name) + layers * _pages(given) * 16 \
            * given.manifest.kv_bytes
        if need <= given.topology.device(name).memory_bytes and (
                found is None or seconds < found):
            found = seconds
    return found


def test_the_planner_finds_what_brute_force_finds(models):
    source = random.Random(0)
    fits = 0
    for _ in range(CASES):
        given = random_case(models, source)
        ours = min((c.seconds for c in choose(given, 'a', given.topology.names)),
                   default=math.inf)
        best = brute_force(given, 'a')
        fits += best < math.inf
        assert ours == pytest.approx(best, rel=1e-9)
    assert CASES // 3 < fits < CASES


def test_plans_fit_and_are_never_slower_than_a_plain_pipeline(models):
    source = random.Random(1)
    compared = wins = 0
    for _ in range(150):
        given = random_case(models, source)
        try:
            planned = plan_language(given, 'a')
        except NoPlanError as error:
            assert 'MB short' in str(error)
            with pytest.raises(NoPlanError):
                plain_pipeline(given, 'a')
            continue
        for device in given.topology.devices:
            need = memory_need(planned.plan, device.name, given.manifest, given.lane)
            assert device.name not in planned.plan.participants or \
                need.total <= device.memory_bytes
        rates = {d.name: DeviceRates(1e30, given.disk(d.name), d.memory_bytes)
                 for d in given.topology.devices}
        least = plan_limit(planned.plan, given.manifest, rates, 0.0, 0).seconds
        assert planned.seconds >= 0.999 * least
        assert planned.seconds >= 0.999 * fleet_limit(given.manifest, rates, 0.0, 'a', 0).seconds
        try:
            plain = play(plain_pipeline(given, 'a'), given).seconds
        except NoPlanError:
            continue
        compared += 1
        wins += planned.seconds < plain * 0.999
        assert planned.seconds <= plain * (1 + 1e-9)
    assert compared > 30 and wins > 10


def test_ours_is_never_worse_than_the_papers(models):
    source = random.Random(2)
    compared = wins = 0
    for _ in range(300):
        given = random_case(models, source)
        paper = paper_plan(given, 'a')
        ours = min((c.seconds for c in choose(given, 'a', given.topology.names)),
                   default=math.inf)
        if paper is None:
            continue
        compared += 1
        wins += ours < paper * 0.999
        assert ours <= paper * (1 + 1e-9)
    assert compared > 50 and wins > 10


def test_a_share_streams_nothing_where_there_is_room_and_is_none_without_a_disk(models):
    given = fleet_costs(models[2], 1)
    assert share(given, 'a', 'a', 4, 2).seconds == 0
    small = replace(given, topology=replace(given.topology, devices=tuple(
        replace(d, memory_bytes=models[2].head_bytes + 9e5, disk='')
        for d in given.topology.devices)))
    assert share(small, 'a', 'a', 4, 4) is None


def test_answers_in_words(models):
    given = fleet_costs(models[2], 2, mbit=1.0)
    slow_link = plan_language(replace(given, hop=1.0), 'a')
    assert slow_link.answer.startswith('alone on a; drop b')

    tiny = replace(given, topology=replace(given.topology, devices=tuple(
        replace(d, memory_bytes=1e4) for d in given.topology.devices)))
    with pytest.raises(NoPlanError, match=r'each of a, b is \d+ MB short'):
        plan_language(tiny, 'a')
