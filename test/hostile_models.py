# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Files of models that lie: of each kind one by name, and any number by chance.

They are made from a good file, of which `gguf` and `json` say what is in it, not our own readers.
"""
from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
import ctypes
from dataclasses import dataclass
import gc
import json
import math
from pathlib import Path
import random
import struct
import time
from typing import Any

import gguf

from intradp_ros.blobs.store import BlobStore
from intradp_ros.systems.language.checkpoint import ImportModelError
from intradp_ros.systems.language.families import FamilyError
from intradp_ros.systems.language.fused_blocks import make_blocks
from intradp_ros.systems.language.opened import imported

U32, TEXT, LIST, U64, F32, U8, I32 = 4, 8, 9, 10, 6, 0, 5
HUGE = (1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


@dataclass
class Gguf:
    """A file: entries by key (type and value as written), tensors (name, sizes, type, offset)."""

    values: list[tuple[bytes, bytes]]
    tensors: list[tuple[bytes, list[int], int, int]]
    data: bytes
    start: bytes = b'GGUF' + struct.pack('<I', 3)
    counts: tuple[int, int] | None = None

    @classmethod
    def read(cls, path: Path) -> Gguf:
        """Return what the package gguf finds in a file."""
        reader = gguf.GGUFReader(path)
        values = [(key.encode(), b''.join(part.tobytes() for part in field.parts[2:]))
                  for key, field in reader.fields.items() if not key.startswith('GGUF.')]
        tensors = [(each.name.encode(), each.shape.tolist(), int(each.tensor_type),
                    each.data_offset - reader.data_offset) for each in reader.tensors]
        return cls(values, tensors, path.read_bytes()[reader.data_offset:])

    def say(self, key: str, kind: int, value: bytes) -> None:
        """Put an entry in the place of what was there."""
        name = key.encode()
        self.values = [one for one in self.values if one[0] != name]
        self.values.append((name, struct.pack('<I', kind) + value))

    def tensor(self, number: int = 3, *, name: bytes | None = None, shape: list[int] | None = None,
               kind: int | None = None, offset: int | None = None) -> None:
        """Say something else of a tensor."""
        old = self.tensors[number]
        given = (name, shape, kind, offset)
        self.tensors[number] = tuple(  # type: ignore[assignment]
            before if new is None else new for before, new in zip(old, given))

    def written(self) -> bytes:
        """Return the file."""
        counts = self.counts or (len(self.tensors), len(self.values))
        head = self.start + struct.pack('<QQ', *counts)
        head += b''.join(text(key) + value for key, value in self.values)
        for name, shape, kind, offset in self.tensors:
            head += text(name) + struct.pack(f'<I{len(shape)}Q', len(shape), *shape)
            head += struct.pack('<IQ', kind, offset)
        return head + bytes(-len(head) % 32) + self.data


def text(content: bytes) -> bytes:
    """Return a text as GGUF has it."""
    return struct.pack('<Q', len(content)) + content


def listed(kind: int, count: int, content: bytes = b'') -> bytes:
    """Return a list as GGUF has it."""
    return struct.pack('<IQ', kind, count) + content


def number(value: int) -> bytes:
    """Return 32 bits."""
    return struct.pack('<I', value)


FIRST = 'blk.0.attn_norm.weight|blk.0.*|token_embd.weight'
Change = Callable[[Gguf], object]
#: What is changed in a good GGUF file, and what is said of it.
GGUFS: dict[str, tuple[Change, str]] = {
    '2^63 tensors': (lambda f: setattr(f, 'counts', (1 << 63, 1)), 'tensors; at most'),
    '2^63 values': (lambda f: setattr(f, 'counts', (1, 1 << 63)), 'values; at most'),
    'more tensors than there are': (lambda f: setattr(f, 'counts', (60000, len(f.values))), ''),
    'version': (lambda f: setattr(f, 'start', b'GGUF' + number(1)), 'version 1'),
    'big endian': (lambda f: setattr(f, 'start', b'GGUF\0\0\0\3'), 'highest byte'),
    'sizes whose product wraps': (lambda f: f.tensor(shape=[1 << 32, 1 << 32]), 'blk.0'),
    'sizes whose product is 1': (lambda f: f.tensor(shape=[(1 << 64) - 1, (1 << 64) - 1]),
                                 'blk.0'),
    'a size of 2^63': (lambda f: f.tensor(shape=[1 << 63]), 'blk.0'),
    'a negative size': (lambda f: f.tensor(shape=[(1 << 64) - 32, 32]), 'blk.0'),
    'a size of 0': (lambda f: f.tensor(shape=[0, 32]), 'blk.0'),
    'no sizes': (lambda f: f.tensor(shape=[]), 'blk.0.*0 dimensions'),
    'five sizes': (lambda f: f.tensor(shape=[1] * 5), 'blk.0.*5 dimensions'),
    'an offset outside': (lambda f: f.tensor(offset=len(f.data)), 'blk.0.*that there are'),
    'an offset that wraps': (lambda f: f.tensor(offset=(1 << 64) - 32), 'blk.0.*that there are'),
    'an odd offset': (lambda f: f.tensor(offset=f.tensors[3][3] + 1), 'blk.0.*truncated'),
    'two in one place': (lambda f: f.tensor(offset=f.tensors[4][3]), 'begins at .* ends at'),
    'one reaches into the next': (lambda f: f.tensor(4, offset=f.tensors[3][3] + 32),
                                  'begins at .* ends at'),
    'one name twice': (lambda f: f.tensor(name=f.tensors[4][0]), 'two tensors blk.0'),
    'one key twice': (lambda f: f.values.append(f.values[1]), 'two values'),
    'a key of two lines': (lambda f: f.values.append((b'a\n\x1b[2Jb', number(99))), 'a[?]+'),
    'a name that is no text': (lambda f: f.tensor(name=b'\xff\xfe'), 'UTF-8'),
    'a key that is no text': (lambda f: f.values.append((b'\xff', number(U32) * 2)), 'UTF-8'),
    'a long name': (lambda f: f.tensor(name=b'x' * 100000), 'name of a tensor of 100000 bytes'),
    'a long key': (lambda f: f.values.append((b'x' * 100000, number(U32) * 2)), 'a key of'),
    'rows that are not whole blocks': (lambda f: f.tensor(shape=[33, 2], kind=2), 'whole blocks'),
    'rows shorter than a block': (lambda f: f.tensor(shape=[32, 2], kind=12), 'blk.0.*256 each'),
    'an unknown type': (lambda f: f.tensor(kind=77), 'blk.0.*type 77'),
    'a type that is not read': (lambda f: f.tensor(kind=16), 'blk.0.*IQ2_XXS'),
    'another type': (lambda f: f.tensor(kind=8), 'begins at .*blk.0'),
    'a text of 2^62': (lambda f: f.say('x', TEXT, struct.pack('<Q', 1 << 62)), 'truncated'),
    'a list of 2^61': (lambda f: f.say('x', LIST, listed(U64, 1 << 61)), 'x: a list'),
    'a list of 2^40 texts': (lambda f: f.say('x', LIST, listed(TEXT, 1 << 40)), 'x: a list'),
    'a list of a million texts': (lambda f: f.say('x', LIST, listed(TEXT, 1 << 20)), 'truncated'),
    'a long list': (lambda f: f.say('x', LIST, listed(U8, 3 << 20, bytes(3 << 20))), 'x: a list'),
    'lists in lists': (lambda f: f.say('x', LIST, listed(LIST, 1) * 50000), 'x: a list.*within'),
    'many empty lists': (lambda f: f.say('x', LIST, listed(LIST, 1 << 22) + listed(U8, 0) * 9),
                         'x: a list'),
    'a list of nothing known': (lambda f: f.say('x', LIST, listed(99, 1)), 'unknown type 99'),
    'a value of nothing known': (lambda f: f.say('x', 99, b''), 'x: a value of the unknown'),
    'a text that is none': (lambda f: f.say('x', TEXT, text(b'\xff')), 'x: a text'),
    **{f'an alignment of {each}': (lambda f, each=each: f.say(  # type: ignore[misc]
        'general.alignment', U32, number(each)), 'alignment') for each in (0, 3, 1 << 31)},
    'an alignment in words': (lambda f: f.say('general.alignment', TEXT, text(b'32')),
                              'alignment'),
    'no architecture': (lambda f: f.say('general.architecture', U32, number(7)), ''),
    'a folder as architecture': (lambda f: f.say('general.architecture', TEXT, text(b'../x')), ''),
    **{f'{each} layers': (lambda f, each=each: f.say(  # type: ignore[misc]
        'llama.block_count', U32, number(each)), 'block_count is')
       for each in (0, 1025, (1 << 32) - 1)},
    '-1 layers': (lambda f: f.say('llama.block_count', I32, struct.pack('<i', -1)), 'is -1'),
    'layers in words': (lambda f: f.say('llama.block_count', TEXT, text(b'4')), 'not a number'),
    'layers in parts': (lambda f: f.say('llama.block_count', F32, struct.pack('<f', 4)), 'is 4.0'),
    'layers by layer': (lambda f: f.say('llama.block_count', LIST, listed(U32, 1, number(4))),
                        'not a number'),
    'more layers': (lambda f: f.say('llama.block_count', U32, number(1000)),
                    'layer 4 is missing of a llama'),
    **{f'{key} {each}': (lambda f, key=key, each=each: f.say(  # type: ignore[misc]
        f'llama.{key}', U32, number(each)), '')
       for key in ('embedding_length', 'attention.head_count', 'attention.head_count_kv',
                   'context_length', 'feed_forward_length', 'attention.key_length')
       for each in (0, 3, (1 << 32) - 1) if (key, each) != ('context_length', 3)},
    'an end that is a text': (lambda f: f.say('tokenizer.ggml.eos_token_id', TEXT, text(b'x')),
                              ''),
    'an end beyond all': (lambda f: f.say('tokenizer.ggml.eos_token_id', U32,
                                          number((1 << 32) - 1)), 'eos_token_id'),
    'files in words': (lambda f: f.say('split.count', TEXT, text(b'two')), ''),
    'files without end': (lambda f: f.say('split.count', U64, struct.pack('<Q', 1 << 63)),
                          'join them'),
    'scaling by a number': (lambda f: f.say('llama.rope.scaling.type', U32, number(1)), 'scales'),
    'scaling without a factor': (lambda f: f.say('llama.rope.scaling.type', TEXT, text(b'linear')),
                                 'factor'),
    **{f'scaling by {name}': (lambda f, kind=kind, value=value: f.say(  # type: ignore[misc]
        'llama.rope.scaling.factor', kind, value), 'factor') for name, kind, value in (
            ('NaN', F32, struct.pack('<f', math.nan)), ('-4', F32, struct.pack('<f', -4)),
            ('no end', F32, struct.pack('<f', math.inf)), ('a text', TEXT, text(b'four')),
            ('a list', LIST, listed(U32, 1, number(4))))},
    'experts without end': (lambda f: f.say('llama.expert_count', U32, number((1 << 32) - 1)), ''),
    'divisors of no head': (lambda f: f.tensor(name=b'rope_freqs.weight'), 'rope_freqs.weight'),
    'tokens that are numbers': (lambda f: f.say('tokenizer.ggml.tokens', LIST, listed(
        U32, 97, number(1) * 97)), ''),
}

#: Changes a description of tensors (a dict) and gives the bytes of the file, of those before.
Described = Callable[[dict[str, Any]], object]


def safetensors(header: object, data: bytes, size: int | None = None) -> bytes:
    """Return a file with a description; a text is taken as it is."""
    said = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack('<Q', len(said) if size is None else size) + said + data


def parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return description and data of a good file."""
    size = int.from_bytes(content[:8], 'little')
    header = json.loads(content[8:8 + size])
    header.pop('__metadata__', None)
    return header, content[8 + size:]


UP = 'model.layers.1.mlp.up_proj.weight'
TENSORS: dict[str, tuple[Described, str]] = {
    **{f'{key} {str(each)[:30]}': (lambda h, key=key, each=each: h[UP].update(  # type: ignore
        {key: each}), 'up_proj') for key, values in {
            'shape': ([-1, 32], [1 << 63, 2], [1 << 32, 1 << 32], [0, 32], [48.0, 32], '48',
                      [True, 32], [[48], 32], [1] * 9, None, [48, 31], [1 << 200], []),
            'data_offsets': ([-4, 6140], [0, 1 << 63], [6144, 0], [0, 1], [0], [0, 6144, 0],
                             ['0', '6144'], None, [1 << 70, 1 << 71], [0.0, 6144.0]),
            'dtype': (7, None, ['F32'], 'F64', 'F8_E4M3', 'I32', 'x' * 100000)}.items()
       for each in values},
    'nothing': (lambda h: h.update({UP: None}), 'up_proj'),
    'a number': (lambda h: h.update({UP: 3}), 'up_proj'),
    'no dtype': (lambda h: h[UP].pop('dtype'), 'up_proj'),
    'two in one place': (lambda h: h.update({'x': h[UP]}), 'follows'),
    'a gap': (lambda h: h.pop(UP), 'follows|described'),
    'a tensor of nothing': (lambda h: h.update({'x': {
        'dtype': 'F32', 'shape': [0], 'data_offsets': [0, 0]}}), 'x .*does not read|follows'),
    'many of nothing': (lambda h: h.update({f'x{n}': {
        'dtype': 'F32', 'shape': [0], 'data_offsets': [0, 0]} for n in range(50000)}), 'at most'),
}
RAW: dict[str, tuple[Callable[[dict[str, Any], bytes], bytes], str]] = {
    'a description of 2^63': (lambda h, d: safetensors(h, d, 1 << 63), 'truncated'),
    'a description of all': (lambda h, d: safetensors(h, d, len(d)), ''),
    'a description of nothing': (lambda h, d: safetensors(h, d, 0), 'no description'),
    'a long description': (lambda h, d: safetensors(
        json.dumps(h).encode() + b' ' * (17 << 20), d), 'at most'),
    'a list': (lambda h, d: safetensors([h], d), 'no description'),
    'words': (lambda h, d: safetensors(b'hello', d), 'no description'),
    'no text': (lambda h, d: safetensors(b'\xff' * 9, d), 'no description'),
    'lists in lists': (lambda h, d: safetensors(b'[' * 100000, d), 'no description'),
    'objects in objects': (lambda h, d: safetensors(b'{"a":' * 100000, d), 'no description'),
    'one name twice': (lambda h, d: safetensors(json.dumps(h)[:-1].encode() + b', ' + json.dumps(
        {UP: {**h[UP], 'shape': [32, 48]}})[1:].encode(), d), f'two tensors {UP}'),
    'a long number': (lambda h, d: safetensors(b'{"x": ' + b'9' * 100000 + b'}', d),
                      'no description'),
    'more bytes than are described': (lambda h, d: safetensors(h, d + b'x'), 'are described'),
    'fewer': (lambda h, d: safetensors(h, d[:-1]), 'that there are'),
    'nothing': (lambda h, d: b'', 'truncated'),
    'seven bytes': (lambda h, d: b'\0' * 7, 'truncated'),
}
#: Keys of configurations, values that none has.
CONFIGS: dict[str, tuple[Any, ...]] = {
    'num_hidden_layers': (0, -1, 1025, 1 << 31, 1 << 63, '4', 4.5, 1e300, None, [4], True),
    'hidden_size': (0, -1, 3, 1 << 31, 1 << 62, 1 << 200, '32', None, [32]),
    'intermediate_size': (0, -1, 1 << 62, 1 << 100, 'x', [1]),
    'num_attention_heads': (0, -1, 3, 1 << 62, '4', []),
    'num_key_value_heads': (0, -1, 3, 1 << 62, 'x'),
    'vocab_size': (0, -1, 1 << 62, 'x', 96, []),
    'head_dim': (-8, 7, 1 << 62, 'x'), 'max_position_embeddings': (0, -1, 1 << 62, 'x', []),
    'rope_parameters': ('x', {'rope_type': 'no'}, []),
    'layer_types': (['full_attention'] * 100000, 'x', [1]),
    'text_config': ({'num_hidden_layers': 1 << 40},), 'vision_config': ({'layers': 1 << 40},),
    'eos_token_id': ([-5], 1 << 62, 'x', list(range(1000)), {'a': 1}),
    'model_type': (7, None, ['llama'], 'x' * 100000, '../x'), 'hidden_act': ('no', 7, ['silu']),
    'tie_word_embeddings': ('x', [1]), 'rms_norm_eps': ('x', [1]),
    'x': ('x' * (5 << 20), 10 ** 400)}
INDICES: dict[str, tuple[Any, str]] = {
    **{f'a file {name!r}'[:40]: (name, 'not a file of safetensors in its folder') for name in (
        '../x.safetensors', '/etc/x.safetensors', 'a/b.safetensors', '..', '.', '',
        'x\0.safetensors', '..\\x.safetensors', 7, None, ['a.safetensors'], 'config.json')},
    'a file that is not there': ('x.safetensors', 'is missing')}


def outcome(source: Path, folder: Path) -> tuple[str, float, float]:
    """
    Import a model; return why it is refused ('' if not), the MB that it takes, and the seconds.

    What is not refused can be computed.

    Raises
    ------
    AssertionError
        If something of a refused one is left in its store.
    Exception
        Whatever is not a refusal.

    """
    store, said, start = BlobStore(folder, 1 << 40), '', time.perf_counter()
    before = begin_peak()
    try:
        make_blocks(imported(source, store))
    except (ImportModelError, FamilyError) as error:
        said = str(error)
        assert '\n' not in said and len(said) < 2000, said
    seconds, grown = time.perf_counter() - start, max(0, status('VmHWM') - before)
    left = sorted(path.name for path in folder.glob('*')) if folder.exists() else []
    assert not said or not left, f'{said}: {left} stay in the store'
    for path in left:
        (folder / path).unlink()
    return said, grown / 1e6, seconds


def begin_peak() -> int:
    """Begin to look for the most memory; return what is in use now, in bytes."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # else what was freed before is taken again, and not seen
    Path('/proc/self/clear_refs').write_text('5')
    return status('VmRSS')


def status(key: str) -> int:
    """Return what the system says of this process, in bytes."""
    for line in Path('/proc/self/status').read_text().splitlines():
        if line.startswith(key):
            return 1024 * int(line.split()[1])
    raise KeyError(key)


def take_memory() -> int:
    """Return by how many bytes the peak grows where 100 MB are taken and freed."""
    before = begin_peak()
    held = bytearray(100_000_000)
    held[::4096] = bytes(len(held[::4096]))
    del held
    return status('VmHWM') - before


def any_gguf(good: Gguf, source: random.Random) -> bytes:
    """Return a file of which some numbers are others."""
    file = deepcopy(good)
    for _ in range(source.choice((0, 1, 1, 2, 3))):
        what = source.randrange(4)
        if what == 0:
            key, value = source.choice(file.values)
            kind = source.choice((*range(13), 99))
            size = source.choice((*HUGE, 0, 1, 3, len(value)))
            file.say(key.decode(), kind, source.choice((
                struct.pack('<Q', size), listed(source.randrange(14), size), value[4:],
                text(source.randbytes(9)), source.randbytes(8))))
        elif what == 1:
            at = source.randrange(len(file.tensors))
            shape = list(file.tensors[at][1])
            shape[source.randrange(len(shape))] = source.choice((*HUGE, 0, 1, 31, 33, 64))
            file.tensor(at, shape=shape)
        elif what == 2:
            file.tensor(source.randrange(len(file.tensors)), offset=source.choice(
                (*HUGE, 0, 32, 64, 1, source.randrange(len(file.data)) // 32 * 32)))
        else:
            file.tensor(source.randrange(len(file.tensors)), kind=source.choice(range(40)))
    data = bytearray(file.written())
    if source.random() < 0.5:
        at = source.randrange(len(data) - len(file.data))
        data[at:at + source.randrange(9)] = source.choice((
            source.randbytes(source.randrange(9)), struct.pack('<Q', source.choice(HUGE))))
    return bytes(data[:source.randrange(len(data))] if source.random() < 0.1 else data)


def any_json(good: Any, source: random.Random) -> Any:
    """Return a JSON value of which one part is another."""
    strange: tuple[Any, ...] = (None, True, -1, 0, 1, 3, 1e300, 0.5, float('nan'), '', 'x', [], {},
                                [[]], 'x' * 5000, 10 ** 50, -(1 << 63), *HUGE)
    if isinstance(good, dict) and good and source.random() < 0.9:
        key = source.choice(list(good))
        if source.random() < 0.1:
            return {name: value for name, value in good.items() if name != key}
        return {**good, key: any_json(good[key], source)}
    if isinstance(good, list) and good and source.random() < 0.7:
        at = source.randrange(len(good))
        return [*good[:at], any_json(good[at], source), *good[at + source.randrange(2):]]
    return source.choice(strange)
