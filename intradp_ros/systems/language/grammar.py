# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Answers that meet a JSON schema: which tokens may come next, by llguidance."""
from __future__ import annotations

from functools import lru_cache
import importlib
import json
from typing import Any

import torch
from torch import Tensor

from intradp_ros.core.extras import pip_install
from intradp_ros.systems.language.families import MissingPackageError


class Grammar:
    """
    A schema, and how far an answer has come in it.

    Raises
    ------
    ValueError
        If the schema is none that is understood.
    MissingPackageError
        If llguidance is not installed.

    """

    def __init__(self, tokenizer: Any, schema: str) -> None:
        try:
            library = importlib.import_module('llguidance')
            bridge = importlib.import_module('llguidance.hf')
            self._torch = importlib.import_module('llguidance.torch')
        except ModuleNotFoundError as error:
            raise MissingPackageError(f'answers by a schema need the package {error.name}: '
                                  f'{pip_install("language")}') from None
        try:
            if not isinstance(json.loads(schema), dict | bool):
                raise ValueError('a schema is a JSON object')
            grammar = library.LLMatcher.grammar_from_json_schema(schema)
        except (ValueError, RecursionError) as error:
            raise ValueError(f'the schema cannot be used: {str(error)[:300]}') from None
        self._tokens = _tokens(bridge, tokenizer)
        self._matcher = library.LLMatcher(self._tokens, grammar)
        if why := self._matcher.get_error():
            raise ValueError(f'the schema cannot be used: {str(why)[:300]}')
        self._mask = self._torch.allocate_token_bitmask(1, self._tokens.vocab_size)

    def allowed(self) -> Tensor:
        """Return which tokens may come next (vocabulary, bool)."""
        self._torch.fill_next_token_bitmask(self._matcher, self._mask, 0)
        bits = self._mask[0].unsqueeze(1) >> torch.arange(32, dtype=torch.int32)
        allowed: Tensor = (bits & 1).bool().view(-1)[:self._tokens.vocab_size]
        return allowed

    def take(self, token: int) -> bool:
        """Go on with a token that was allowed; return whether the answer is complete."""
        self._matcher.consume_token(token)
        return bool(self._matcher.is_stopped())


@lru_cache(1)
def _tokens(bridge: Any, tokenizer: Any) -> Any:
    return bridge.from_tokenizer(tokenizer)
