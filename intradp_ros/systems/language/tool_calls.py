# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Calls of tools in an answer's text, where the model's own chat template says how they look.

A template that writes a call that was made as JSON of name and arguments between two marks, as
those of Qwen and Hermes do, has taught its model to write them so.  Of other models the text is
left as it is.
"""
from __future__ import annotations

from collections.abc import Collection, Sequence
import json
import re
from typing import Any

from intradp_ros.core.json_text import parse_json
from intradp_ros.core.owned_errors import ends_process
from intradp_ros.runtime.requests.text_requests import ToolCall
from intradp_ros.systems.language.answer_text import AnswerText, TokenTexts

_NAME, _ARGUMENTS = 'tool_to_try', {'first': 'a b', 'second': [1, {'third': None}]}
_OPEN, _CLOSE = re.compile(r'<(\w+)>\s*$'), re.compile(r'\s*</(\w+)>')


def call_marks(tokenizer: Any) -> tuple[str, str] | None:
    """Return what a chat template writes before and behind a call; None if that is not clear."""
    function = {'name': _NAME, 'arguments': _ARGUMENTS}
    tools = [{'type': 'function', 'function': {
        'name': _NAME, 'description': '', 'parameters': {'type': 'object', 'properties': {}}}}]
    try:
        text = str(tokenizer.apply_chat_template([
            {'role': 'user', 'content': 'x'},
            {'role': 'assistant', 'content': '', 'tool_calls': [
                {'type': 'function', 'id': 'call00000', 'function': function}]}],
            tools=tools, tokenize=False))
        at = text.rindex('{"name": "' + _NAME)
        found, end = json.JSONDecoder().raw_decode(text, at)
        before, behind = _OPEN.search(text[:at]), _CLOSE.match(text, end)
        if found != function or before is None or behind is None or before[1] != behind[1]:
            return None
        marks = f'<{before[1]}>', f'</{before[1]}>'
        for mark in marks:  # one that is left out of texts marks nothing
            ids = tokenizer(mark, add_special_tokens=False).input_ids
            if tokenizer.decode(ids, skip_special_tokens=True).strip() != mark:
                return None
        return marks
    except BaseException as error:  # noqa: B902 - templates refuse in any way
        if ends_process(error):
            raise
        return None


class CallingText(AnswerText):
    """
    The text of an answer that may call tools: calls are taken out of it.

    What is between the marks and is not a call of one of the tools stays in the text.
    """

    def __init__(self, texts: TokenTexts, stop: tuple[str, ...], prompt: Sequence[int],
                 marks: tuple[str, str], names: Collection[str], most: int) -> None:
        super().__init__(texts, stop, prompt)
        self._marks, self._names, self._most = marks, names, most
        self._unread = self._blanks = ''

    def add(self, token: int, stops: bool = True) -> str:
        """Take a token; return the text that is certain now."""
        return self._uncalled(super().add(token, stops))

    def end(self) -> str:
        """Return the text that was held back."""
        text = self._uncalled(super().end())
        rest, self._unread = self._unread, ''
        return text + self._spaced(rest)

    def _uncalled(self, text: str) -> str:
        """Return what of a text is certain not to be part of a call."""
        self._unread += text
        first, last = self._marks
        shown = ''
        while (at := self._unread.find(first)) >= 0:
            end = self._unread.find(last, at)
            before = self._unread[:at]
            if end < 0:
                shown, self._unread = shown + before, self._unread[at:]
                return self._spaced(shown)
            inside, self._unread = self._unread[at:end + len(last)], self._unread[end + len(last):]
            call = self._call(inside[len(first):-len(last)])
            shown += before if call else before + inside
            if call and len(self.calls) < self._most:
                self.calls = (*self.calls, call)
        held = max((size for size in range(1, len(first)) if self._unread.endswith(first[:size])),
                   default=0)
        shown += self._unread[:len(self._unread) - held]
        self._unread = self._unread[len(self._unread) - held:]
        return self._spaced(shown)

    def _spaced(self, shown: str) -> str:
        """Return a text without the blanks between calls, and behind them."""
        self._blanks += shown
        if self.calls and not self._blanks.strip():
            return ''
        shown, self._blanks = self._blanks, ''
        return shown

    def _call(self, text: str) -> ToolCall | None:
        try:
            said = parse_json(text)
            if said['name'] in self._names and isinstance(said['arguments'], dict):
                return ToolCall(said['name'], json.dumps(said['arguments'], ensure_ascii=False))
        except (ValueError, KeyError, TypeError):
            pass
        return None
