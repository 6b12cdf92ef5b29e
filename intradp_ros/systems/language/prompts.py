# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a request says, in tokens: templates, tokenizing, grammars, and what a model prefers.

Whatever the library raises on the way is a ValueError that says why: it is the request's.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
import inspect
import itertools
import json
import re
import sys
import time
from types import FrameType
from typing import Any, TypeVar

from intradp_ros.core.json_text import parse_json
from intradp_ros.core.owned_errors import ends_process, reason_of
from intradp_ros.runtime.requests.text_requests import ChatTurn, Sampling, TextRequest
from intradp_ros.systems.language.answer_text import AnswerText, token_bytes, token_texts
from intradp_ros.systems.language.grammar import Grammar, Grammars
from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.tool_calls import call_marks, CallingText

T = TypeVar('T')
#: Characters of a prompt for each token of the context: more than any text has.
_CHARACTERS = 256
#: Seconds of the processor that a chat template may take for the messages of a request.
RENDERING = 10.0
#: Calls, and lines of a template, of which one looks at the clock.
_LOOKED = 16
_UNTOKENED = 'the prompt cannot be made tokens'


class Prompts:
    """
    Makes tokens, grammars and texts of requests, for one model and its tokenizer.

    `ends` are the tokens that end an answer, as `generate` has them; where it has none, the
    tokenizer's own.
    """

    def __init__(self, manifest: Manifest, tokenizer: Any = None) -> None:
        self.tokenizer, self._manifest = tokenizer, manifest
        self.vocabulary = int(manifest.config['vocab_size'])
        self.ends = frozenset(manifest.generation.get('eos_token_id', ()))
        if tokenizer is not None:
            if not self.ends and tokenizer.eos_token_id is not None:
                self.ends = frozenset((int(tokenizer.eos_token_id),))
            self._texts = {True: token_texts(tokenizer), False: token_texts(tokenizer, False)}
            self._bytes_of = token_bytes(tokenizer)
            self._special = {added.content: number for number, added
                             in tokenizer.added_tokens_decoder.items() if added.special}
            self._marks: list[tuple[str, str] | None] = []
            self._grammars = Grammars(tokenizer, self.vocabulary, self.ends)

    def prepare(self) -> None:
        """Make beforehand what a first schema would wait for."""
        if self.tokenizer is not None:
            self._grammars.prepare()

    def close(self) -> None:
        """End the process that tries schemas."""
        if self.tokenizer is not None:
            self._grammars.close()

    def tokens(self, request: TextRequest) -> list[int]:
        """
        Return the tokens of a prompt or chat.

        :raises ValueError: if there is no tokenizer or template, or the template or tokenizer
            refuses it.
        """
        prompt = request.prompt
        if not isinstance(prompt, str) and prompt and isinstance(prompt[0], int):
            return [token for token in prompt if isinstance(token, int)]
        if self.tokenizer is None:
            raise ValueError('this model has no tokenizer')
        if isinstance(prompt, str):
            return self._tokens(prompt, request.special_tokens)
        self._check_length(sum(len(turn.content) for turn in prompt
                               if isinstance(turn, ChatTurn)))
        return self._tokens(self._of_chat(request), False)

    def grammar(self, schema: str) -> Grammar | None:
        """
        Return the grammar of a schema; None for ''.

        :raises ValueError: if it cannot be used; the text says why.
        """
        if not schema:
            return None
        if self.tokenizer is None:
            raise ValueError('this model has no tokenizer')
        return _asked('the schema cannot be used', lambda: self._grammars.make(schema))

    def text(self, request: TextRequest, tokens: list[int]) -> AnswerText | None:
        """Return what makes text of an answer to these tokens; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        texts = self._texts[request.skip_special_tokens]
        if request.tools and request.most_calls and (marks := self._call_marks()):
            names = frozenset(tool['function']['name'] for tool in json.loads(request.tools))
            return _asked('the prompt cannot be made text', lambda: CallingText(
                texts, request.stop, tokens, marks, names, request.most_calls))
        return _asked('the prompt cannot be made text', lambda: AnswerText(
            texts, request.stop, tokens))

    def stop_tokens(self, request: TextRequest) -> frozenset[int]:
        """Return the tokens that end an answer as asked: special ones as texts, too."""
        special = {} if self.tokenizer is None else self._special
        return frozenset((*request.stop_tokens, *(
            special[text] for text in request.stop if text in special)))

    def token_bytes(self, token: int) -> bytes:
        """Return what a token adds to a text, special ones too; without a tokenizer its number."""
        return str(token).encode() if self.tokenizer is None else self._bytes_of(token)

    def sampling(self, asked: Sampling) -> Sampling:
        """Return how tokens are drawn: what a request leaves open is as the model prefers it."""
        said = self._manifest.generation

        def chosen(value: Any, key: str, otherwise: Any) -> Any:
            return said.get(key, otherwise) if value is None else value
        return replace(
            asked, temperature=0.0 if asked.temperature is None and said.get('do_sample') is False
            else float(chosen(asked.temperature, 'temperature', 1.0)),
            top_k=int(chosen(asked.top_k, 'top_k', 0)),
            top_p=float(chosen(asked.top_p, 'top_p', 1.0)),
            min_p=float(chosen(asked.min_p, 'min_p', 0.0)),
            repetition_penalty=float(chosen(asked.repetition_penalty, 'repetition_penalty', 1.0)))

    def _tokens(self, text: str, special: bool) -> list[int]:
        """Return the tokens of a text, which is not made lists of if it is too long."""
        self._check_length(len(text))
        most = self._manifest.context

        def made() -> list[int]:
            return [int(token) for token in self.tokenizer(
                text, add_special_tokens=special, verbose=False).input_ids]
        backend = getattr(self.tokenizer, 'backend_tokenizer', None)
        if len(text) > most and backend is not None:  # only this lets other threads run
            count = len(_asked(_UNTOKENED, lambda: backend.encode_batch(
                [text], add_special_tokens=special)[0]))
            if count >= most:
                raise ValueError(f'a prompt of {count} tokens: this model takes 1 to {most - 1}')
        return _asked(_UNTOKENED, made)

    def _check_length(self, characters: int) -> None:
        most = self._manifest.context
        if characters > _CHARACTERS * most:
            raise ValueError(f'a prompt of {characters} characters: this model takes {most} '
                             'tokens')

    def _of_chat(self, request: TextRequest) -> str:
        """Return what the chat template makes of messages."""
        tools = parse_json(request.tools) if request.tools else None
        template = self._template(tools)
        options: Mapping[str, Any] = parse_json(request.template_options or '{}')
        own = inspect.signature(self.tokenizer.apply_chat_template).parameters
        for name in options:
            if name in own:
                raise ValueError(f'chat_template_kwargs: {name!r} is not an option of templates; '
                                 'if it can be said, it is by a field of its own')
            if not re.search(rf'\b{re.escape(name)}\b', template):
                raise ValueError(f'{name[:60]!r} is not read by the chat template of this model')
        if tools and not re.search(r'\btools\b', template):
            raise ValueError('tools are not read by the chat template of this model')
        turns = [turn for turn in request.prompt if isinstance(turn, ChatTurn)]
        messages = [_message(turn, template) for turn in turns]
        told = [message['content'].strip() for message in messages if message['role'] == 'tool'
                and not re.search(r'\btool\b', template)]

        end = time.thread_time() + RENDERING

        def made(as_parts: Callable[[ChatTurn], bool]) -> tuple[tuple[bool, int], str]:
            contents = [[{'type': 'text', 'text': text} for text in turn.parts or (turn.content,)]
                        if as_parts(turn) else turn.content for turn in turns]
            given = [{**message, 'content': content}
                     for message, content in zip(messages, contents, strict=True)]
            with _until(end):
                found = _asked('the chat template refuses these messages', lambda: str(
                    self.tokenizer.apply_chat_template(
                        given, add_generation_prompt=request.generation_prompt,
                        continue_final_message=request.continue_final, tokenize=False,
                        **({'tools': tools} if tools else {}), **options)))
            lost = sum(text.strip() not in found for turn in turns if turn.role != 'assistant'
                       for text in turn.parts or (turn.content,))
            return (any(isinstance(content, list) and str(content) in found
                        for content in contents), lost), found
        tried = []  # whether parts are written as Python's lists; how many texts are lost
        if any(turn.parts for turn in turns):
            with suppress(ValueError):
                tried = [made(lambda turn: bool(turn.parts))]
        if not tried or any(tried[0][0]):
            tried.append(made(lambda turn: False))
            if any(tried[-1][0]):
                with suppress(ValueError):  # those of models with pictures may read parts alone
                    tried.append(made(lambda turn: True))
        found = min(tried, key=lambda one: one[0])[1]
        if not all(text in found for text in told):  # it has no word of them, nor writes any role
            raise ValueError('messages of tool are not read by the chat template of this model')
        return found

    def _call_marks(self) -> tuple[str, str] | None:
        """Return what stands around a call of a tool; None if calls are not known to be so."""
        if not self._marks:
            with _until(time.thread_time() + RENDERING):
                self._marks.append(call_marks(self.tokenizer))
        return self._marks[0]

    def _template(self, tools: Any) -> str:
        found = None
        with suppress(ValueError):  # one named for tools, where there are such
            found = self.tokenizer.get_chat_template(tools=tools)
        if not isinstance(found, str) or not found:
            named = self.tokenizer.chat_template
            raise ValueError(
                f'this model has chat templates named {", ".join(sorted(named))[:200]} and none '
                'named default: name one so in its files, or send a prompt'
                if named and isinstance(named, dict) else
                'this model has no chat template: send a prompt, not messages')
        return found


def _message(turn: ChatTurn, template: str) -> dict[str, Any]:
    """Return a message as templates read them; ValueError for what this one does not read."""
    role, more = turn.role, dict[str, Any](turn.more)
    if role == 'developer' and role not in template:
        role = 'system'
    if 'tool_calls' in more:
        if not re.search(r'\btool_calls\b', template):
            raise ValueError('messages of tool_calls are not read by the chat template of this '
                             'model')
        more['tool_calls'] = calls = json.loads(more['tool_calls'])
        for function in (call['function'] for call in calls):  # templates read objects
            function['arguments'] = parse_json(function['arguments'] or '{}')
    return {'role': role, 'content': turn.content, **more}


@contextmanager
def _until(end: float) -> Iterator[None]:
    """Let templates that this thread renders go on until its clock shows `end` (s), then raise."""
    before, events = sys.gettrace(), itertools.count()

    def look(frame: FrameType, event: str, _: Any) -> Any:
        if not next(events) % _LOOKED and time.thread_time() > end:
            raise ValueError(f'it takes more than {RENDERING:g} s for this request')
        return look if event != 'call' or frame.f_code.co_filename == '<template>' else None
    sys.settrace(look)
    try:
        yield
    finally:
        sys.settrace(before)


def _asked(what: str, function: Callable[[], T]) -> T:
    """Return what the library makes; whatever it raises is a ValueError."""
    try:
        return function()
    except BaseException as error:  # noqa: B902 - any error of the library is the request's
        if ends_process(error):
            raise
        text = reason_of(error)
        raise ValueError(text if text.startswith(what) else f'{what}: {text}') from None
