# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Bodies of requests in the OpenAI HTTP API, and the text requests that they ask for.

What would change an answer and is not supported is refused by name; fields
that only describe the caller are ignored.  In addition to OpenAI's fields:
`top_k`, `priority` (as vLLM's: lower is more urgent), `deadline` (seconds from
now on for which the answer is of use).
"""
from __future__ import annotations

from collections.abc import Mapping
import json
import math
import secrets
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from intradp_ros.runtime.requests.text_requests import ChatTurn, Sampling, TextRequest

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


class Body(BaseModel):
    """What both kinds of requests may have."""

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


class ChatBody(Body):
    """A request of ``/v1/chat/completions``."""

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


class TextBody(Body):
    """A request of ``/v1/completions``."""

    prompt: str | list[str]
