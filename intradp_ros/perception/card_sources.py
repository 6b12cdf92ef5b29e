# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Where the card of a model stands: in a file of its own, in the archive, or at the factory."""
from __future__ import annotations

from collections.abc import Callable
import importlib
from pathlib import Path
from typing import TypeVar

from intradp_ros.core.plain_file import open_to_read
from intradp_ros.graph.serialise import load_notes
from intradp_ros.perception.card import card_from_json, CardError, LARGEST_CARD, ModelCard
from intradp_ros.runtime.models.catalogue import ModelSpec

Factory = TypeVar('Factory', bound=Callable[..., object])
_ATTRIBUTE = 'model_card'


def described(card: ModelCard) -> Callable[[Factory], Factory]:
    """Let a factory of models say what its models take and give: a decorator."""

    def mark(factory: Factory) -> Factory:
        setattr(factory, _ATTRIBUTE, card)
        return factory

    return mark


def find_card(spec: ModelSpec, path: str = '') -> ModelCard | None:
    """
    Return a model's card: that of a JSON file if one is named, else what comes with the model.

    None if nothing comes with it.

    :raises CardError: if the file cannot be read, or what is found is not a card.
    """
    if path:
        return read_card(Path(path))
    if spec.is_archive:
        text = load_notes(spec.source)
        return card_from_json(text) if text else None
    module, _, factory = spec.source.partition(':')
    card = getattr(getattr(importlib.import_module(module), factory, None), _ATTRIBUTE, None)
    return card if isinstance(card, ModelCard) else None


def read_card(path: Path) -> ModelCard:
    """Return the card of a JSON file; CardError if it is not one."""
    try:
        with open_to_read(path) as file:
            return card_from_json(file.read(LARGEST_CARD + 1).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise CardError(f'cannot read the card {path}: {error}') from error
    except CardError as error:
        raise CardError(f'{path}: {error}') from error
