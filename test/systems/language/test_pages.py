# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Pages of keys and values: never two owners of different tokens; prefixes are shared."""
from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st
from language_models import costs, Scripted, STEADY, tiny_model
import pytest

from intradp_lab.language.reference import whole_answer
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.systems.language.lanes import Lane, lane_bytes, PAGE, page_runs, Part, read_lane
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.page_table import page_names, PageTable


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_page_is_of_one_request_or_of_the_same_tokens(data):
    table = PageTable(data.draw(st.integers(1, 24)))
    held: list[tuple[list[int], tuple[int, ...]]] = []
    content: dict[int, tuple[int, ...]] = {}  # what was computed into each page
    for _ in range(data.draw(st.integers(1, 30))):
        if held and data.draw(st.booleans()):
            _, pages = held.pop(data.draw(st.integers(0, len(held) - 1)))
            table.give_back(pages)
            continue
        # few different prompts, so that prefixes are common
        tokens = [data.draw(st.integers(0, 1))] * data.draw(st.integers(1, 4 * PAGE))
        if data.draw(st.booleans()):
            tokens += [9] * data.draw(st.integers(1, PAGE))
        names = page_names(tokens)
        total = len(tokens) + data.draw(st.integers(1, 2 * PAGE))
        free = table.free
        found = table.take(total, names[:(len(tokens) - 1) // PAGE])
        if found is None:
            assert -(-total // PAGE) > free - len(names)
            continue
        pages, shared = found
        assert len(pages) == len(set(pages)) == -(-total // PAGE)
        assert all(0 <= page < table.pages for page in pages)
        for place in range(shared):
            assert content[pages[place]] == tuple(tokens[:(place + 1) * PAGE])
        for _, others in held:
            for page in set(pages[shared:]) & set(others):
                raise AssertionError(f'page {page} has two owners')
        for place, page in enumerate(pages[shared:], shared):
            content[page] = tuple(tokens[:(place + 1) * PAGE])
        table.name(pages, names)
        held.append((tokens, pages))
        if data.draw(st.booleans()):
            table.grow(max(table.used, data.draw(st.integers(1, 32))))
    for _, pages in held:
        table.give_back(pages)
    assert table.free == table.pages and table.used == 0
    assert table.take(table.pages * PAGE) is not None


@given(st.lists(st.builds(
    lambda start, count, extra, first, wanted: Part(
        start, count, tuple(range(first, first + -(-(start + count) // PAGE) + extra)), wanted),
    st.integers(0, 100), st.integers(1, 60), st.integers(0, 2), st.integers(0, 1000),
    st.booleans()), max_size=5), st.binary(max_size=20))
@settings(max_examples=100, deadline=None)
def test_a_lane_is_what_its_bytes_say_and_nothing_crashes(parts, junk):
    lane = Lane(tuple(parts))
    data = lane_bytes(lane)
    assert read_lane(data + junk) == (lane, len(data))
    assert sum(length for part in parts for _, length in page_runs(part.pages)) == \
        sum(len(part.pages) for part in parts)
    for broken in (junk, *(data[:cut] for cut in range(len(data)))):
        with suppress(ValueError):
            read_lane(broken)


@pytest.mark.parametrize('seed', range(2))
def test_what_requests_have_in_common_is_computed_once(tmp_path, seed):
    manifest, store, whole = tiny_model(tmp_path, seed=seed, max_position_embeddings=256)
    given_costs = costs(manifest, 2, tokens=400)
    common = [(7 * k + seed) % 97 for k in range(100)]
    with LocalLanguage(given_costs, 'a', Scripted(given_costs, 2, True), {'a': store},
                       times=STEADY) as local:
        local.wait_ready()

        def check(prompt: list[int]) -> None:
            answering = local.ask(prompt, 20)
            assert answering.wait(60).fate is Fate.DONE
            assert answering.tokens == whole_answer(whole, prompt, 20, frozenset())[0]
        check(common)
        assert local.head.state().shared_tokens == 0
        check(common + [1, 2, 3])
        assert local.head.state().shared_tokens == 96
        check(common)  # the last token is computed in any case
        assert local.head.state().shared_tokens == 192
        for k in range(8):  # others need the room
            check([k] * 80)
        before = local.head.state().shared_tokens
        check(common)
        assert local.head.state().shared_tokens - before < 96
