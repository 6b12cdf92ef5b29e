# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What is awaited for too long is reported once, and again after it came."""
from __future__ import annotations

from intradp_ros.nodes.common.silence import Awaited, SilenceWatch


def awaited(present: bool) -> Awaited:
    return Awaited('book', present, 'no book', lambda: 'looked on /book')


def test_silence_is_reported_once_after_the_patience() -> None:
    watch = SilenceWatch(5.0)
    assert watch.look(awaited(False), 100.0) == (False, '')
    assert watch.look(awaited(False), 104.9) == (False, '')
    assert watch.look(awaited(False), 105.0) == (True, 'no book for 5 s: looked on /book')
    assert watch.look(awaited(False), 106.0) == (True, '')
    assert watch.look(awaited(True), 107.0) == (False, 'book: there now')
    assert watch.look(awaited(True), 108.0) == (False, '')
    assert watch.look(awaited(False), 109.0) == (False, '')
    assert watch.look(awaited(False), 114.0)[0]


def test_short_silence_is_not_reported() -> None:
    watch = SilenceWatch(5.0)
    for now in range(0, 100, 4):
        assert watch.look(awaited(False), float(now)) == (False, '')
        assert watch.look(awaited(True), now + 3.0) == (False, '')
