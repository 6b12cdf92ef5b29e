# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Requests to a language model that comes and goes: each has one fate, in time."""
from __future__ import annotations

from collections.abc import Callable
import math
import threading
from typing import Any

from intradp_ros.nodes.language.served_text import MAX_HELD, NO_PLAN, ServedText
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_requests import Piece, TextEnd, TextRequest

PATIENCE = 60.0


class Model:
    """Answers at once, or at `cancel` if the prompt says so."""

    name = 'a model'

    def __init__(self) -> None:
        self.requests: list[TextRequest] = []

    def submit(self, request: TextRequest, heard: Callable[[Any], None],
               ) -> Callable[[Fate], None]:
        if request.prompt == 'too long':
            raise ValueError('too long')
        self.requests.append(request)
        if request.prompt != 'stay':
            heard(Piece('ok', (1,)))
            heard(TextEnd(Fate.DONE, finish_reason='stop'))
        return lambda fate: heard(TextEnd(fate))


class Client:
    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.over = threading.Event()

    def __call__(self, event: Any) -> None:
        self.heard.append(event)
        if isinstance(event, TextEnd):
            self.over.set()

    def fate(self) -> Fate:
        assert self.over.wait(PATIENCE)
        [end] = [event for event in self.heard if isinstance(event, TextEnd)]
        return end.fate


def test_requests_are_held_until_there_is_a_plan() -> None:
    served, client, model = ServedText('none', hold=True), Client(), Model()
    served.submit(TextRequest('hello', remaining=100.0), client)
    assert served.held == 1 and served.name == 'none'
    served.set(model)
    assert client.fate() is Fate.DONE and served.name == 'a model'
    assert 0 < model.requests[0].remaining <= 100.0
    other = Client()
    served.submit(TextRequest('hello'), other)
    assert other.fate() is Fate.DONE and model.requests[1].remaining == math.inf
    served.set(None)
    assert served.name == 'a model'  # clients that name it are held, not told that it is unknown


def test_what_is_held_ends_at_its_deadline_or_by_its_client_or_with_the_node() -> None:
    served = ServedText('none', hold=True)
    clients = [Client() for _ in range(3)]
    served.submit(TextRequest('hello', remaining=0.05), clients[0])
    cancel = served.submit(TextRequest('hello'), clients[1])
    served.submit(TextRequest('hello'), clients[2])
    assert clients[0].fate() is Fate.LATE
    cancel(Fate.CANCELLED)
    cancel(Fate.CANCELLED)
    assert clients[1].fate() is Fate.CANCELLED
    served.close()
    assert clients[2].fate() is Fate.REFUSED and served.held == 0
    served.set(Model())
    assert all(len(client.heard) == 1 for client in clients)


def test_a_request_that_was_held_can_still_be_cancelled() -> None:
    served, client, wrong = ServedText('none', hold=True), Client(), Client()
    cancel = served.submit(TextRequest('stay'), client)
    served.submit(TextRequest('too long'), wrong)
    served.set(Model())
    assert wrong.fate() is Fate.REFUSED and not client.heard
    cancel(Fate.CANCELLED)
    assert client.fate() is Fate.CANCELLED


def test_without_holding_and_beyond_the_limit_requests_are_refused_with_the_cause() -> None:
    client = Client()
    ServedText('none', hold=False).submit(TextRequest('hello'), client)
    assert client.fate() is Fate.REFUSED and client.heard[0].reason == NO_PLAN
    served = ServedText('none', hold=True)
    for _ in range(MAX_HELD):
        served.submit(TextRequest('hello'), Client())
    served.submit(TextRequest('hello'), last := Client())
    assert last.fate() is Fate.REFUSED
