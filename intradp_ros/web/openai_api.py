# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A language model behind the OpenAI HTTP API: chat completions, completions, models.

A client that disconnects cancels its request.  An answer that breaks off ends
with an error, never like a whole one.  Nothing that takes long runs on the event
loop: bodies are parsed, and prompts made tokens, on other threads.
"""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
import json
import secrets
import time
from typing import Any, TypeVar

from intradp_ros.core.extras import pip_install

try:
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse, Response, StreamingResponse
    from pydantic import ValidationError
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect

    from intradp_ros.web.openai_requests import Body, ChatBody, TextBody
except ModuleNotFoundError as error:  # said with the command that brings it
    raise ModuleNotFoundError(f'the HTTP endpoint needs fastapi: {pip_install("web")}',
                              name='fastapi') from error

from intradp_ros.core.json_text import parse_json
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_intake import intake_of, TextIntake
from intradp_ros.runtime.requests.text_requests import (
    Piece,
    TextEnd,
    TextModel,
    TextRequest,
    TokenChance,
    ToolCall,
)

B = TypeVar('B', bound=Body)
#: Status of an answer by its fate; 499 is nginx's for a client that went away.
STATUS = {Fate.REFUSED: 503, Fate.LATE: 504, Fate.CANCELLED: 499}
_DONE = (Fate.DONE, Fate.RESUMED)
#: Characters of a body, which `web/access.py` limits by bytes.
_MOST_BODY = 8 << 20
_PATHS = ('/v1/chat/completions', '/v1/completions', '/v1/models', '/health')


@dataclass(frozen=True, slots=True)
class _Wrong:
    """A request that cannot be understood."""

    reason: str


_Event = tuple[int, Piece | TextEnd | _Wrong]


class _Answers:
    """The pieces of some answers, by number, taken on the event loop."""

    def __init__(self, intake: TextIntake, requests: Sequence[TextRequest]) -> None:
        loop, heard = asyncio.get_running_loop(), asyncio.Queue[_Event]()
        self._heard, self.count = heard, len(requests)

        def hear(number: int, event: Piece | TextEnd | _Wrong) -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it who asked
                loop.call_soon_threadsafe(heard.put_nowait, (number, event))
        self._cancels = [intake.submit(
            request, lambda event, n=number: hear(n, event),  # type: ignore[misc]
            lambda reason, n=number: hear(n, _Wrong(reason)))  # type: ignore[misc]
            for number, request in enumerate(requests)]

    def cancel(self) -> None:
        """End all that go on."""
        for cancel in self._cancels:
            cancel(Fate.CANCELLED)

    async def events(self) -> AsyncIterator[_Event]:
        """Yield pieces and ends; an iteration that is left, or a failure, cancels all."""
        left = self.count
        try:
            while left:
                number, event = await self._heard.get()
                left -= not isinstance(event, Piece)
                failed = isinstance(event, _Wrong) or isinstance(event, TextEnd) \
                    and event.fate not in _DONE
                yield number, event
                if failed:
                    return
        finally:
            if left:
                self.cancel()


def openai_app(model: TextModel | TextIntake) -> FastAPI:
    """Return the application; `web/guard.py: Guard` belongs around it."""
    app = FastAPI(title='intradp_ros', docs_url=None, redoc_url=None, openapi_url=None)
    created, intake = int(time.time()), intake_of(model)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        return _error(error.status_code, str(error.detail) if error.status_code != 404 else
                      f'there is no {request.url.path[:60]}, but {", ".join(_PATHS)}')

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        return _error(500, f'{type(error).__name__}: {error}'[:300], kind='internal_error')

    @app.get('/health')
    async def health() -> dict[str, str]:
        return {'status': 'ok'}

    @app.get('/v1/models')
    async def models() -> dict[str, Any]:
        return {'object': 'list', 'data': [described()]}

    @app.get('/v1/models/{name:path}')
    async def one_model(name: str) -> Any:
        return described() if name == intake.name else _unknown_model(name, intake.name)

    @app.post('/v1/chat/completions')
    async def chat(request: Request) -> Any:
        return await _answered(intake, request, ChatBody, 'chat.completion')

    @app.post('/v1/completions')
    async def complete(request: Request) -> Any:
        return await _answered(intake, request, TextBody, 'text_completion')

    def described() -> dict[str, Any]:
        return {'id': intake.name, 'object': 'model', 'created': created,
                'owned_by': 'intradp_ros'}
    return app


async def _answered(intake: TextIntake, request: Request, kind: type[B], answer: str) -> Any:
    client = str(request.scope.get('client_name', ''))
    try:
        data = await request.body()
        body, wanted, forced = await asyncio.to_thread(_parsed, kind, data, client)
    except ClientDisconnect:
        return Response(status_code=STATUS[Fate.CANCELLED])
    except _MalformedError as error:
        return _error(400, str(error), param=error.place)
    except ValueError as error:
        return _error(400, str(error))
    if body.model and body.model != intake.name:
        return _unknown_model(body.model, intake.name, param='model')
    answers = _Answers(intake, wanted)
    frame = {'id': f'{"chatcmpl" if answer[0] == "c" else "cmpl"}-{secrets.token_hex(12)}',
             'object': answer, 'created': int(time.time()), 'model': intake.name}
    before = body.echoed() if isinstance(body, TextBody) else [''] * len(wanted)
    shown, each = [request.logprobs is not None for request in wanted], body.n or 1
    if body.stream:
        usage = bool(body.stream_options and body.stream_options.include_usage)
        return await _stream(answers, frame, each if usage else None, request, before, shown,
                             forced)
    return await _whole(answers, frame, request, before, shown, each, forced)


class _MalformedError(ValueError):
    """A body of which one place is not as it must be."""

    def __init__(self, text: str, place: str | None = None) -> None:
        super().__init__(text)
        self.place = place


def _parsed(kind: type[B], data: bytes, client: str) -> tuple[B, list[TextRequest], str]:
    """
    Return a body, what it asks for, and the tool that must be called; runs on any thread.

    :raises ValueError: if it is none.
    """
    try:
        body = kind.model_validate(parse_json(data.decode('utf-8-sig'), _MOST_BODY))
    except ValidationError as error:
        first = error.errors()[0]
        place = '.'.join(str(part) for part in first['loc'] if str(part).isidentifier()
                         or isinstance(part, int))
        raise _MalformedError(f'{place or "body"}: {first["msg"]}'[:500], place[:100] or None
                              ) from None
    except RecursionError:
        raise ValueError('body: nested too deeply') from None
    except ValueError as error:
        raise ValueError(f'body: {error}'[:500]) from None
    return body, body.requests(client), body.forced()


async def _cancel_when_gone(answers: _Answers, request: Request) -> None:
    while (await request.receive())['type'] != 'http.disconnect':
        pass
    answers.cancel()


async def _whole(answers: _Answers, frame: dict[str, Any], request: Request,
                 before: Sequence[str], shown: Sequence[bool], each: int, forced: str,
                 ) -> JSONResponse:
    """Return the whole answers; a client that goes away meanwhile cancels them."""
    watch = asyncio.ensure_future(_cancel_when_gone(answers, request))
    texts = list(before)
    chances: list[list[TokenChance]] = [[] for _ in texts]
    ends: dict[int, TextEnd] = {}
    try:
        async for number, event in answers.events():
            if isinstance(event, Piece):
                texts[number] += event.text
                chances[number] += event.chances
            elif isinstance(event, _Wrong) or event.fate not in _DONE:
                return _failed(event)
            else:
                ends[number] = event
    finally:
        watch.cancel()
    chat = frame['object'] == 'chat.completion'
    choices = [{
        'index': number,
        **({'message': _message(text, ends[number].calls, forced)} if chat else {'text': text}),
        'logprobs': _logprobs(chances[number], chat) if shown[number] else None,
        'finish_reason': ends[number].finish_reason} for number, text in enumerate(texts)]
    return JSONResponse({**frame, 'choices': choices, 'usage': _usage(ends, each)})


async def _stream(answers: _Answers, frame: dict[str, Any], each: int | None, request: Request,
                  before: Sequence[str], shown: Sequence[bool], forced: str) -> Response:
    """
    Return server-sent events; what is refused before its first token is a plain error.

    With `each`, the answers to a prompt, the last one says how many tokens there were.
    """
    events = answers.events()
    watch = asyncio.ensure_future(_cancel_when_gone(answers, request))  # until events are sent
    try:
        first = await anext(events)
    finally:
        watch.cancel()
    if isinstance(first[1], _Wrong) or isinstance(first[1], TextEnd) \
            and first[1].fate not in _DONE:
        await events.aclose()  # type: ignore[attr-defined]
        return _failed(first[1])
    chat = frame['object'] == 'chat.completion'
    if chat:
        frame = {**frame, 'object': 'chat.completion.chunk'}
    unsaid = {} if each is None else {'usage': None}
    offsets = [0] * len(before)

    def chunk(number: int, text: str | None, finish: str | None = None, role: bool = False,
              chances: Sequence[TokenChance] = (), calls: Sequence[ToolCall] = ()) -> str:
        delta: dict[str, Any] = {'role': 'assistant'} if role else {}
        if forced and (text or role):
            delta['tool_calls'] = [{'index': 0, **(_call(forced, '') if role else {
                'function': {'arguments': text}})}]
        elif text or role:
            delta['content'] = text
        if calls:
            delta['tool_calls'] = [{'index': place, **_call(call.name, call.arguments)}
                                   for place, call in enumerate(calls)]
        content = {'delta': delta} if chat else {'text': text or ''}
        said = _logprobs(chances, chat, offsets[number]) if shown[number] and chances else None
        offsets[number] += sum(_characters(chance.raw) for chance in chances)
        return _event({**frame, 'choices': [{
            'index': number, **content, 'logprobs': said, 'finish_reason': finish}], **unsaid})

    async def lines() -> AsyncIterator[str]:
        ends: dict[int, TextEnd] = {}
        try:
            for number, text in enumerate(before):
                if chat or text:
                    yield chunk(number, text, role=chat)
            number, event = first
            while True:
                if isinstance(event, Piece):
                    if event.text or event.chances:
                        yield chunk(number, event.text, chances=event.chances)
                elif isinstance(event, _Wrong) or event.fate not in _DONE:
                    yield _event(json.loads(bytes(_failed(event).body)))
                    return
                else:
                    ends[number] = event
                    if event.calls:
                        yield chunk(number, None, calls=event.calls)
                    yield chunk(number, None, event.finish_reason)
                    if len(ends) == answers.count:
                        break
                await asyncio.sleep(0)  # for a client that is gone to be noticed
                number, event = await anext(events)
            if each is not None:
                yield _event({**frame, 'choices': [], 'usage': _usage(ends, each)})
            yield 'data: [DONE]\n\n'
        finally:
            await events.aclose()  # type: ignore[attr-defined]
    return StreamingResponse(lines(), media_type='text/event-stream',
                             headers={'cache-control': 'no-cache'})


def _message(text: str, calls: Sequence[ToolCall], forced: str) -> dict[str, Any]:
    """Return an answer; it is the arguments of the tool that it was `forced` to call."""
    made = [_call(forced, text)] if forced else [
        _call(call.name, call.arguments) for call in calls]
    return {'role': 'assistant', 'content': None if forced or calls and not text else text,
            **({'tool_calls': made} if made else {})}


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {'id': f'call_{secrets.token_hex(12)}', 'type': 'function',
            'function': {'name': name, 'arguments': arguments}}


def _event(content: Mapping[str, Any]) -> str:
    return f'data: {json.dumps(content)}\n\n'


def _usage(ends: Mapping[int, TextEnd], each: int) -> dict[str, int]:
    """Return the tokens of all answers, `each` so many to a prompt, whose tokens count once."""
    given = sum(end.prompt_tokens for number, end in ends.items() if number % each == 0)
    made = sum(end.completion_tokens for end in ends.values())
    return {'prompt_tokens': given, 'completion_tokens': made, 'total_tokens': given + made}


def _logprobs(chances: Sequence[TokenChance], chat: bool, offset: int = 0) -> dict[str, Any]:
    """Return the chances of tokens, as chats have them, or completions that begin at an offset."""
    def one(raw: bytes, logarithm: float) -> dict[str, Any]:
        return {'token': _written(raw), 'logprob': logarithm, 'bytes': list(raw)}
    if chat:
        return {'content': [{**one(c.raw, c.logarithm), 'top_logprobs': [
            one(raw, logarithm) for _, raw, logarithm in c.likely]} for c in chances],
            'refusal': None}
    offsets = []
    for chance in chances:
        offsets.append(offset)
        offset += _characters(chance.raw)
    return {'tokens': [_written(c.raw) for c in chances], 'text_offset': offsets,
            'token_logprobs': [c.logarithm for c in chances],
            'top_logprobs': [{_written(raw): logarithm for _, raw, logarithm in c.likely}
                             for c in chances]}


def _written(raw: bytes) -> str:
    """Return a token as a text; one that is not a whole character by its bytes, as OpenAI does."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return 'bytes:' + ''.join(f'\\x{byte:02x}' for byte in raw)


def _characters(raw: bytes) -> int:
    """Return how many characters begin in some bytes."""
    return sum(byte & 0xc0 != 0x80 for byte in raw)


def _failed(event: TextEnd | _Wrong) -> JSONResponse:
    """Return the error of a request that was not done; asking again at once would not help."""
    if isinstance(event, _Wrong) or event.wrong:
        return _error(400, event.reason)
    return _error(STATUS[event.fate], event.reason or event.fate.value, kind=event.fate.value,
                  code=event.fate.value, headers={'x-should-retry': 'false'})


def _unknown_model(name: str, own: str, param: str | None = None) -> JSONResponse:
    return _error(404, f'there is no model {name[:100]!r}, but {own!r}', param=param)


def _error(status: int, text: str, *, kind: str = 'invalid_request_error', code: str | None = None,
           param: str | None = None, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({'error': {'message': text, 'type': kind, 'param': param, 'code': code}},
                        status, headers=dict(headers or {}))
