# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The actions `generate_response` and `generate_chat_completions` of a language model.

Goals become requests of a `TextModel`; its pieces become feedback, its end
the result.  All goals count as one client, `ros`: who sends a goal is not
known, and everybody may listen to feedback (SROS2 keeps strangers out).
"""
from __future__ import annotations

from collections.abc import Callable
import math
import secrets
import time
from typing import Any

from rclpy.node import Node

from intradp_ros.action import GenerateChatCompletions, GenerateResponse
from intradp_ros.msg import (
    ChatChoice,
    ChatDelta,
    ChatMessage,
    GeneratedText,
    SamplingConfig,
    TokenUsage,
)
from intradp_ros.nodes.common.call_seals import CallSeals
from intradp_ros.nodes.common.goal_server import GoalServer
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_intake import intake_of, TextIntake
from intradp_ros.runtime.requests.text_requests import (
    ChatTurn,
    Piece,
    Sampling,
    TextEnd,
    TextModel,
    TextRequest,
)
from intradp_ros.srv import GenerateChatCompletions as GenerateChatCompletionsCall
from intradp_ros.srv import GenerateResponse as GenerateResponseCall

CLIENT = 'ros'
CLOSED = 'ask over HTTP with api_keys, or start the node with goals: open'
#: Bytes of a goal, as of a body by HTTP.
MOST_BYTES = 4 << 20


class TextActions:
    """Serves both actions, and their mirrors, until it is closed."""

    def __init__(self, node: Node, model: TextModel | TextIntake, max_tokens: int,
                 highest: int = 0, seals: CallSeals | None = None) -> None:
        """
        Take goals up to a priority; goals have no seal, so that closed `seals` refuse all of them.

        `max_tokens` limits answers whose goals do not say how long they may be.
        """
        self._model, self._most, self._highest = intake_of(model), max_tokens, highest
        seals = seals or CallSeals(None, lambda cause, text: None, most=MOST_BYTES)
        self._servers = [
            GoalServer(node, GenerateResponse, GenerateResponseCall, '~/generate_response',
                       self._continue, seals),
            GoalServer(node, GenerateChatCompletions, GenerateChatCompletionsCall,
                       '~/generate_chat_completions', self._answer, seals)]

    def close(self) -> None:
        """End all goals."""
        for server in self._servers:
            server.close()

    def _continue(self, goal: Any, report: Callable[[Any], None],
                  finish: Callable[[Fate, Any], None]) -> Callable[[Fate], None]:
        """Begin to continue a prompt."""
        pieces: list[Piece] = []

        def hear(event: Piece | TextEnd) -> None:
            if isinstance(event, Piece):
                pieces.append(event)
                report(GenerateResponse.Feedback(partial_response=_generated([event])))
                return
            result = GenerateResponse.Result(
                reason=event.reason, finish_reason=event.finish_reason, usage=_usage(event))
            if event.fate in (Fate.DONE, Fate.RESUMED):
                result.response = _generated(pieces)
            finish(event.fate, result)
        return self._model.submit(self._request(goal, goal.prompt), hear, lambda reason: finish(
            Fate.REFUSED, GenerateResponse.Result(reason=reason)))

    def _answer(self, goal: Any, report: Callable[[Any], None],
                finish: Callable[[Fate, Any], None]) -> Callable[[Fate], None]:
        """Begin to answer a chat."""
        name, pieces = f'chatcmpl-{secrets.token_hex(12)}', list[Piece]()

        def hear(event: Piece | TextEnd) -> None:
            if isinstance(event, Piece):
                pieces.append(event)
                if event.text:
                    report(GenerateChatCompletions.Feedback(id=name, choices=[ChatDelta(
                        delta=ChatMessage(role='assistant', content=event.text))]))
                return
            result = GenerateChatCompletions.Result(
                id=name, created=int(time.time()), model=self._model.name, reason=event.reason,
                usage=_usage(event))
            if event.fate in (Fate.DONE, Fate.RESUMED):
                result.choices = [ChatChoice(
                    finish_reason=event.finish_reason, message=ChatMessage(
                        role='assistant', content=''.join(piece.text for piece in pieces)))]
            finish(event.fate, result)
        turns = tuple(ChatTurn(message.role, message.content) for message in goal.messages)
        return self._model.submit(self._request(goal, turns), hear, lambda reason: finish(
            Fate.REFUSED, GenerateChatCompletions.Result(reason=reason)))

    def _request(self, goal: Any, prompt: str | tuple[ChatTurn, ...]) -> TextRequest:
        if goal.priority > self._highest:
            raise ValueError(f'priority {goal.priority}: at most {self._highest} is taken here '
                             '(parameter highest_priority)')
        config: SamplingConfig = goal.sampling_config
        return TextRequest(
            prompt, goal.max_tokens or self._most,
            Sampling(config.temp, config.top_k, config.top_p, config.seed), tuple(goal.stop),
            config.grammar_schema, goal.deadline or math.inf, goal.priority, CLIENT)


def _generated(pieces: list[Piece]) -> GeneratedText:
    return GeneratedText(text=''.join(piece.text for piece in pieces),
                         tokens=[token for piece in pieces for token in piece.tokens])


def _usage(end: TextEnd) -> TokenUsage:
    return TokenUsage(
        prompt_tokens=end.prompt_tokens, completion_tokens=end.completion_tokens,
        total_tokens=end.prompt_tokens + end.completion_tokens,
        first_token_seconds=end.first_token_seconds, seconds=end.seconds)
