# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A request of a client that waits on an event loop."""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from intradp_ros.runtime.requests.infer_requests import InferEnd, InferRequest
from intradp_ros.systems.serving.gateway import Gateway


def submitted(gateway: Gateway, request: InferRequest,
              ) -> tuple[asyncio.Future[InferEnd], Callable[[], None]]:
    """Submit a request; return its end, for the running loop, and what withdraws it."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[InferEnd] = loop.create_future()

    def settle(end: InferEnd) -> None:
        if not ended.done():
            ended.set_result(end)

    def heard(end: InferEnd) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it the client
            loop.call_soon_threadsafe(settle, end)
    return ended, gateway.submit(request, heard)
