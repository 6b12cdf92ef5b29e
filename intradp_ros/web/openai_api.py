# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A language model behind the OpenAI HTTP API: chat completions, completions, models.

A client that disconnects cancels its request.  An answer that breaks off ends
with an error, never like a whole one.
"""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
import json
import secrets
import time
from typing import Any

from intradp_ros.core.extras import pip_install

try:
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, Response, StreamingResponse
    from starlette.exceptions import HTTPException

    from intradp_ros.web.openai_requests import Body, ChatBody, TextBody
except ModuleNotFoundError as error:  # said with the command that brings it
    raise ModuleNotFoundError(f'the HTTP endpoint needs fastapi: {pip_install("web")}',
                              name='fastapi') from error

from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_requests import Piece, TextEnd, TextModel, TextRequest

#: Status of an answer by its fate; 499 is nginx's for a client that went away.
STATUS = {Fate.REFUSED: 503, Fate.LATE: 504, Fate.CANCELLED: 499}


class _Answer:
    """The pieces of one answer, taken on the event loop."""

    def __init__(self, model: TextModel, request: TextRequest) -> None:
        loop, heard = asyncio.get_running_loop(), asyncio.Queue[Piece | TextEnd]()
        self._heard = heard

        def hear(event: Piece | TextEnd) -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it who asked
                loop.call_soon_threadsafe(heard.put_nowait, event)
        self.cancel: Callable[[Fate], None] = model.submit(request, hear)

    async def pieces(self) -> AsyncIterator[Piece | TextEnd]:
        """Yield the pieces and the end; an iteration that is left cancels the request."""
        ended = False
        try:
            while not ended:
                event = await self._heard.get()
                ended = isinstance(event, TextEnd)
                yield event
        finally:
            if not ended:
                self.cancel(Fate.CANCELLED)


def openai_app(model: TextModel) -> FastAPI:
    """Return the application; `web/access.py: Guard` belongs around it."""
    app = FastAPI(title='intradp_ros', docs_url=None, redoc_url=None, openapi_url=None)
    created = int(time.time())

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = '.'.join(str(part) for part in first['loc'][1:])
        return _error(400, f'{place}: {first["msg"]}'[:500], param=place[:100] or None)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        return _error(error.status_code, str(error.detail))

    @app.get('/health')
    async def health() -> dict[str, str]:
        return {'status': 'ok'}

    @app.get('/v1/models')
    async def models() -> dict[str, Any]:
        return {'object': 'list', 'data': [described()]}

    @app.get('/v1/models/{name:path}')
    async def one_model(name: str) -> Any:
        return described() if name == model.name else \
            _error(404, f'there is no model {name[:100]!r}, but {model.name!r}')

    @app.post('/v1/chat/completions')
    async def chat(body: ChatBody, request: Request) -> Any:
        def wanted(client: str) -> TextRequest:
            most = body.max_completion_tokens or body.max_tokens
            return body.request(body.turns(), most, client)
        return await _answered(model, body, request, 'chat.completion', wanted)

    @app.post('/v1/completions')
    async def complete(body: TextBody, request: Request) -> Any:
        def wanted(client: str) -> TextRequest:
            prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
            if len(prompts) != 1:
                raise ValueError(f'{len(prompts)} prompts in one request: send one in each')
            return body.request(prompts[0], body.max_tokens or 16, client)  # OpenAI's default
        return await _answered(model, body, request, 'text_completion', wanted)

    def described() -> dict[str, Any]:
        return {'id': model.name, 'object': 'model', 'created': created,
                'owned_by': 'intradp_ros'}
    return app


async def _answered(model: TextModel, body: Body, request: Request, kind: str,
                    wanted: Callable[[str], TextRequest]) -> Any:
    if body.model and body.model != model.name:
        return _error(404, f'there is no model {body.model[:100]!r}, but {model.name!r}',
                      param='model')
    try:
        answer = _Answer(model, wanted(request.scope.get('client_name', '')))
    except ValueError as error:
        return _error(400, str(error))
    frame = {'id': f'{"chatcmpl" if kind[0] == "c" else "cmpl"}-{secrets.token_hex(12)}',
             'object': kind, 'created': int(time.time()), 'model': model.name}
    if body.stream:
        usage = bool(body.stream_options and body.stream_options.include_usage)
        return await _stream(answer, frame, usage, request)
    return await _whole(answer, frame, request)


async def _cancel_when_gone(answer: _Answer, request: Request) -> None:
    while (await request.receive())['type'] != 'http.disconnect':
        pass
    answer.cancel(Fate.CANCELLED)


async def _whole(answer: _Answer, frame: dict[str, Any], request: Request) -> JSONResponse:
    """Return the whole answer; a client that goes away meanwhile cancels it."""
    watch = asyncio.ensure_future(_cancel_when_gone(answer, request))
    text, end = '', None
    try:
        async for event in answer.pieces():
            if isinstance(event, TextEnd):
                end = event
            else:
                text += event.text
    finally:
        watch.cancel()
    assert end is not None
    if end.fate not in (Fate.DONE, Fate.RESUMED):
        return _failed(end)
    content = {'message': {'role': 'assistant', 'content': text}} \
        if frame['object'] == 'chat.completion' else {'text': text}
    return JSONResponse({**frame, 'choices': [
        {'index': 0, **content, 'logprobs': None, 'finish_reason': end.finish_reason}],
        'usage': _usage(end)})


async def _stream(answer: _Answer, frame: dict[str, Any], with_usage: bool, request: Request,
                  ) -> Response:
    """Return server-sent events; what is refused before its first token is a plain error."""
    events = answer.pieces()
    watch = asyncio.ensure_future(_cancel_when_gone(answer, request))  # until events are sent
    try:
        first = await anext(events)
    finally:
        watch.cancel()
    if isinstance(first, TextEnd) and first.fate not in (Fate.DONE, Fate.RESUMED):
        await events.aclose()  # type: ignore[attr-defined]
        return _failed(first)
    chat = frame['object'] == 'chat.completion'
    if chat:
        frame = {**frame, 'object': 'chat.completion.chunk'}

    def chunk(text: str | None, finish: str | None = None, role: bool = False) -> str:
        delta = ({'role': 'assistant'} if role else {}) | ({'content': text} if text else {})
        content = {'delta': delta} if chat else {'text': text or ''}
        return _event({**frame, 'choices': [
            {'index': 0, **content, 'logprobs': None, 'finish_reason': finish}]})

    async def lines() -> AsyncIterator[str]:
        try:
            if chat:
                yield chunk('', role=True)
            event = first
            while isinstance(event, Piece):
                if event.text:
                    yield chunk(event.text)
                event = await anext(events)
            if event.fate not in (Fate.DONE, Fate.RESUMED):
                yield _event({'error': {'message': event.reason or event.fate.value,
                                        'type': event.fate.value, 'param': None,
                                        'code': event.fate.value}})
                return
            yield chunk(None, event.finish_reason)
            if with_usage:
                yield _event({**frame, 'choices': [], 'usage': _usage(event)})
            yield 'data: [DONE]\n\n'
        finally:
            await events.aclose()  # type: ignore[attr-defined]
    return StreamingResponse(lines(), media_type='text/event-stream',
                             headers={'cache-control': 'no-cache'})


def _event(content: Mapping[str, Any]) -> str:
    return f'data: {json.dumps(content)}\n\n'


def _usage(end: TextEnd) -> dict[str, int]:
    return {'prompt_tokens': end.prompt_tokens, 'completion_tokens': end.completion_tokens,
            'total_tokens': end.prompt_tokens + end.completion_tokens}


def _failed(end: TextEnd) -> JSONResponse:
    """Return the error of a request that was not done; asking again at once would not help."""
    return _error(STATUS[end.fate], end.reason or end.fate.value, kind=end.fate.value,
                  headers={'x-should-retry': 'false'})


def _error(status: int, text: str, *, kind: str = 'invalid_request_error',
           param: str | None = None, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({'error': {'message': text, 'type': kind, 'param': param, 'code': None}},
                        status, headers=dict(headers or {}))
