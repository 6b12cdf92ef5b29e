# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tokens of an answer become text, piece by piece; stop texts end it."""
from __future__ import annotations

from collections.abc import Callable, Sequence

#: What a tokenizer writes for bytes that are no whole character yet.
_INCOMPLETE = '\ufffd'
#: Tokens after which an incomplete character is written as it is.
_PATIENCE = 8


class AnswerText:
    """
    The text of an answer, while tokens come.

    `decode` makes text of tokens.  Text that may be the beginning of a stop text is held
    back until that is known.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: tuple[str, ...]) -> None:
        self._decode, self._stop = decode, stop
        self._tokens: list[int] = []
        self._given = self._read = 0  # tokens whose text is out; those that gave it context
        self._held = ''
        self.stopped = False

    def add(self, token: int) -> str:
        """Take a token; return the text that is certain now."""
        self._tokens.append(token)
        before = self._decode(self._tokens[self._read:self._given])
        after = self._decode(self._tokens[self._read:])
        if after.endswith(_INCOMPLETE) and len(self._tokens) - self._given < _PATIENCE:
            return ''
        self._read, self._given = self._given, len(self._tokens)
        return self._certain(self._held + after[len(before):])

    def end(self) -> str:
        """Return the text that was held back."""
        rest = self._decode(self._tokens[self._read:])[
            len(self._decode(self._tokens[self._read:self._given])):]
        text, self._held = self._held + rest, ''
        self._given = self._read = len(self._tokens)
        return '' if self.stopped else text

    def _certain(self, text: str) -> str:
        found = [at for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ''
            return text[:min(found)]
        held = max((size for stop in self._stop for size in range(1, len(stop))
                    if text.endswith(stop[:size])), default=0)
        self._held = text[len(text) - held:]
        return text[:len(text) - held]
