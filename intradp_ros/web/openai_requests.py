# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Bodies of requests in the OpenAI HTTP API, and the text requests that they ask for.

Each field is done, or refused by name: one that is not listed here is refused, too.  Ignored are
those that only describe the caller or how he is served.  In addition to OpenAI's fields there are
those of vLLM and llama.cpp that are of use, `priority` (as vLLM's: lower is more urgent), and
`deadline` (seconds from now on for which the answer is of use).  What a request leaves open is as
the model's generation configuration prefers it; temperature is 1 where that says nothing.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
import json
import math
import re
import secrets
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from intradp_ros.core.json_text import parse_json
from intradp_ros.runtime.requests.text_requests import (
    ChatTurn,
    MAX_CALLS,
    Sampling,
    TextRequest,
)

#: Fields that change no answer: they describe the caller, or how he is served.
IGNORED = frozenset((
    'user', 'metadata', 'store', 'service_tier', 'safety_identifier', 'prompt_cache_key',
    'prompt_cache_retention', 'request_id', 'cache_prompt', 'cache_salt', 'id_slot'))
#: Fields that are refused unless they have a value that changes nothing.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    'suffix': ('',), 'functions': ([],), 'function_call': ('none', 'auto'),
    'modalities': (['text'],), 'verbosity': ('medium',), 'typical_p': (1,), 'tfs_z': (1,),
    'mirostat': (0,), 'dry_multiplier': (0,), 'xtc_probability': (0,), 'use_beam_search': (False,),
    'length_penalty': (1,), 'include_stop_str_in_output': (False,), 'n_probs': (0,),
    'spaces_between_special_tokens': (True,), 'top_n_sigma': (-1,), 'dynatemp_range': (0,),
    'return_tokens_as_token_ids': (False,), 'return_token_ids': (False,), 'n_keep': (0,),
    'repeat_last_n': (-1,), 'echo': (False,), 'bad_words': ([],), 'documents': ([],),
    'return_progress': (False,)}
#: Fields of messages that templates may read.
_READ = ('name', 'reasoning_content', 'tool_call_id')
_TOOL = re.compile(r'[A-Za-z0-9_.-]{1,64}')
ANY_JSON = '{"type": "object"}'
#: Answers to one request at most.
MOST_ANSWERS = 16

Number = StrictFloat  # whole ones, too
V = TypeVar('V')
_Tokens = Annotated[list[StrictInt], Field(min_length=1)]


class _Strict(BaseModel):
    """A part of a body: fields that are not known are refused, unless they say nothing."""

    model_config = ConfigDict(extra='allow')

    def check(self, where: str) -> None:
        """Raise ValueError for a field that is not known."""
        for name, value in (self.model_extra or {}).items():
            if value not in (None, [], '', False, {}):
                raise ValueError(f'{where}.{name[:60]} is not supported')


class _TextPart(BaseModel):
    type: StrictStr
    text: StrictStr = ''


class _Called(_Strict):
    name: StrictStr
    arguments: StrictStr


class _Call(_Strict):
    id: StrictStr | None = None
    type: Literal['function'] = 'function'
    function: _Called

    def check(self, where: str) -> None:
        """Raise ValueError for what is not a call."""
        super().check(where)
        self.function.check(f'{where}.function')
        try:
            given = parse_json(self.function.arguments or '{}')
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise ValueError(f'{where}.function.arguments is not a JSON object')


class _Function(BaseModel):
    name: StrictStr
    description: StrictStr | None = None
    parameters: dict[str, Any] | None = None


class _Tool(BaseModel):
    type: Literal['function']
    function: _Function


class _Named(BaseModel):
    name: StrictStr


class _Choice(BaseModel):
    type: Literal['function']
    function: _Named


class _Message(_Strict):
    role: StrictStr
    content: StrictStr | list[_TextPart] | None = None
    name: StrictStr | None = None
    reasoning_content: StrictStr | None = None
    tool_call_id: StrictStr | None = None
    tool_calls: list[_Call] | None = None


class _SchemaFormat(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    schema_: dict[str, Any] = Field(alias='schema')


class _Format(_Strict):
    model_config = ConfigDict(populate_by_name=True, extra='allow')
    type: StrictStr = 'text'
    json_schema: _SchemaFormat | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias='schema')


class _StreamOptions(_Strict):
    include_usage: StrictBool = False
    include_obfuscation: StrictBool = False


class _Structured(_Strict):
    json_: dict[str, Any] | StrictStr | None = Field(default=None, alias='json')


class _Drawn(BaseModel):
    """How the tokens of answers are drawn."""

    temperature: Number | None = None
    top_p: Number | None = None
    top_k: StrictInt | None = None
    min_p: Number | None = None
    seed: StrictInt | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    repetition_penalty: Number | None = None
    repeat_penalty: Number | None = None
    logit_bias: dict[str, Number] | None = None

    def _samplings(self, count: int) -> list[Sampling]:
        """Return how those of each answer are drawn; ValueError for what is not understood."""
        seed = secrets.randbits(63) if self.seed is None else self.seed % (1 << 64)
        if self.seed is not None and not -(1 << 63) <= self.seed < 1 << 64:
            raise ValueError(f'seed {str(self.seed)[:40]} has more than 64 bits')
        penalty = _one_of({'repetition_penalty': self.repetition_penalty,
                           'repeat_penalty': self.repeat_penalty})
        return [Sampling(
            self.temperature, self.top_k if self.top_k != -1 else 0, self.top_p,
            (seed + number) % (1 << 64), self.min_p, penalty,
            float(self.presence_penalty or 0), float(self.frequency_penalty or 0), self._biases())
            for number in range(count)]

    def _biases(self) -> tuple[tuple[int, float], ...]:
        found = []
        for token, bias in (self.logit_bias or {}).items():
            if not token.isascii() or not token.isdigit() or len(token) > 10:
                raise ValueError(f'logit_bias: {token[:40]!r} is not a number of a token')
            found.append((int(token), float(bias)))
        return tuple(found)


class Body(_Drawn):
    """What both kinds of requests may have."""

    model_config = ConfigDict(extra='allow')
    model: StrictStr | None = None
    max_tokens: StrictInt | None = None
    n_predict: StrictInt | None = None
    stop: StrictStr | list[StrictStr] | None = None
    stop_token_ids: list[StrictInt] | None = None
    ignore_eos: StrictBool | None = None
    min_tokens: StrictInt | None = None
    skip_special_tokens: StrictBool | None = None
    n: StrictInt | None = None
    best_of: StrictInt | None = None
    stream: StrictBool | None = None
    stream_options: _StreamOptions | None = None
    response_format: _Format | None = None
    guided_json: dict[str, Any] | StrictStr | None = None
    json_schema: dict[str, Any] | None = None
    structured_outputs: _Structured | None = None
    priority: StrictInt | None = None
    deadline: Number | None = None

    def requests(self, client: str) -> list[TextRequest]:
        """Return what is asked, an answer each; ValueError names what is not understood."""
        raise NotImplementedError

    def forced(self) -> str:
        """Return the tool whose arguments the answer is; ''.  ValueError if there is none."""
        return ''

    def _made(self, prompt: str | tuple[ChatTurn, ...] | tuple[int, ...], most: int | None,
              client: str, **more: Any) -> list[TextRequest]:
        """Return the requests for one prompt."""
        self._check_fields()
        count = 1 if self.n is None else self.n
        if not 1 <= count <= MOST_ANSWERS:
            raise ValueError(f'n must be within 1..{MOST_ANSWERS}, got {count}')
        if self.best_of not in (None, count):
            raise ValueError('best_of is not supported, but as the same number as n')
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return [TextRequest(
            prompt, most, sampling, stop, self._schema(),
            math.inf if self.deadline is None else float(self.deadline),
            -(self.priority or 0), client, self.min_tokens, bool(self.ignore_eos),
            tuple(self.stop_token_ids or ()),
            skip_special_tokens=self.skip_special_tokens is not False, **more)
            for sampling in self._samplings(count)]

    def most(self, **named: int | None) -> int | None:
        """Return the limit of tokens that is given; ValueError names one that is not valid."""
        for name, value in named.items():
            if value is not None and value < 1:
                raise ValueError(f'{name} must be at least 1, got {value}')
        return _one_of(named)

    def _check_fields(self) -> None:
        for name, value in (self.model_extra or {}).items():
            if value is not None and name not in IGNORED and not any(
                    value == one and type(value) in (type(one), float)
                    for one in NEUTRAL.get(name, ())):
                raise ValueError(f'{name[:60]} is not supported')
        if self.stream_options:
            self.stream_options.check('stream_options')
            if not self.stream:
                raise ValueError('stream_options needs stream')

    def _schema(self) -> str:
        """Return the schema that the answer meets, from the one field that says so."""
        form = self.response_format or _Format(schema=None)
        form.check('response_format')
        if form.type not in ('text', 'json_object', 'json_schema'):
            raise ValueError(f'response_format {form.type[:40]!r} is none of text, json_object, '
                             'json_schema')
        if form.type == 'json_schema' and form.json_schema is None and form.schema_ is None:
            raise ValueError('response_format json_schema comes without json_schema.schema')
        if form.type == 'text' and (form.json_schema or form.schema_ is not None):
            raise ValueError('response_format: a schema does not go with type text')
        given: list[Any] = [self.guided_json, self.json_schema]
        if self.structured_outputs:
            self.structured_outputs.check('structured_outputs')
            given.append(self.structured_outputs.json_)
        if form.type != 'text':
            given.append(form.json_schema.schema_ if form.json_schema else
                         ANY_JSON if form.schema_ is None else form.schema_)
        found = [one for one in given if one is not None]
        if len(found) > 1:
            raise ValueError('response_format, guided_json, json_schema and structured_outputs: '
                             'only one of them may say what an answer is like')
        return '' if not found else found[0] if isinstance(found[0], str) else \
            json.dumps(found[0])


def _one_of(named: Mapping[str, V | None]) -> V | None:
    """Return the value of several fields that mean the same; ValueError if two of them differ."""
    given = {name: value for name, value in named.items() if value is not None}
    first = next(iter(given.values()), None)
    if any(value != first for value in given.values()):
        raise ValueError(f'{" and ".join(given)} mean the same, and differ: give one of them')
    return first


class ChatBody(Body):
    """A request of ``/v1/chat/completions``."""

    messages: list[_Message]
    max_completion_tokens: StrictInt | None = None
    logprobs: StrictBool | None = None
    top_logprobs: StrictInt | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: StrictBool | None = None
    reasoning_effort: StrictStr | None = None
    add_generation_prompt: StrictBool | None = None
    continue_final_message: StrictBool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: StrictStr | _Choice | None = None
    parallel_tool_calls: StrictBool | None = None

    def requests(self, client: str) -> list[TextRequest]:
        """Return what is asked; ValueError for what is not a text, or not understood."""
        options = dict(self.chat_template_kwargs or {})
        for name in ('enable_thinking', 'reasoning_effort'):
            if (value := getattr(self, name)) is not None:
                options[name] = _one_of({f'chat_template_kwargs.{name}': options.get(name),
                                         name: value})
        likely = None if not self.logprobs else self.top_logprobs or 0
        if self.top_logprobs and not self.logprobs:
            raise ValueError('top_logprobs needs logprobs')
        goes_on = bool(self.continue_final_message)
        begins = not goes_on if self.add_generation_prompt is None else self.add_generation_prompt
        if begins and goes_on:
            raise ValueError('add_generation_prompt does not go with continue_final_message')
        return self._made(
            self.turns(), self.most(max_completion_tokens=self.max_completion_tokens,
                                    max_tokens=self.max_tokens, n_predict=self.n_predict),
            client, template_options=json.dumps(options) if options else '',
            generation_prompt=begins, continue_final=goes_on, logprobs=likely,
            tools=json.dumps(self.tools) if self.tools and self.tool_choice != 'none' else '',
            most_calls=0 if self.forced() else 1 if self.parallel_tool_calls is False
            else MAX_CALLS)

    def forced(self) -> str:
        """Return the tool whose arguments the answer is; ''.  ValueError if there is none."""
        return self._choice[0]

    @cached_property
    def _choice(self) -> tuple[str, dict[str, Any] | None]:
        """The tool whose arguments the answer is, or '', and the schema of these."""
        names: dict[str, dict[str, Any] | None] = {}
        for number, given in enumerate(self.tools or ()):
            try:
                tool = _Tool.model_validate(given)
            except ValidationError as error:
                first = error.errors()[0]
                place = '.'.join(map(str, ('tools', number, *first['loc'])))
                raise ValueError(f'{place[:200]}: {first["msg"]}'[:500]) from None
            if not _TOOL.fullmatch(tool.function.name):
                raise ValueError(f'tools.{number}: {tool.function.name[:40]!r} is not a name of '
                                 'letters, digits, _, . and -')
            names[tool.function.name] = tool.function.parameters
        if len(names) < len(self.tools or ()):
            raise ValueError('tools: two of one name')
        choice = self.tool_choice
        if choice in (None, 'auto', 'none'):
            return '', None
        if isinstance(choice, _Choice):
            if choice.function.name not in names:
                raise ValueError(f'tool_choice: {choice.function.name[:60]!r} is not one of tools')
            return choice.function.name, names[choice.function.name]
        if choice == 'required' and len(names) == 1:
            return next(iter(names.items()))
        raise ValueError('tool_choice must be auto, none, one of tools, or required where there '
                         'is one tool')

    def _schema(self) -> str:
        """Return the schema of the answer, or of the arguments of the tool that it must call."""
        found, (name, given) = super()._schema(), self._choice
        if name and found:
            raise ValueError('tool_choice does not go with a schema')
        return (json.dumps(given) if given else ANY_JSON) if name else found

    def turns(self) -> tuple[ChatTurn, ...]:
        """Return the messages; ValueError for what is not a text."""
        turns = []
        for number, message in enumerate(self.messages):
            message.check(f'messages.{number}')
            content, parts = message.content or '', tuple[str, ...]()
            if not isinstance(content, str):
                kinds = {part.type for part in content} - {'text'}
                if kinds:
                    raise ValueError(f'content of type {sorted(kinds)[0][:40]!r} is not '
                                     'supported: text only')
                parts = tuple(part.text for part in content)
                content = '\n'.join(parts)  # as vLLM and llama.cpp do
            more = [(name, value) for name in _READ if (value := getattr(message, name))]
            for place, call in enumerate(message.tool_calls or ()):
                call.check(f'messages.{number}.tool_calls.{place}')
            if message.tool_calls:
                more.append(('tool_calls', json.dumps([call.model_dump(
                    include={'id', 'type', 'function'}, exclude_none=True)
                    for call in message.tool_calls])))
            turns.append(ChatTurn(message.role, content, tuple(more), parts))
        return tuple(turns)


class TextBody(Body):
    """A request of ``/v1/completions``."""

    prompt: StrictStr | _Tokens | list[StrictStr] | list[_Tokens]
    logprobs: StrictInt | None = None
    echo: StrictBool | None = None
    add_special_tokens: StrictBool | None = None

    def requests(self, client: str) -> list[TextRequest]:
        """Return what is asked, those of the first prompt first."""
        if self.echo and (self.logprobs is not None or not all(
                isinstance(prompt, str) for prompt in self.prompts())):
            raise ValueError('echo is not supported with logprobs, nor for prompts of tokens')
        prompts = self.prompts()
        if not 1 <= len(prompts) * (self.n or 1) <= MOST_ANSWERS:
            raise ValueError(f'{len(prompts)} prompts with n {self.n or 1}: 1 to '
                             f'{MOST_ANSWERS} answers come to one request')
        most = self.most(max_tokens=self.max_tokens, n_predict=self.n_predict) or 16  # OpenAI's
        return [request for prompt in prompts for request in self._made(
            prompt, most, client, logprobs=self.logprobs,
            special_tokens=self.add_special_tokens is not False)]

    def prompts(self) -> list[str | tuple[int, ...]]:
        """Return the prompts: texts, or tokens."""
        given: Sequence[Any] = [self.prompt] if isinstance(self.prompt, str) \
            or self.prompt and isinstance(self.prompt[0], int) else self.prompt
        return [prompt if isinstance(prompt, str) else tuple(prompt) for prompt in given]

    def echoed(self) -> list[str]:
        """Return what stands before each answer."""
        count = self.n or 1
        return [str(prompt) if self.echo else '' for prompt in self.prompts()
                for _ in range(count)]
