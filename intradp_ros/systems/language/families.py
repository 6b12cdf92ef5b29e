# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Families of decoder models of `transformers` that are understood, and how they differ."""
from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
import importlib
from typing import Any

from intradp_ros.core.torchvision_import import torchvision


@dataclass(frozen=True, slots=True)
class Family:
    """
    A family: its module in `transformers.models`, and the names of its classes.

    Of `sandwich` families each half of a layer has a norm before and after it;
    embeddings are `scaled` by the root of the width.
    """

    module: str
    prefix: str
    sandwich: bool = False
    scaled: bool = False

    def of_attention(self, name: str) -> bool:
        """Return whether a layer's tensor belongs to its attention block, otherwise to its MLP."""
        return name.startswith(('self_attn.', 'input_layernorm.')) or \
            self.sandwich and name.startswith('post_attention_layernorm.')

    def classes(self) -> Any:
        """Return the module of `transformers` with the family's classes; see `library`."""
        library()
        return importlib.import_module(f'transformers.models.{self.module}.'
                                       f'modeling_{self.module}')


FAMILIES: Mapping[str, Family] = {
    'llama': Family('llama', 'Llama'),
    'mistral': Family('mistral', 'Mistral'),
    'qwen2': Family('qwen2', 'Qwen2'),
    'qwen3': Family('qwen3', 'Qwen3'),
    'gemma': Family('gemma', 'Gemma', scaled=True),
    'gemma2': Family('gemma2', 'Gemma2', sandwich=True, scaled=True),
    'gemma3_text': Family('gemma3', 'Gemma3', sandwich=True, scaled=True),
}


class MissingPackageError(RuntimeError):
    """A package that is needed is not installed; the text names the command that brings it."""


class FamilyError(ValueError):
    """A model of a family that is not understood."""


def library() -> Any:
    """
    Return `transformers`.

    Raises
    ------
    MissingPackageError
        If it is not installed.

    """
    with suppress(ModuleNotFoundError):  # it is imported, where it is installed
        torchvision()
    try:
        return importlib.import_module('transformers')
    except ModuleNotFoundError as error:
        raise MissingPackageError(f'language models need the package {error.name}: '
                                  "pip install 'intradp-ros[language]'") from None


def check_family(config: Mapping[str, Any]) -> Family:
    """Return the family of a model; FamilyError if it is not understood."""
    found = FAMILIES.get(str(config.get('model_type')))
    if found is None:
        raise FamilyError(f'models of the family {str(config.get("model_type"))[:40]!r} are not '
                          f'understood; those of {", ".join(FAMILIES)} are')
    return found
