# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

import asyncio
from concurrent.futures import CancelledError
import threading

import pytest

from intradp_ros.web.loop_thread import LoopThread


def test_all_that_was_called_happens_and_no_task_is_left():
    loop, heard, ended = LoopThread('tried'), [], []

    async def waits():
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0)  # as what says goodbye does
            ended.append(asyncio.get_running_loop())
    with pytest.raises(TimeoutError):
        loop.run(waits(), 0.01)
    waiting = loop.begin(waits())
    assert loop.run(asyncio.sleep(0, 5)) == 5
    assert all(loop.call(heard.append, number) for number in range(1000))
    loop.close()
    loop.close()
    assert heard == list(range(1000)) and len(ended) == 2 and ended[0].is_closed()
    with pytest.raises(CancelledError):
        waiting.result()
    assert 'tried' not in [thread.name for thread in threading.enumerate()]
    assert not loop.call(heard.append, 0)
    with pytest.raises(RuntimeError, match='closed'):
        loop.run(waits())
