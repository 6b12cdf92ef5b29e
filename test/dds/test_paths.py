# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The two ways of a channel, without ROS."""
from __future__ import annotations

from concurrent import futures
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from intradp_ros.dds.paths import InboundPath, MAX_SESSIONS, OutboundPath, SharedMedium
from intradp_ros.link.send_window import INITIAL_CHUNKS, SendWindow
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Chunk, Control, ControlKind


def chunks_of(count: int, inference: int = 1, session: int = 1) -> list[Chunk]:
    """Return that many chunks of 1000 bytes."""
    return list(cut_into_chunks(torch.zeros(count * 1000, dtype=torch.uint8), session=session,
                                epoch=1, inference=inference, schedule=0, transfer=0, value=0,
                                region=Region(0, 1), chunk_bytes=1000))


def path() -> OutboundPath:
    """Return a way out with a window for chunks of 1000 bytes."""
    return OutboundPath(lambda: SendWindow(1000))


def test_chunks_leave_as_acknowledgements_come() -> None:
    """The window holds back the fifth chunk until the first is acknowledged."""
    out, chunks = path(), chunks_of(INITIAL_CHUNKS + 1)
    for chunk in chunks:
        out.put(chunk)
    taken = [out.take() for _ in range(INITIAL_CHUNKS)]
    assert [t.frame for t in taken if t] == chunks[:-1]
    with ThreadPoolExecutor(1) as pool:
        last = pool.submit(out.take)
        assert not last.done()
        assert taken[0] is not None
        out.acknowledged(1, taken[0].sequence, 5e6)
        outgoing = last.result(timeout=60)
    assert outgoing is not None and outgoing.frame is chunks[-1]
    report = out.measured()
    assert (report.rate, report.nbytes) == (5e6, 5000)
    assert report.age < 10


def test_control_frames_pass_a_full_window_and_a_closed_path() -> None:
    """They are never held back; after closing they still leave, chunks do not."""
    out = path()
    for chunk in chunks_of(INITIAL_CHUNKS + 1):
        out.put(chunk)
    for _ in range(INITIAL_CHUNKS):
        out.take()
    ping, bye = Control(ControlKind.PING), Control(ControlKind.BYE)
    out.put(ping)
    outgoing = out.take()
    assert outgoing is not None and outgoing.frame is ping
    out.put(bye)
    out.close()
    out.put(ping)
    outgoing = out.take()
    assert outgoing is not None and outgoing.frame is bye
    assert out.take() is None


def test_a_session_that_waits_holds_up_no_other() -> None:
    """One robot acknowledges nothing; the chunks of the other leave as it acknowledges them."""
    out, slow, fast = path(), chunks_of(40, session=1), chunks_of(40, session=2)
    for chunk in (*slow, *fast):
        out.put(chunk)
    left = []
    for _ in range(INITIAL_CHUNKS + len(fast)):
        outgoing = out.take()
        assert outgoing is not None
        left.append(outgoing.frame)
        if outgoing.frame.session == 2:
            out.acknowledged(2, outgoing.sequence, 5e6)
    assert [chunk for chunk in left if chunk.session == 2] == fast
    assert [chunk for chunk in left if chunk.session == 1] == slow[:INITIAL_CHUNKS]


def test_each_session_has_chunks_for_its_link() -> None:
    """What one robot says of its link does not change the chunks of another."""
    out = path()
    for session, rate in ((1, 0.5e6), (2, 100e6)):
        out.put(chunks_of(1, session=session)[0])
        outgoing = out.take()
        assert outgoing is not None
        out.acknowledged(session, outgoing.sequence, rate)
    assert out.chunk_bytes(3) < out.chunk_bytes(1) < out.chunk_bytes(2) == out.chunk_bytes()


def test_silence_frees_the_window() -> None:
    """Chunks that nobody acknowledges are given up, and the next one leaves."""
    out = path()
    for chunk in chunks_of(INITIAL_CHUNKS + 1):
        out.put(chunk)
    for _ in range(INITIAL_CHUNKS + 1):
        assert out.take() is not None
    assert out.measured().lost == INITIAL_CHUNKS


def test_abandoned_chunks_do_not_leave() -> None:
    """Chunks of another inference take their place."""
    out, wanted = path(), chunks_of(1, inference=2)
    for chunk in (*chunks_of(3, inference=1), *wanted):
        out.put(chunk)
    out.abandon(1, 1)
    outgoing = out.take()
    assert outgoing is not None and outgoing.frame is wanted[0]


def test_strange_acknowledgements_change_nothing() -> None:
    """What was never sent cannot be acknowledged."""
    out = path()
    out.put(chunks_of(1)[0])
    outgoing = out.take()
    assert outgoing is not None
    out.acknowledged(1, outgoing.sequence + 1, 9e9)
    out.acknowledged(2, outgoing.sequence, 9e9)
    assert out.measured().rate == 0.0


def test_sessions_are_measured_apart() -> None:
    """A stranger's chunks do not change another session's rate; only a few are kept."""
    inbound, second = InboundPath(), 1_000_000_000
    rates = {}
    for index in range(20):
        for session, rate in ((1, 1e6), (2, 4e6)):
            arrival = int((index + 1) * 1000 / rate * second)
            rates[session] = inbound.arrived(session, 1000, 0, arrival)
    assert rates == {1: pytest.approx(1e6, rel=0.01), 2: pytest.approx(4e6, rel=0.01)}
    assert inbound.measured(second)[0] == pytest.approx(4e6, rel=0.01)
    assert inbound.nbytes == 40_000
    for stranger in range(3, 3 + MAX_SESSIONS):
        inbound.arrived(stranger, 1000, 0, second)
    assert inbound.arrived(1, 1000, second, second + 1000) == 0.0


def sharing(count: int) -> list[OutboundPath]:
    """Return ways out of one sender to several peers."""
    air = SharedMedium()
    return [OutboundPath(lambda: SendWindow(1000), air) for _ in range(count)]


def test_the_most_urgent_chunk_of_all_peers_leaves_first() -> None:
    """The other way's thread waits until it is its turn."""
    one, other = sharing(2)
    late, soon = chunks_of(1), chunks_of(1, 2)
    other.put(soon[0], 1.0)
    one.put(late[0], 2.0)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(one.take)
        with pytest.raises(futures.TimeoutError):
            waits.result(timeout=0.3)
        first = other.take()
        assert first is not None and first.frame is soon[0]
        second = waits.result(timeout=60)
    assert second is not None and second.frame is late[0]


def test_a_way_that_is_full_or_closed_holds_up_no_other() -> None:
    """Its urgent chunk waits for its own window; then it is gone with all that it had."""
    one, other = sharing(2)
    for chunk in chunks_of(INITIAL_CHUNKS + 1):
        one.put(chunk, 0.0)
    for _ in range(INITIAL_CHUNKS):
        one.take()
    for chunk in chunks_of(2):
        other.put(chunk, 9.0)
    assert other.take() is not None
    one.close()
    assert other.take() is not None


def test_chunks_wait_until_somebody_listens() -> None:
    """Control frames do not."""
    listens = False
    out = OutboundPath(lambda: SendWindow(1000), None, lambda: listens)
    out.put(chunks_of(1)[0])
    ping = Control(ControlKind.PING)
    out.put(ping)
    first = out.take()
    assert first is not None and first.frame is ping
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(out.take)
        with pytest.raises(futures.TimeoutError):
            waits.result(timeout=0.3)
        listens = True
        assert waits.result(timeout=60) is not None


def test_numbers_of_a_session_that_was_forgotten_go_on() -> None:
    """Each comes once to its receiver, whatever the clock says."""
    out, numbers = path(), []
    for session in (1, *range(2, 3 + MAX_SESSIONS), 1, 2):
        out.put(chunks_of(1, session=session)[0])
        taken = out.take()
        assert taken is not None
        numbers += [taken.sequence] if session == 1 else []
    assert numbers == [1, 2]
