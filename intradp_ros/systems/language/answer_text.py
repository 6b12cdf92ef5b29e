# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Tokens of an answer become text, piece by piece; stop texts end it.

Prompt and answer together are what the library makes of all tokens: the first blank of an
answer is kept, and so is one behind a special token that is not written.  So tokens are
decoded with some of those before them, and what later tokens may change is held back: bytes
that are not a whole character yet, and blanks that the library takes away before some marks.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
import json
import re
from typing import Any

from intradp_ros.runtime.requests.text_requests import ToolCall

#: What a tokenizer writes for bytes that are not a whole character yet.
_INCOMPLETE = '\ufffd'
#: Beginnings of what the library writes without its first blank, where it does so at all.
_BEFORE_MARKS = (' ', " '", ' n', " n'", " 'v", " 'r")
_BYTE = re.compile(r'<0x[0-9A-Fa-f]{2}>')
#: Tokens of a prompt that give its answer context, at least.
_CONTEXT = 8


@dataclass(frozen=True)
class TokenTexts:
    """
    How tokens become text: `decode` some of them.

    A run of `single` tokens, a byte each, is whole characters or none, as all of it says; tokens
    that are `unwritten` do not end it.  A decoder that `cleans` takes blanks away.
    """

    decode: Callable[[Sequence[int]], str]
    single: frozenset[int] = frozenset()
    unwritten: Callable[[int], bool] = lambda token: False
    cleans: bool = False

    def context(self, prompt: Sequence[int]) -> list[int]:
        """Return the last tokens of a prompt, so many that what follows is decoded right."""
        count = _CONTEXT
        while count < len(prompt):
            text = self.decode(prompt[-count:])
            if text.strip() and _INCOMPLETE not in text \
                    and self.decode(prompt[-2 * count:]).endswith(text):
                break
            count *= 2
        return list(prompt[-count:])


def token_texts(tokenizer: Any, skip_special: bool = True) -> TokenTexts:
    """Return how tokens of a tokenizer of `transformers` become text."""
    vocabulary = tokenizer.get_vocab()
    single = frozenset(number for token, number in vocabulary.items() if _BYTE.fullmatch(token))
    special = {number for number, added in tokenizer.added_tokens_decoder.items()
               if added.special}
    written = frozenset(vocabulary.values()) - (special if skip_special else set())
    return TokenTexts(
        lambda tokens: str(tokenizer.decode(list(tokens), skip_special_tokens=skip_special)),
        single, lambda token: token not in written,
        bool(getattr(tokenizer, 'clean_up_tokenization_spaces', False)))


def token_bytes(tokenizer: Any) -> Callable[[int], bytes]:
    """
    Return what says which bytes a token adds to a text, also where it is not a whole character.

    Tokens of bytes say so by their names; others are decoded behind one that is known.
    """
    alphabet, known = byte_alphabet(), list[int]()
    backend = getattr(tokenizer, 'backend_tokenizer', None)
    named = backend is not None and 'ByteLevel' in json.dumps(
        json.loads(backend.to_str())['decoder'])
    added = frozenset(tokenizer.get_added_vocab().values())

    def text(tokens: Sequence[int]) -> str:
        return str(tokenizer.decode(list(tokens), skip_special_tokens=False))

    def raw(token: int) -> bytes:
        name = None
        with suppress(LookupError):
            name = tokenizer.convert_ids_to_tokens(token)
        if name is None:
            return b''  # of a vocabulary that is padded
        if token not in added:
            if _BYTE.fullmatch(name):
                return bytes((int(name[3:5], 16),))
            if named and all(letter in alphabet for letter in name):
                return bytes(alphabet[letter] for letter in name)
        if not known:
            known.extend(tokenizer('a', add_special_tokens=False).input_ids)
        before = text(known)
        both = text([*known, token])
        return (both[len(before):] if both.startswith(before) else text([token])).encode()
    return raw


def byte_alphabet() -> dict[str, int]:
    """Return the letters by which tokenizers of bytes write them (GPT-2's)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(256 + number): byte for number, byte in enumerate(others)}


class AnswerText:
    """
    The text of an answer to a prompt, while tokens come.

    Text that may be the beginning of a stop text is held back until that is known.
    """

    def __init__(self, texts: TokenTexts, stop: tuple[str, ...] = (),
                 prompt: Sequence[int] = ()) -> None:
        self._texts, self._stop = texts, stop
        self._tokens = texts.context(prompt)
        self._read, self._mark = 0, len(self._tokens)  # of what is decoded; where it may begin
        self._shown = len(texts.decode(self._tokens).rstrip(_INCOMPLETE)) if self._tokens else 0
        self._held = ''
        self._in_run = self.stopped = False
        self.calls: tuple[ToolCall, ...] = ()

    def add(self, token: int, stops: bool = True) -> str:
        """Take a token; return the text that is certain now.  It may not stop unless `stops`."""
        self._tokens.append(token)
        self._in_run = token in self._texts.single or self._in_run and self._texts.unwritten(token)
        if self._in_run:
            return ''
        text = self._texts.decode(self._tokens[self._read:])
        new = text[self._shown:self._certain(text)]
        self._shown += len(new)
        if new and self._shown == len(text):
            self._move(text)
        return self._unstopped(self._held + new, stops)

    def end(self) -> str:
        """Return the text that was held back."""
        if self.stopped:
            return ''
        text = self._texts.decode(self._tokens[self._read:])
        text, self._held, self._shown = self._held + text[self._shown:], '', len(text)
        text = self._unstopped(text, True) + self._held
        return text

    def _certain(self, text: str) -> int:
        """Return how many characters of a text no later token changes."""
        end = len(text) - text.endswith(_INCOMPLETE)
        if self._texts.cleans:
            end -= max((len(mark) for mark in _BEFORE_MARKS if text[:end].endswith(mark)),
                       default=0)
        return end

    def _move(self, text: str) -> None:
        """Decode fewer tokens from now on, if that makes the same text of them."""
        later = self._texts.decode(self._tokens[self._mark:])
        if later.strip() and _INCOMPLETE not in later and text.endswith(later):
            self._read, self._shown = self._mark, len(later)
        self._mark = len(self._tokens)

    def _unstopped(self, text: str, stops: bool) -> str:
        """Return what is certain of a text with regard to stop texts; keep the rest."""
        if not stops:
            self._held = ''
            return text
        found = [at for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ''
            return text[:min(found)]
        held = max((size for stop in self._stop for size in range(1, len(stop))
                    if text.endswith(stop[:size])), default=0)
        self._held = text[len(text) - held:]
        return text[:len(text) - held]
