# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What is asked of a language model and what it answers: the same for ROS actions and for HTTP.

A request ends exactly once.  Its text arrives in pieces; what came before an
end that is not `done` or `resumed` is not an answer.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import math
from typing import Protocol

from intradp_ros.core.limits import MAX_SECONDS, within
from intradp_ros.runtime.requests.admission import Fate

#: Messages of a chat, characters of a prompt, tokens of an answer, stop texts, characters of one.
MAX_MESSAGES, MAX_PROMPT, MAX_TOKENS, MAX_STOPS, MAX_STOP = 1024, 1 << 20, 1 << 20, 16, 256
#: Characters of a JSON schema; tokens with a bias, or that end an answer; likely ones reported.
MAX_SCHEMA, MAX_BIASES, MAX_LOGPROBS = 1 << 16, 1024, 20
#: Characters of descriptions of tools; calls of tools in an answer.
MAX_TOOLS, MAX_CALLS = 1 << 18, 128
ROLES = ('system', 'developer', 'user', 'assistant', 'tool')


@dataclass(frozen=True, slots=True)
class Sampling:
    """
    How a token is drawn: the likeliest at temperature 0, else among `top_k`, `top_p` and `min_p`.

    None is what the model's own configuration prefers.
    """

    temperature: float | None = 0.0
    #: 0: among all.
    top_k: int | None = 0
    top_p: float | None = 1.0
    seed: int = 0
    #: Least chance, as a part of the likeliest one's.
    min_p: float | None = 0.0
    #: Divides what tokens of prompt and answer have: above 1 they come less often.
    repetition_penalty: float | None = None
    #: Taken away from each token of the answer, once, and for each time it is there.
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    #: Added to the logits of tokens.
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError if a number is out of its range."""
        for name, low, high in (
                ('temperature', 0.0, 100.0), ('top_k', 0, 1 << 30), ('top_p', 0.0, 1.0),
                ('min_p', 0.0, 1.0), ('repetition_penalty', 1e-3, 1e3)):
            if (value := getattr(self, name)) is not None:
                within(name, value, low, high)
        within('seed', self.seed, 0, (1 << 64) - 1)
        within('presence_penalty', self.presence_penalty, -100.0, 100.0)
        within('frequency_penalty', self.frequency_penalty, -100.0, 100.0)
        within('tokens of logit_bias', len(self.logit_bias), 0, MAX_BIASES)
        for token, bias in self.logit_bias:
            within('a token of logit_bias', token, 0, 1 << 30)
            within('logit_bias', bias, -1000.0, 1000.0)


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """
    One message of a chat; `more` are further texts that templates read, by name.

    The text of ``tool_calls`` is JSON, as OpenAI's API has it.  `parts` are those of the content,
    where it was said in such; they are for templates that read them.
    """

    role: str
    content: str
    more: tuple[tuple[str, str], ...] = ()
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextRequest:
    """
    A prompt to continue, as text or tokens, or a chat to answer.

    :raises ValueError: if a text or a number is out of its limits; the text names which.
    """

    prompt: str | tuple[ChatTurn, ...] | tuple[int, ...]
    #: None: as many as the model prefers, or its context has room for.
    max_tokens: int | None = None
    sampling: Sampling = Sampling()
    #: Texts that end the answer; they are not part of it.
    stop: tuple[str, ...] = ()
    #: JSON schema that the answer meets; '' for any text.
    schema: str = ''
    #: Seconds from now on for which the answer is of use.
    remaining: float = math.inf
    #: Larger numbers are served earlier.
    priority: int = 0
    #: Who asks, for limits by client.
    client: str = ''
    #: Tokens before which nothing ends the answer; None: as the model prefers.
    min_tokens: int | None = None
    #: Whether tokens that end an answer are tokens like others; tokens that end it as well.
    ignore_ends: bool = False
    stop_tokens: tuple[int, ...] = ()
    #: What the chat template is given: a JSON object, or ''.
    template_options: str = ''
    #: Its tools: a JSON list as OpenAI's API has it, or ''; calls in an answer at
    #: most.
    tools: str = ''
    most_calls: int = MAX_CALLS
    #: Whether the template begins an answer, or goes on with the last message.
    generation_prompt: bool = True
    continue_final: bool = False
    #: Whether a prompt gets the tokens that texts begin with; special ones are left out of texts.
    special_tokens: bool = True
    skip_special_tokens: bool = True
    #: How many likely tokens are reported with each one; None: not even its own chance.
    logprobs: int | None = None

    def __post_init__(self) -> None:
        """Look at all limits."""
        texts, length = self._texts()
        if self.prompt == '':  # of a chat without a word there is what the template writes
            raise ValueError('the prompt is empty')
        within('characters of the prompt', length, 0, MAX_PROMPT)
        if self.max_tokens is not None:
            within('max_tokens', self.max_tokens, 1, MAX_TOKENS)
        within('min_tokens', self.min_tokens or 0, 0, MAX_TOKENS)
        within('stop texts', len(self.stop), 0, MAX_STOPS)
        for text in self.stop:
            within('characters of a stop text', len(text), 1, MAX_STOP)
        within('stop tokens', len(self.stop_tokens), 0, MAX_BIASES)
        within('characters of the schema', len(self.schema), 0, MAX_SCHEMA)
        within('characters of template options', len(self.template_options), 0, MAX_SCHEMA)
        within('characters of tools', len(self.tools), 0, MAX_TOOLS)
        within('most_calls', self.most_calls, 0, MAX_CALLS)
        within('logprobs', self.logprobs or 0, 0, MAX_LOGPROBS)
        for text in (*texts, *self.stop, self.schema, self.template_options, self.tools):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f'half of a surrogate pair at character {error.start} of a '
                                 'text: it is not Unicode') from None
        if not self.remaining >= 0:
            raise ValueError(f'the deadline is in {self.remaining} s: it must not be negative')
        if math.isfinite(self.remaining):  # no thread can wait for 1e300 s
            within('seconds until the deadline', self.remaining, 0, MAX_SECONDS)
        within('priority', self.priority, -(1 << 31), (1 << 31) - 1)

    def _texts(self) -> tuple[list[str], int]:
        """Return the texts of the prompt, and its characters (of tokens: their number)."""
        if isinstance(self.prompt, str):
            return [self.prompt], len(self.prompt)
        turns = [turn for turn in self.prompt if isinstance(turn, ChatTurn)]
        if len(turns) < len(self.prompt):
            return [], len(self.prompt)
        within('messages', len(turns), 1, MAX_MESSAGES)
        for turn in turns:
            if turn.role not in ROLES:
                raise ValueError(f'role {turn.role[:20]!r} is none of {", ".join(ROLES)}')
        texts = [text for turn in turns for text in (
            turn.content, *(text for pair in turn.more for text in pair))]
        return texts, sum(map(len, texts))


@dataclass(frozen=True, slots=True)
class TokenChance:
    """
    A token that was drawn, the bytes that it adds to a text, and the logarithm of its chance.

    `likely` are the likeliest tokens at its place, with their bytes and theirs; chances are those
    of the model, before temperature and penalties.
    """

    token: int
    raw: bytes
    logarithm: float
    likely: tuple[tuple[int, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool that an answer asks for; `arguments` are a JSON object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Piece:
    """What an answer goes on with; `text` may be empty while characters are incomplete."""

    text: str
    tokens: tuple[int, ...]
    #: Of these tokens, where the request asks for them.
    chances: tuple[TokenChance, ...] = ()


@dataclass(frozen=True, slots=True)
class TextEnd:
    """The end of a request; `seconds` are from the request on."""

    fate: Fate
    #: Why it was not done; ''.
    reason: str = ''
    #: 'stop', 'length' or 'tool_calls', where it was done.
    finish_reason: str = ''
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token_seconds: float = math.nan
    seconds: float = math.nan
    #: Calls that were written; they are not part of its text.
    calls: tuple[ToolCall, ...] = ()
    #: Whether it was refused for what it asks, though that showed only on the way.
    wrong: bool = False


class TextModel(Protocol):
    """
    A language model that answers many requests at once; see `systems/language/head.py`.

    `submit` returns at once.  `heard` takes the pieces in order and then one
    end, on a thread of the model, and must return at once.  What is returned
    ends the request early, with the given fate; it may be called from any
    thread and at any time.  ValueError if the request cannot be understood
    (prompt longer than the context, schema that is none): then nothing is
    heard.  Everything else that prevents an answer is an end with a reason.
    """

    @property
    def name(self) -> str:
        """The model's name, for people and for ``/v1/models``."""

    def submit(self, request: TextRequest, heard: Callable[[Piece | TextEnd], None],
               ) -> Callable[[Fate], None]:
        """Take a request."""
