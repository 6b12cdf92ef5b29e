# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What is asked of a language model and what it answers: the same for ROS actions and for HTTP.

A request ends exactly once.  Its text arrives in pieces; what came before an
end that is not `done` or `resumed` is no answer.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import math
from typing import Protocol

from intradp_ros.core.limits import within
from intradp_ros.runtime.requests.admission import Fate

#: Messages of a chat, characters of a prompt, tokens of an answer, stop texts, characters of one.
MAX_MESSAGES, MAX_PROMPT, MAX_TOKENS, MAX_STOPS, MAX_STOP = 1024, 1 << 20, 1 << 20, 16, 256
#: Characters of a JSON schema.
MAX_SCHEMA = 1 << 16
ROLES = ('system', 'user', 'assistant')


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn: the likeliest at temperature 0, else among `top_k` and `top_p`."""

    temperature: float = 0.0
    #: 0: among all.
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError if a number is out of its range."""
        within('temperature', self.temperature, 0.0, 10.0)
        within('top_k', self.top_k, 0, 1 << 30)
        within('top_p', self.top_p, 1e-6, 1.0)
        within('seed', self.seed, 0, (1 << 64) - 1)


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One message of a chat."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class TextRequest:
    """
    A prompt to continue, or a chat to answer.

    Raises
    ------
    ValueError
        If a text or a number is out of its limits; the text names which.

    """

    prompt: str | tuple[ChatTurn, ...]
    #: None: as many as the model's context has room for.
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

    def __post_init__(self) -> None:
        """Look at all limits."""
        if isinstance(self.prompt, str):
            texts, length = [self.prompt], len(self.prompt)
        else:
            within('messages', len(self.prompt), 1, MAX_MESSAGES)
            texts = [turn.content for turn in self.prompt]
            length = sum(map(len, texts))
            for turn in self.prompt:
                if turn.role not in ROLES:
                    raise ValueError(f'role {turn.role[:20]!r} is none of {", ".join(ROLES)}')
        if not length:
            raise ValueError('the prompt is empty')
        within('characters of the prompt', length, 1, MAX_PROMPT)
        if self.max_tokens is not None:
            within('max_tokens', self.max_tokens, 1, MAX_TOKENS)
        within('stop texts', len(self.stop), 0, MAX_STOPS)
        for text in self.stop:
            within('characters of a stop text', len(text), 1, MAX_STOP)
        within('characters of the schema', len(self.schema), 0, MAX_SCHEMA)
        for text in (*texts, *self.stop, self.schema):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f'half of a surrogate pair at character {error.start} of a '
                                 'text: it is not Unicode') from None
        if not self.remaining >= 0:
            raise ValueError(f'the deadline is in {self.remaining} s: it must not be negative')
        within('priority', self.priority, -(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class Piece:
    """What an answer goes on with; `text` may be empty while characters are incomplete."""

    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TextEnd:
    """The end of a request; `seconds` are from the request on."""

    fate: Fate
    #: Why it was not done; ''.
    reason: str = ''
    #: 'stop' or 'length', where it was done.
    finish_reason: str = ''
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token_seconds: float = math.nan
    seconds: float = math.nan


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
