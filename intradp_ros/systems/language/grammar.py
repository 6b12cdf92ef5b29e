# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Answers that meet a JSON schema: which tokens may come next, by llguidance."""
from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from copy import copy
import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

from intradp_ros.core.extras import pip_install
from intradp_ros.systems.language.families import MissingPackageError
from intradp_ros.systems.language.schema_trial import compiled, SchemaTrial


class UnmetSchemaError(ValueError):
    """No token goes on with an answer that has begun to meet its schema."""


class Grammars:
    """
    Makes grammars of schemas for one model.

    `vocabulary` is the number of the model's logits, which may be more than its tokenizer has
    tokens; `ends` are the tokens that end an answer.  What is costly, the tokens, is made at the
    first grammar, or by `prepare`.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, ends: Collection[int] = ()) -> None:
        self._tokenizer, self._vocabulary = tokenizer, vocabulary
        self._size = max(len(tokenizer), vocabulary)
        self._ends = sorted(end for end in ends if end < self._size)
        self._made: tuple[Any, Any, SchemaTrial] | None = None

    def prepare(self) -> None:
        """Make what all grammars share, if llguidance is there."""
        with suppress(MissingPackageError, ValueError):
            self._shared()

    def make(self, schema: str) -> Grammar:
        """
        Return a grammar.

        :raises ValueError: if the schema is none that is understood, or costs too much.
        :raises MissingPackageError: if llguidance is not installed.
        """
        library, tokens, trial = self._shared()
        trial.check(schema)
        return Grammar(compiled(library, tokens, schema), tokens.vocab_size, self._vocabulary)

    def close(self) -> None:
        """End the process that tries schemas."""
        if self._made:
            self._made[2].close()

    def _shared(self) -> tuple[Any, Any, SchemaTrial]:
        if self._made is None:
            library = _library()
            backend = getattr(self._tokenizer, 'backend_tokenizer', None)
            if backend is None:
                raise ValueError('answers by a schema need a tokenizer of the library tokenizers')
            backend = copy(backend)
            backend.no_padding()
            backend.no_truncation()
            text, ends = backend.to_str(), self._ends or None
            self._made = (library, library.LLTokenizer(text, n_vocab=self._size, eos_token=ends),
                          SchemaTrial(text, self._size, self._ends))
        return self._made


class Grammar:
    """A schema, and how far an answer has come in it; made by `Grammars`."""

    def __init__(self, matcher: Any, tokens: int, vocabulary: int) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary
        self._mask = np.zeros(-(-tokens // 32), np.int32)

    def allowed(self) -> npt.NDArray[np.bool_]:
        """
        Return which tokens may come next (vocabulary, bool).

        :raises UnmetSchemaError: if there is none, or the schema turns out to cost too much.
        """
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        self._check()
        found = np.unpackbits(self._mask.view(np.uint8), count=self._vocabulary,
                              bitorder='little').view(np.bool_)
        if not found.any():
            raise UnmetSchemaError('no token goes on with an answer that meets the schema')
        return found

    def take(self, token: int) -> bool:
        """
        Go on with a token that was allowed; return whether the answer is complete.

        :raises UnmetSchemaError: if it does not go on, as no token does.
        """
        self._matcher.consume_token(token)
        self._check()
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if why := self._matcher.get_error():
            raise UnmetSchemaError('the schema cannot be gone on with, perhaps for want of a '
                                   f'token: {" ".join(str(why).split())[:300]}')


def check_schema(schema: str) -> None:
    """
    Look at a schema before there is a model.

    :raises ValueError: if it is none that is understood, or costs too much.
    :raises MissingPackageError: if llguidance is not installed.
    """
    _library()
    trial = SchemaTrial('byte', 0, ())  # llguidance's own tokens: one for each byte
    try:
        trial.check(schema)
    finally:
        trial.close()


def _library() -> Any:
    try:
        return importlib.import_module('llguidance')
    except ModuleNotFoundError as error:
        raise MissingPackageError(f'answers by a schema need the package {error.name}: '
                                  f'{pip_install("language")}') from None
