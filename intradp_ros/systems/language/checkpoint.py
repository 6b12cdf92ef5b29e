# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A model as its files hold it: configuration, tensors by the names of `transformers`, tokenizer.

What the files hold is compared with what the model needs, both ways, before anything is
taken: a tensor that is not there is never made up, and one that nobody reads means that the
model computes something else than its configuration says.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
import json
from typing import Any

import torch

from intradp_ros.systems.language.experts import expert_shapes
from intradp_ros.systems.language.families import FamilyError, library, MissingPackageError
from intradp_ros.systems.language.manifest import check_config, check_generation, ManifestError
from intradp_ros.systems.language.stored import Stored, StoredType

#: Returns a tensor of a checkpoint by its name; KeyError if there is none.
Find = Callable[[str], torch.Tensor | Stored]
EMBEDDING, MATRIX = 'model.embed_tokens.weight', 'lm_head.weight'
#: Keys of configurations that say nothing of what is computed.
_VOLATILE = frozenset((
    '_name_or_path', '_commit_hash', 'transformers_version', 'architectures', 'auto_map', 'dtype',
    'torch_dtype', 'attn_implementation', '_attn_implementation', 'id2label', 'label2id',
    '_attn_implementation_autoset', 'use_cache', 'initializer_range', 'return_dict',
    'quantization_config'))
#: Ends of names of tensors that are computed from the configuration, as older files hold them.
_COMPUTED = ('rotary_emb.inv_freq', 'rotary_emb.cos_cached', 'rotary_emb.sin_cached')
#: What a manifest must say, whatever the library's defaults are.
_STATED = ('model_type', 'num_hidden_layers', 'hidden_size', 'num_attention_heads',
           'num_key_value_heads', 'vocab_size', 'max_position_embeddings', 'tie_word_embeddings',
           'head_dim', 'num_experts_per_tok')


class ImportModelError(ValueError):
    """A folder or file that is not a model which can be taken; the text names cause and fix."""

    def __init__(self, text: str) -> None:
        """Say it in one line, also where names in files hold more."""
        super().__init__(''.join(each if each.isprintable() else '?' for each in text))


@dataclass(frozen=True)
class Checkpoint:
    """
    Files of a model.

    `config` is plain data for `transformers.AutoConfig`; `tensors` are types and shapes of all
    that belong to the text model, by the library's names; `generation` is what `generate` would
    do; `tokenizer` are files by name.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, tuple[StoredType, tuple[int, ...]]]
    find: Find
    generation: Mapping[str, Any]
    tokenizer: Mapping[str, str] | None = field(default=None, repr=False)


def refused(path: object, error: Exception) -> Exception:
    """Return the error that says why files are refused, in one line."""
    if isinstance(error, (ImportModelError, FamilyError, MissingPackageError)):
        return error
    text = ' '.join(str(error).split())[:300]
    if isinstance(error, KeyError):  # such as a value that it has no function for
        text = f'the library does not find {text}'
    return ImportModelError(f'{path}: {text or type(error).__name__}')


def plain_config(raw: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """
    Return a configuration as plain data that says the same to any release of the library.

    `raw` is what the files say, `config` what the library makes of it.  Keys that say nothing of
    what is computed are left out: equal models have equal data.
    """
    plain = {key: _floats(value) for key, value in raw.items() if key not in _VOLATILE}
    for key in _STATED:
        if (value := getattr(config, key, None)) is not None:
            plain[key] = value
    meant, again = config.to_dict(), library().AutoConfig.for_model(
        **json.loads(json.dumps(plain))).to_dict()
    plain.update((key, value) for key, value in meant.items()
                 if key not in _VOLATILE and again.get(key) != value)
    return plain


def _floats(value: Any) -> Any:
    """Return a value with the floats that JSON lacks, for which the library writes objects."""
    if isinstance(value, dict):
        return float(value['__float__']) if set(value) == {'__float__'} else {
            key: _floats(inner) for key, inner in value.items()}
    return [*map(_floats, value)] if isinstance(value, list) else value


def needed_tensors(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors of a model, by the names that they have here."""
    transformers = library()
    with torch.device('meta'):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**config))
    ignored = model._keys_to_ignore_on_load_missing or ()
    return expert_shapes({name: tuple(tensor.shape) for name, tensor in model.state_dict().items()
                          if name not in ignored})


def check_layers(what: object, kind: object, layers: int, names: Collection[str],
                 begin: str = 'model.layers.') -> None:
    """Raise ImportModelError if no tensor of a layer is there, before all layers are made."""
    there = {name.removeprefix(begin).split('.')[0] for name in names if name.startswith(begin)}
    lost = next((number for number in range(layers) if str(number) not in there), None)
    if lost is not None:
        raise ImportModelError(f'{what}: layer {lost} is missing of a {kind} model with {layers} '
                               'layers: a file is missing, or it was not downloaded to its end')


def check_tensors(what: object, config: Mapping[str, Any],
                  shapes: Mapping[str, tuple[int, ...]]) -> None:
    """
    Compare what files hold with what a model needs, both ways.

    :raises ImportModelError: if a tensor is missing, of another shape, or is not part of such a
        model.
    """
    try:
        check_layers(what, config['model_type'], check_config(config), shapes)
        needed = needed_tensors(config)
    except Exception as error:  # noqa: B902 - whatever the library says of a configuration
        raise refused(what, error) from None
    if config.get('tie_word_embeddings') and (MATRIX in shapes or EMBEDDING in shapes):
        for name in {EMBEDDING, MATRIX} - {*shapes}:
            needed.pop(name, None)
    kind = config['model_type']
    if missing := sorted(needed.keys() - shapes.keys()):
        raise ImportModelError(
            f'{what}: {_some(missing)} of a {kind} model with {config["num_hidden_layers"]} '
            'layers: a file is missing, or it was not downloaded to its end')
    if other := sorted(name for name in needed if tuple(shapes[name]) != needed[name]):
        name = other[0]
        raise ImportModelError(
            f'{what}: {name} is of shape {tuple(shapes[name])}, but the configuration says '
            f'{needed[name]}: configuration and weights are of two models')
    if unknown := sorted(name for name in shapes.keys() - needed.keys()
                         if not name.endswith(_COMPUTED) and name not in (EMBEDDING, MATRIX)):
        raise ImportModelError(
            f'{what} holds {_some(unknown, "")} that a {kind} model of this configuration does '
            'not read: quantised or adapted weights, or the configuration of another model')


def generation_of(given: Any, what: object = 'generation_config.json') -> dict[str, Any]:
    """
    Return what a `GenerationConfig` changes, as plain data.

    :raises ImportModelError: if it asks for something that answers here would not have, or that
        cannot be.
    """
    plain = {key: value for key, value in given.to_dict().items() if value is not None}
    ends = plain.get('eos_token_id')
    found: dict[str, Any] = {'eos_token_id': [] if ends is None else
                             list(ends) if isinstance(ends, list | tuple) else [ends]}
    for key, neutral in GENERATION.items():
        if key in plain and plain[key] != neutral:
            found[key] = plain[key]
    for key in _OF_TOKENS:  # -1 says that there is none
        if isinstance(found.get(key), Sequence):
            found[key] = [token for token in found[key]
                          if not (isinstance(token, int) and token < 0)]
    unknown = sorted(key for key, neutral in _NOT_DONE.items()
                     if key in plain and plain[key] not in neutral)
    if unknown:
        raise ImportModelError(f'{what} asks for {", ".join(unknown)}, which answers here would '
                               'not have: remove it there')
    try:
        check_generation(found)
    except ManifestError as error:
        raise ImportModelError(f'{what}: {error}') from None
    return found


#: What of a generation configuration is done, and the value that changes nothing.
GENERATION: Mapping[str, Any] = {
    'temperature': 1.0, 'top_k': 0, 'top_p': 1.0, 'min_p': 0.0, 'repetition_penalty': 1.0,
    'max_new_tokens': None, 'max_length': None, 'min_new_tokens': 0, 'suppress_tokens': [],
    'begin_suppress_tokens': [], 'do_sample': None}
_OF_TOKENS = ('eos_token_id', 'suppress_tokens', 'begin_suppress_tokens')
#: What is not done, and the values that change nothing.
_NOT_DONE: Mapping[str, Collection[Any]] = {
    'num_beams': (1,), 'typical_p': (1.0,), 'epsilon_cutoff': (0.0,), 'eta_cutoff': (0.0,),
    'top_h': (), 'encoder_repetition_penalty': (1.0,), 'no_repeat_ngram_size': (0,),
    'bad_words_ids': ([],), 'forced_bos_token_id': (), 'forced_eos_token_id': (),
    'exponential_decay_length_penalty': (), 'sequence_bias': ({}, []), 'max_time': (),
    'encoder_no_repeat_ngram_size': (0,), 'token_healing': (False,),
    'guidance_scale': (1, 1.0), 'watermarking_config': (), 'stop_strings': ([],),
    'penalty_alpha': (0.0,), 'dola_layers': (), 'min_length': (0,), 'num_beam_groups': (1,),
    'diversity_penalty': (0.0,), 'constraints': (), 'force_words_ids': ()}


def _some(names: Sequence[str], verb: str = ' missing') -> str:
    """Return what is to be said of tensors: the first few by name."""
    more = f' and {len(names) - 2} more' if len(names) > 2 else ''
    are = f' {"are" if len(names) > 1 else "is"}{verb}' if verb else ''
    return f'{", ".join(names[:2])}{more}{are}'
