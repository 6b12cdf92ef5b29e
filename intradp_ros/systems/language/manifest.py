# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a language model consists of: blocks, each in a blob that is named by its SHA-256.

A decoder layer is two blocks, attention and then MLP, so that either may stay in
memory while the other is read from disk: block ``2 l`` is the attention of layer l,
block ``2 l + 1`` its MLP.  Embedding, head (the last norm, and the matrix where it is
not the embedding's) and tokenizer belong to the head device.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import json
from typing import Any

import torch

from intradp_ros.core.json_text import parse_json
from intradp_ros.core.limits import MAX_BLOB
from intradp_ros.systems.language.stored import Stored, STORED_TYPES, StoredType

FORMAT = 'language-model/2'
#: What was written before: tensors are float32, bfloat16 or float16.
OLD_FORMAT = 'language-model/1'
#: Tensors begin at multiples of this within a blob: aligned for any kernel.
ALIGNMENT = 64
MAX_LAYERS, MAX_TENSORS, MAX_CONTEXT, MAX_WIDTH = 1024, 64, 1 << 24, 1 << 24
#: Types that weights may be turned into.
DTYPES: Mapping[str, torch.dtype] = {
    name: stored.dtype for name, stored in STORED_TYPES.items() if stored.dtype}
#: All is computed in it; hidden states, keys and values are of it.
COMPUTED = torch.float32


#: What every configuration says.
_OF_ALL = frozenset(('hidden_size', 'max_position_embeddings', 'vocab_size', 'num_hidden_layers',
                     'num_attention_heads'))
#: Ends of an answer, and tokens that are not drawn; numbers of a generation configuration.
_MAX_ENDS, _MAX_SUPPRESSED = 256, 1 << 16
_RANGES: Mapping[str, tuple[float, float]] = {
    'temperature': (0.0, 100.0), 'top_k': (0, 1 << 30), 'top_p': (0.0, 1.0), 'min_p': (0.0, 1.0),
    'repetition_penalty': (1e-3, 1e3), 'max_new_tokens': (1, MAX_CONTEXT),
    'max_length': (1, 1 << 62), 'min_new_tokens': (0, MAX_CONTEXT)}


class ManifestError(ValueError):
    """A description of a language model that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor within a blob; `offset` in bytes."""

    name: str
    type: StoredType  # noqa: A003
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Return the bytes it takes."""
        return self.type.nbytes(self.shape)


@dataclass(frozen=True, slots=True)
class BlockFile:
    """A blob of `nbytes`, and the tensors in it."""

    digest: str
    nbytes: int
    tensors: tuple[TensorPlace, ...]

    @property
    def experts(self) -> int:
        """Return the experts of a mixture's block; 0 of others."""
        return max((t.shape[0] for t in self.tensors if len(t.shape) == 3), default=0)

    @property
    def expert_bytes(self) -> int:
        """Return the bytes of all experts."""
        return sum(t.nbytes for t in self.tensors if len(t.shape) == 3)

    def pieces(self, expert: int | None = None) -> list[tuple[int, int]]:
        """Return where an expert lies (offset, bytes); with None, what is of no expert."""
        if expert is None:
            return [(t.offset, t.nbytes) for t in self.tensors if len(t.shape) != 3]
        each = [(t, t.nbytes // t.shape[0]) for t in self.tensors if len(t.shape) == 3]
        return [(t.offset + expert * nbytes, nbytes) for t, nbytes in each]

    def views(self, data: torch.Tensor) -> dict[str, Stored]:
        """Return the tensors as views of a blob's bytes (flat, uint8)."""
        return {t.name: Stored(data[t.offset:t.offset + t.nbytes], t.type, t.shape)
                for t in self.tensors}


@dataclass(frozen=True)
class Manifest:
    """
    A model; `digest` is the SHA-256 of its text, and names it everywhere.

    `config` is that of `transformers`, as plain data, and `generation` what of a generation
    configuration differs from doing nothing.  `name` is for people: it is not part of the text.
    """

    name: str
    digest: str
    config: Mapping[str, Any]
    blocks: tuple[BlockFile, ...]
    embedding: BlockFile
    head: BlockFile
    tokenizer: BlockFile | None
    generation: Mapping[str, Any] = field(default_factory=dict)

    @property
    def layers(self) -> int:
        """Return the number of decoder layers."""
        return len(self.blocks) // 2

    @property
    def width(self) -> int:
        """Return the elements of a hidden state."""
        return int(self.config['hidden_size'])

    @property
    def hidden_bytes(self) -> int:
        """Return the bytes of one token's hidden state."""
        return self.width * COMPUTED.itemsize

    @property
    def context(self) -> int:
        """
        Return the most tokens of a request, prompt and answer together.

        Of positions whose frequencies change with the length it is the length before they change:
        keys and values of all lengths are computed alike.
        """
        most = int(self.config['max_position_embeddings'])
        given = self.config.get('rope_parameters') or self.config.get('rope_scaling')
        rope: Mapping[str, Any] = given if isinstance(given, dict) else {}
        kinds = [one for one in rope.values() if isinstance(one, dict)]  # one for a kind of layers
        for one in (rope, *kinds):
            if one.get('rope_type', one.get('type')) in ('longrope', 'su') \
                    and one.get('short_factor') != one.get('long_factor'):
                first = one.get('original_max_position_embeddings',
                                self.config.get('original_max_position_embeddings'))
                most = min(most, first) if type(first) is int and first > 0 else most
        return most

    def read_bytes(self, block: int) -> int:
        """Return the bytes of a block that a token reads: of experts, those that it uses."""
        file, used = self.blocks[block], int(self.config.get('num_experts_per_tok') or 0)
        return file.nbytes - sum(t.nbytes * max(0, t.shape[0] - used) // t.shape[0]
                                 for t in file.tensors if len(t.shape) == 3)

    @property
    def kv_heads(self) -> int:
        """Return the number of heads of keys and values."""
        return int(self.config.get('num_key_value_heads') or self.config['num_attention_heads'])

    @property
    def head_dim(self) -> int:
        """Return the elements of a head."""
        return int(self.config.get('head_dim')
                   or self.width // int(self.config['num_attention_heads']))

    @property
    def kv_bytes(self) -> int:
        """Return the bytes of keys and values that one token takes in one layer."""
        return 2 * self.kv_heads * self.head_dim * COMPUTED.itemsize

    @property
    def head_bytes(self) -> int:
        """Return the bytes that embedding and head take on the head device."""
        return self.embedding.nbytes + self.head.nbytes

    @property
    def digests(self) -> tuple[str, ...]:
        """Return the digests of all blobs: weights, tokenizer, and the text itself."""
        files = (*self.blocks, self.embedding, self.head, *filter(None, (self.tokenizer,)))
        return (self.digest, *(file.digest for file in files))

    @property
    def nbytes(self) -> int:
        """Return the bytes of all weights, as they are stored."""
        return self.head_bytes + sum(block.nbytes for block in self.blocks)

    @property
    def types(self) -> tuple[str, ...]:
        """Return the types of matrices; that of most bytes first."""
        nbytes: Counter[str] = Counter()
        for file in (*self.blocks, self.embedding, self.head):
            for tensor in file.tensors:
                nbytes[tensor.type.name] += tensor.nbytes if len(tensor.shape) > 1 else 0
        return tuple(name for name, count in nbytes.most_common() if count)


def manifest_text(config: Mapping[str, Any], blocks: Sequence[BlockFile], embedding: BlockFile,
                  head: BlockFile, tokenizer: BlockFile | None, generation: Mapping[str, Any],
                  ) -> str:
    """Return the text that describes a model, for `read_manifest`: equal models, equal texts."""
    return json.dumps({
        'format': FORMAT, 'config': dict(config),
        'blocks': [_to_json(block) for block in blocks], 'embedding': _to_json(embedding),
        'head': _to_json(head), 'tokenizer': tokenizer and _to_json(tokenizer),
        'generation': dict(generation)}, sort_keys=True)


def read_manifest(text: str, digest: str, name: str = '') -> Manifest:
    """
    Return the model that a text describes; nothing in it is trusted.

    Without a `name` it is called by its digest.

    :raises ManifestError: if it describes none.
    """
    try:
        data = parse_json(text)
        if data['format'] not in (FORMAT, OLD_FORMAT):
            raise ManifestError(f'format {str(data["format"])[:40]!r}, {FORMAT} is understood')
        blocks = tuple(_block(item) for item in _some(data['blocks'], 2 * MAX_LAYERS))
        tokenizer = data['tokenizer']
        config = data['config']
        manifest = Manifest(
            (name or f'model-{digest[:12]}')[:200], digest, config, blocks,
            _block(data['embedding']), _block(data['head']), tokenizer and _block(tokenizer),
            check_generation(data.get('generation', {})))
        layers = check_config(config)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ManifestError(f'no description of a language model: {type(error).__name__} '
                            f'{str(error)[:200]}') from None
    if len(blocks) != 2 * layers:
        raise ManifestError(f'{len(blocks)} blocks for {layers} layers')
    return manifest


def check_config(config: Mapping[str, Any]) -> int:
    """Return the layers of a configuration; ManifestError if a number in it is impossible."""
    if not isinstance(config, Mapping):
        raise ManifestError('no configuration')
    for key, most in (('hidden_size', MAX_WIDTH), ('max_position_embeddings', MAX_CONTEXT),
                      ('vocab_size', MAX_CONTEXT), ('num_hidden_layers', MAX_LAYERS),
                      ('num_attention_heads', MAX_WIDTH), ('num_key_value_heads', MAX_WIDTH),
                      ('head_dim', MAX_WIDTH), ('num_experts_per_tok', MAX_WIDTH)):
        if key in _OF_ALL or config.get(key) is not None:
            try:
                _count(config.get(key), most, int(key != 'num_experts_per_tok'))
            except ManifestError as error:
                raise ManifestError(f'{key}: {error}') from None
    heads = config['num_attention_heads']
    if heads % (config.get('num_key_value_heads') or heads):
        raise ManifestError(f'{heads} heads do not share {config["num_key_value_heads"]} of keys '
                            'and values evenly')
    return int(config['num_hidden_layers'])


def check_generation(data: Any) -> Mapping[str, Any]:
    """Return a generation configuration; ManifestError if a number in it is impossible."""
    for key, most in (('eos_token_id', _MAX_ENDS), ('suppress_tokens', _MAX_SUPPRESSED),
                      ('begin_suppress_tokens', _MAX_SUPPRESSED)):
        try:
            for token in _some(data.get(key, []), most):
                _count(token, MAX_CONTEXT, 0)
        except ManifestError as error:
            raise ManifestError(f'{key}: {error}') from None
    for key, (low, high) in _RANGES.items():
        kinds = (int,) if type(low) is int else (int, float)
        if key in data and not (type(data[key]) in kinds and low <= data[key] <= high):
            raise ManifestError(f'{key} is {repr(data[key])[:40]}, not within {low:g}..{high:g}')
    return dict(data)


def layout(tensors: Sequence[tuple[str, StoredType, tuple[int, ...]]],
           ) -> tuple[tuple[TensorPlace, ...], int]:
    """Return where tensors go in a blob, one after another, and the blob's bytes."""
    places, end = [], 0
    for name, type_, shape in tensors:
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        places.append(TensorPlace(name, type_, shape, offset))
        end = offset + places[-1].nbytes
    return tuple(places), end


def _to_json(block: BlockFile) -> dict[str, Any]:
    return {'digest': block.digest, 'bytes': block.nbytes, 'tensors': [
        [t.name, t.type.name, list(t.shape), t.offset] for t in block.tensors]}


def _block(data: Any) -> BlockFile:
    nbytes = _count(data['bytes'], MAX_BLOB)
    digest = data['digest']
    if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set('0123456789abcdef'):
        raise ManifestError('a blob that is not named by a SHA-256')
    places = tuple(TensorPlace(str(name)[:200], STORED_TYPES[type_], tuple(
        _count(size, MAX_BLOB) for size in _some(shape, 4)), _count(offset, MAX_BLOB, 0))
        for name, type_, shape, offset in _some(data['tensors'], MAX_TENSORS))
    for place in places:
        if place.offset % ALIGNMENT or place.offset + place.nbytes > nbytes:
            raise ManifestError(f'tensor {place.name[:40]!r} is not within its blob')
        if not place.shape or place.shape[-1] % place.type.block \
                or len(place.shape) == 1 and place.type.dtype is None:
            raise ManifestError(f'tensor {place.name[:40]!r} of {place.type.name} is not of whole '
                                'rows of blocks')
    return BlockFile(digest, nbytes, places)


def _some(items: Any, most: int) -> list[Any]:
    if not isinstance(items, list) or len(items) > most:
        raise ManifestError(f'no list of at most {most} entries')
    return items


def _count(item: Any, most: int, least: int = 1) -> int:
    if type(item) is not int or not least <= item <= most:
        raise ManifestError(f'{str(item)[:40]!r} is not a whole number in {least}..{most}')
    return item
