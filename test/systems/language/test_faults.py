# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whatever is lost, each request ends once: with the right tokens, or with a reason."""
from __future__ import annotations

import random
import threading
import time

from language_models import costs, QUICK, Scripted, STEADY, tiny_model
import pytest
import torch
from waiting import wait_for

from intradp_lab.language.reference import whole_answer
from intradp_ros.runtime.requests.admission import AdmissionLimits, Fate
from intradp_ros.runtime.requests.text_requests import Piece, Sampling, TextEnd
from intradp_ros.systems.language.head import HeadPolicy
from intradp_ros.systems.language.local_fleet import LocalLanguage
from intradp_ros.systems.language.role import LanguageOptions
from intradp_ros.wire.frames import Chunk

TIMEOUT = 60.0
PROMPT = [5, 17, 3, 80, 41, 41, 9]


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp('blobs'), max_position_embeddings=512)


def fleet(model, count=3, times=STEADY, **policy) -> LocalLanguage:
    manifest, store, _ = model
    given = costs(manifest, count, tokens=2048)
    local = LocalLanguage(given, 'a', Scripted(given, 2, True), {'a': store},
                          LanguageOptions(policy=HeadPolicy(**{'drafts': 0, **policy})),
                          times=times)
    local.wait_ready()
    return local


@pytest.mark.parametrize('drafts', [0, 7])
def test_a_device_that_is_cut_off_and_comes_back_changes_no_token(model, drafts):
    with fleet(model, times=QUICK, drafts=drafts) as local:
        answering = local.ask(PROMPT, 300)
        for _ in range(2):
            had = len(answering.tokens)
            while len(answering.tokens) < had + 10 and answering.ended is None:
                time.sleep(0.001)
            local.network.cut('c')
            time.sleep(1.2)
            local.network.restore('c')
        assert answering.wait(TIMEOUT).fate is Fate.RESUMED
        assert answering.tokens == whole_answer(model[2], PROMPT, 300, frozenset())[0]


def test_a_frame_that_is_lost_is_computed_anew(model):
    with fleet(model, patience=0.3) as local:
        member = local.devices['b']
        dropped = []

        def lossy(peer, frame):
            if isinstance(frame, Chunk) and len(dropped) < 3 and frame.inference % 7 == 6:
                dropped.append(frame)
            else:
                member.handle(peer, frame)
        local.network.channel('b').listen(lossy)
        answering = local.ask(PROMPT, 40)
        assert answering.wait(TIMEOUT).fate is Fate.RESUMED
        assert dropped
        assert answering.tokens == whole_answer(model[2], PROMPT, 40, frozenset())[0]


def test_without_its_head_a_model_ends_all_requests_with_a_reason(model):
    with fleet(model, times=QUICK) as local:
        asked = [local.ask(PROMPT, 400) for _ in range(3)]
        while len(asked[0].tokens) < 5:
            time.sleep(0.001)
        local.kill('a')
        for answering in asked:
            end = answering.wait(TIMEOUT)
            assert end.fate is Fate.REFUSED and end.reason


def test_a_lost_coordinator_is_not_noticed(model):
    with fleet(model, times=QUICK) as local:
        answering = local.ask(PROMPT, 200)
        while len(answering.tokens) < 5:
            time.sleep(0.001)
        local.network.cut('coordinator')
        assert answering.wait(TIMEOUT).fate is Fate.DONE
        assert answering.tokens == whole_answer(model[2], PROMPT, 200, frozenset())[0]


def test_deadlines_cancelling_and_limits(model):
    with fleet(model, limits=AdmissionLimits(lanes=2, waiting=3, per_client=8)) as local:
        local.ask(PROMPT, 20).wait(TIMEOUT)  # from here on its speed is known
        late = local.ask(PROMPT, 400, remaining=0.05)
        assert late.wait(TIMEOUT).fate in (Fate.REFUSED, Fate.LATE)
        cancelled = local.ask(PROMPT, 400)
        while len(cancelled.tokens) < 3:
            time.sleep(0.001)
        cancelled.cancel(Fate.CANCELLED)
        assert cancelled.wait(TIMEOUT).fate is Fate.CANCELLED
        assert len(cancelled.tokens) < 400
        asked = [local.ask(PROMPT, 60, client=str(k)) for k in range(9)]
        fates = [answering.wait(TIMEOUT).fate for answering in asked]
        assert fates.count(Fate.REFUSED) == 9 - 5 and fates.count(Fate.DONE) == 5
        assert 'queue is full' in next(a.ended.reason for a in asked
                                       if a.ended.fate is Fate.REFUSED)
        too_long = local.ask([1] * 500, 400)  # more than there are pages: as far as they go
        assert too_long.wait(TIMEOUT).fate is Fate.DONE
        with pytest.raises(ValueError, match='a prompt of 512 tokens'):
            local.ask([1] * 512, 1)
        with pytest.raises(ValueError, match='there is no token'):
            local.ask([97], 1)


def test_requests_without_a_limit_share_the_room_and_all_end(model):
    manifest, store, whole = model
    given = costs(manifest, 2, tokens=320)
    with LocalLanguage(given, 'a', Scripted(given, 2, True), {'a': store},
                       LanguageOptions(policy=HeadPolicy(reserve=16)), times=STEADY) as local:
        local.wait_ready()
        asked = [local.ask(PROMPT[k:], 150) for k in range(4)]  # together twice the room
        for k, answering in enumerate(asked):
            assert answering.wait(TIMEOUT).fate is Fate.DONE
            assert answering.tokens == whole_answer(whole, PROMPT[k:], 150, frozenset())[0]
        unlimited = local.ask(PROMPT, None)  # to the end of what there is room for
        assert unlimited.wait(TIMEOUT).finish_reason == 'length'
        assert len(unlimited.tokens) == 320 - len(PROMPT)


def test_seeds_repeat_whatever_else_is_asked(model):
    sampling = Sampling(temperature=1.0, top_k=20, top_p=0.9, seed=7)
    with fleet(model) as local:
        alone = local.ask(PROMPT, 30, sampling=sampling)
        alone.wait(TIMEOUT)
        others = [local.ask(PROMPT[k:], 30, sampling=Sampling(1.0, seed=k)) for k in range(4)]
        again = local.ask(PROMPT, 30, sampling=sampling)
        for answering in (again, *others):
            answering.wait(TIMEOUT)
        assert again.tokens == alone.tokens
        assert others[0].tokens != alone.tokens


def test_many_requests_leave_nothing_behind(model):
    before = threading.active_count()
    with fleet(model, limits=AdmissionLimits(lanes=8, waiting=1000, per_client=2000)) as local:
        source = random.Random(0)
        asked = [local.ask([source.randrange(97) for _ in range(source.randint(1, 9))],
                           source.randint(1, 4)) for _ in range(200)]
        assert {a.wait(TIMEOUT).fate for a in asked} == {Fate.DONE}
        head = local.head
        assert not head._book.requests and head._seats.table.free == head._seats.table.pages
        engine = local.roles['b'].engine
        assert len(engine._program.held.arrived) <= 3
        assert threading.active_count() < before + 40


def test_every_fate_is_heard_once_under_kills_and_cancels(model):
    source = random.Random(1)
    with fleet(model, 4, QUICK) as local:
        heard: dict[int, list[Piece | TextEnd]] = {}
        cancels = []
        for k in range(24):
            events = heard.setdefault(k, [])
            cancels.append(local.head.submit_tokens(PROMPT, events.append, 40))
            if k == 8:
                local.kill('d')
            if k % 5 == 4:
                cancels[source.randrange(len(cancels))](Fate.CANCELLED)
            time.sleep(0.02)
        wait_for(lambda: all(events and isinstance(events[-1], TextEnd)
                             for events in heard.values()))
        wanted = whole_answer(model[2], PROMPT, 40, frozenset())[0]
        for events in heard.values():
            assert sum(isinstance(event, TextEnd) for event in events) == 1
            tokens = [t for event in events if isinstance(event, Piece) for t in event.tokens]
            assert tokens == wanted[:len(tokens)]
            last = events[-1]
            if isinstance(last, TextEnd) and last.fate in (Fate.DONE, Fate.RESUMED):
                assert tokens == wanted
        assert torch.get_num_threads() >= 1


def test_a_fleet_out_of_reach_ends_requests_with_a_reason(model):
    with fleet(model, times=QUICK, hold=1.0, patience=0.3) as local:
        answering = local.ask(PROMPT, 400)
        while len(answering.tokens) < 5:
            time.sleep(0.001)
        local.network.cut('a')  # the head itself: no plan and no hidden states reach it
        end = answering.wait(TIMEOUT)
        assert end.fate is Fate.REFUSED and 'out of reach' in end.reason


def test_the_head_knows_which_disk_holds_the_others_up(model):
    with fleet(model) as local:
        loader = local.roles['c'].engine.loader  # the one that reads
        read = loader.store.read_into

        def slowly(digest, slot):
            time.sleep(0.02)
            return read(digest, slot)
        loader.store.read_into = slowly
        try:
            local.ask(PROMPT, 30).wait(TIMEOUT)
        finally:
            del loader.store.read_into
        state = local.head.state()
        assert state.brake == 'c' and state.uncovered['c'] > 0.02
