# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A language model behind the OpenAI HTTP API: chat completions, completions, models.

What would change an answer and is not supported is refused by name; fields
that only describe the caller are ignored.  A client that disconnects cancels
its request.  An answer that breaks off ends with an error, never like a whole
one.  In addition to OpenAI's fields: `top_k`, `priority` (as vLLM's: lower is
more urgent), `deadline` (seconds from now on for which the answer is of use).
"""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
import json
import math
import secrets
import time
from typing import Any

try:
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, Response, StreamingResponse
    from pydantic import BaseModel, ConfigDict, Field
    from starlette.exceptions import HTTPException
except ModuleNotFoundError as error:  # said with the command that brings it
    raise ModuleNotFoundError('the HTTP endpoint needs fastapi: pip install '
                              "'intradp-ros[web]', or pip install fastapi uvicorn",
                              name='fastapi') from error

from intradp_ros.runtime.admission import Fate
from intradp_ros.runtime.text_requests import (
    ChatTurn,
    Piece,
    Sampling,
    TextEnd,
    TextModel,
    TextRequest,
)

#: Status of an answer by its fate; 499 is nginx's for a client that went away.
STATUS = {Fate.REFUSED: 503, Fate.LATE: 504, Fate.CANCELLED: 499}
#: Fields that are refused unless they have a value that changes nothing.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    'n': (1,), 'best_of': (1,), 'logprobs': (False, 0), 'top_logprobs': (0,), 'echo': (False,),
    'suffix': ('',), 'tools': ([],), 'functions': ([],), 'tool_choice': ('none', 'auto'),
    'frequency_penalty': (0,), 'presence_penalty': (0,), 'logit_bias': ({},),
    'modalities': (['text'],), 'audio': (), 'prediction': (), 'repetition_penalty': (1,),
    'min_p': (0,)}
ANY_JSON = '{"type": "object"}'


class _TextPart(BaseModel):
    type: str
    text: str = ''


class _Message(BaseModel):
    role: str
    content: str | list[_TextPart] | None = None


class _SchemaFormat(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    schema_: dict[str, Any] = Field(alias='schema')


class _Format(BaseModel):
    type: str = 'text'
    json_schema: _SchemaFormat | None = None


class _StreamOptions(BaseModel):
    include_usage: bool = False


class _Body(BaseModel):
    model_config = ConfigDict(extra='allow')
    model: str = ''
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    response_format: _Format | None = None
    priority: int = 0
    deadline: float | None = None

    def request(self, prompt: str | tuple[ChatTurn, ...], most: int | None, client: str,
                ) -> TextRequest:
        """Return what is asked; ValueError names what is not understood."""
        for name, harmless in UNSUPPORTED.items():
            value = (self.model_extra or {}).get(name)
            if value is not None and value not in harmless:
                raise ValueError(f'{name} is not supported')
        form = self.response_format or _Format()
        if form.type not in ('text', 'json_object', 'json_schema'):
            raise ValueError(f'response_format {form.type[:40]!r} is none of text, json_object, '
                             'json_schema')
        if form.type == 'json_schema' and form.json_schema is None:
            raise ValueError('response_format json_schema comes without json_schema.schema')
        schema = '' if form.type == 'text' else ANY_JSON if form.json_schema is None else \
            json.dumps(form.json_schema.schema_)
        seed = self.seed
        if seed is None:
            seed = secrets.randbits(63)
        elif seed < 0:
            seed += 1 << 64
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return TextRequest(
            prompt, most, Sampling(
                1.0 if self.temperature is None else self.temperature, self.top_k or 0,
                1.0 if self.top_p is None else self.top_p, seed),
            stop, schema, math.inf if self.deadline is None else self.deadline,
            -self.priority, client)


class _ChatBody(_Body):
    messages: list[_Message]
    max_completion_tokens: int | None = None

    def turns(self) -> tuple[ChatTurn, ...]:
        """Return the messages; ValueError for what is no text."""
        turns = []
        for message in self.messages:
            content = message.content or ''
            if not isinstance(content, str):
                kinds = {part.type for part in content} - {'text'}
                if kinds:
                    raise ValueError(f'content of type {sorted(kinds)[0][:40]!r} is not '
                                     'supported: text only')
                content = ''.join(part.text for part in content)
            role = 'system' if message.role == 'developer' else message.role
            turns.append(ChatTurn(role, content))
        return tuple(turns)


class _TextBody(_Body):
    prompt: str | list[str]


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
    async def chat(body: _ChatBody, request: Request) -> Any:
        return await answered(body, request, 'chat.completion', lambda client: body.request(
            body.turns(), body.max_completion_tokens or body.max_tokens, client))

    @app.post('/v1/completions')
    async def complete(body: _TextBody, request: Request) -> Any:
        def wanted(client: str) -> TextRequest:
            prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
            if len(prompts) != 1:
                raise ValueError(f'{len(prompts)} prompts in one request: send one in each')
            return body.request(prompts[0], body.max_tokens or 16, client)  # OpenAI's default
        return await answered(body, request, 'text_completion', wanted)

    def described() -> dict[str, Any]:
        return {'id': model.name, 'object': 'model', 'created': created,
                'owned_by': 'intradp_ros'}

    async def answered(body: _Body, request: Request, kind: str,
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
    return app


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
