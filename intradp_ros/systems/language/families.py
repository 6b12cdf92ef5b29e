# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Families of decoder models of `transformers` that are understood, and how they differ."""
from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
import importlib
from typing import Any

from intradp_ros.core.extras import pip_install
from intradp_ros.core.torchvision_import import torchvision


@dataclass(frozen=True, slots=True)
class Family:
    """
    A family: its module in `transformers.models`, and the names of its classes.

    `norms` are those before and after the attention, and before and after the MLP of a layer, ''
    where there is none; embeddings are `scaled` by the root of the width; MLPs, which layers call
    `mlp`, are mixtures of `experts`.
    """

    module: str
    prefix: str
    norms: tuple[str, str, str, str] = ('input_layernorm', '', 'post_attention_layernorm', '')
    scaled: bool = False
    experts: bool = False
    mlp: str = 'mlp'

    def of_attention(self, name: str) -> bool:
        """Return whether a layer's tensor belongs to its attention block, otherwise to its MLP."""
        return name.startswith(('self_attn.', *(f'{norm}.' for norm in self.norms[:2] if norm)))

    def classes(self) -> Any:
        """Return the module of `transformers` with the family's classes; see `library`."""
        library()
        return importlib.import_module(f'transformers.models.{self.module}.'
                                       f'modeling_{self.module}')


_SANDWICH = ('input_layernorm', 'post_attention_layernorm', 'pre_feedforward_layernorm',
             'post_feedforward_layernorm')
_AFTER = ('', 'post_attention_layernorm', '', 'post_feedforward_layernorm')
FAMILIES: Mapping[str, Family] = {
    'llama': Family('llama', 'Llama'),
    'mistral': Family('mistral', 'Mistral'),
    'ministral': Family('ministral', 'Ministral'),
    'ministral3': Family('ministral3', 'Ministral3'),
    'qwen2': Family('qwen2', 'Qwen2'),
    'qwen3': Family('qwen3', 'Qwen3'),
    'gemma': Family('gemma', 'Gemma', scaled=True),
    'gemma2': Family('gemma2', 'Gemma2', _SANDWICH, scaled=True),
    'gemma3_text': Family('gemma3', 'Gemma3', _SANDWICH, scaled=True),
    'vaultgemma': Family('vaultgemma', 'VaultGemma', (
        'input_layernorm', '', 'pre_feedforward_layernorm', ''), scaled=True),
    'phi3': Family('phi3', 'Phi3'),
    'granite': Family('granite', 'Granite'),
    'granite_swa': Family('granite_swa', 'GraniteSWA'),
    'smollm3': Family('smollm3', 'SmolLM3'),
    'olmo2': Family('olmo2', 'Olmo2', _AFTER),
    'olmo3': Family('olmo3', 'Olmo3', _AFTER),
    'exaone4': Family('exaone4', 'Exaone4', _AFTER),
    'glm': Family('glm', 'Glm'),
    'glm4': Family('glm4', 'Glm4', ('input_layernorm', 'post_self_attn_layernorm',
                                    'post_attention_layernorm', 'post_mlp_layernorm')),
    'apertus': Family('apertus', 'Apertus', (
        'attention_layernorm', '', 'feedforward_layernorm', '')),
    'arcee': Family('arcee', 'Arcee'),
    'cwm': Family('cwm', 'Cwm'),
    'ernie4_5': Family('ernie4_5', 'Ernie4_5'),
    'helium': Family('helium', 'Helium'),
    'hunyuan_v1_dense': Family('hunyuan_v1_dense', 'HunYuanDenseV1'),
    'seed_oss': Family('seed_oss', 'SeedOss'),
    'mixtral': Family('mixtral', 'Mixtral', experts=True),
    'qwen3_moe': Family('qwen3_moe', 'Qwen3Moe', experts=True),
    'gpt_oss': Family('gpt_oss', 'GptOss', experts=True),
    'olmoe': Family('olmoe', 'Olmoe', experts=True),
    'flex_olmo': Family('flex_olmo', 'FlexOlmo', _AFTER, experts=True),
    'mellum': Family('mellum', 'Mellum', experts=True),
    'granitemoe': Family('granitemoe', 'GraniteMoe', experts=True),
    'granitemoehybrid': Family('granitemoehybrid', 'GraniteMoeHybrid', mlp='shared_mlp'),
}


class MissingPackageError(RuntimeError):
    """A package that is needed is not installed; the text names the command that brings it."""


class FamilyError(ValueError):
    """A model of a family that is not understood."""


def library() -> Any:
    """
    Return `transformers`.

    :raises MissingPackageError: if it is not installed.
    """
    with suppress(ModuleNotFoundError):  # it is imported, where it is installed
        torchvision()
    try:
        return importlib.import_module('transformers')
    except ModuleNotFoundError as error:
        raise MissingPackageError(f'language models need the package {error.name}: '
                                  f'{pip_install("language")}') from None


def check_family(config: Mapping[str, Any]) -> Family:
    """Return the family of a model; FamilyError if it cannot be computed."""
    found = FAMILIES.get(str(config.get('model_type')))
    if found is None:
        raise FamilyError(f'models of the family {str(config.get("model_type"))[:40]!r} are not '
                          f'understood; those of {", ".join(FAMILIES)} are')
    ahead = [key for key, usual in (('is_causal', True), ('use_bidirectional_attention', False))
             if bool(config.get(key, usual)) is not usual]
    if ahead:
        raise FamilyError(f'its tokens see those after them ({ahead[0]}), so it makes no text: '
                          'take a model that generates')
    if found.mlp == 'shared_mlp' and (config.get('num_local_experts') or {
            *(config.get('layer_types') or config.get('layers_block_type') or ['mamba'])
    } - {'attention', 'full_attention'}):
        raise FamilyError('of this family those are understood whose layers are all attention '
                          'without experts (Granite 4 Micro, 1B, 350M; not the H ones)')
    if config.get('use_sliding_window') is False and config.get('sliding_window') \
            and 'sliding_attention' in (config.get('layer_types') or ()):
        raise FamilyError('its layer_types have windows, which use_sliding_window takes away: '
                          'say one of both')
    return found


def check_window(config: Any) -> None:
    """
    Raise FamilyError if layers see a window of less than two tokens; `config` is the library's.

    With a cache the library sees other tokens there than without one.
    """
    read = hasattr(type(config), 'sliding_window') and (
        'sliding_attention' in (getattr(config, 'layer_types', None) or ('sliding_attention',)))
    window = config.sliding_window if read else None
    if window is not None and window < 2:
        raise FamilyError(f'its layers have a window of {window} (sliding_window): at least 2 is '
                          'understood')
