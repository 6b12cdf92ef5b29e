# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Weights as they are stored: the numbers of GGUF's own package, and sums of one order."""
from __future__ import annotations

from collections.abc import Iterator
import ctypes

import gguf
from hypothesis import given, settings
from hypothesis import strategies as st
from language_models import tiny_model
import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from intradp_ros.systems.language.block_math import KvPages, LaneRun
from intradp_ros.systems.language.kernels import Kernels, kernels, VectorView
from intradp_ros.systems.language.lanes import Lane, PAGE, Part
from intradp_ros.systems.language.stored import Stored, STORED_TYPES, StoredType

PLAIN = Kernels(None)
compiled = pytest.mark.skipif(kernels().library is None, reason='the kernels were not compiled')
each_type = pytest.mark.parametrize('name', sorted(STORED_TYPES))


def stored_as(type_: StoredType, rows: int, columns: int, seed: int = 0, *, wild: bool = False,
              ) -> Stored:
    """Return a random matrix; a wild one of any bits, otherwise of scales that weights have."""
    source = np.random.RandomState(seed)
    data = source.randint(0, 256, (rows * columns // type_.block, type_.block_bytes),
                          dtype=np.uint8)
    if type_.dtype is not None and not wild:
        return Stored.of(torch.from_numpy(
            source.randn(rows, columns).astype(np.float32)).to(type_.dtype))
    if not wild:
        scales = (source.randn(len(data), 2) * 0.01).astype(np.float16).view(np.uint8)
        if type_.name == 'q6_k':
            data[:, 208:210] = scales[:, :2]
        elif type_.name == 'mxfp4':
            data[:, 0] = source.randint(116, 123, len(data))
        elif type_.name in ('q4_1', 'q5_1', 'q4_k', 'q5_k'):
            data[:, :4] = scales
        else:
            data[:, :2] = scales[:, :2]
    return Stored(torch.from_numpy(data.reshape(-1)), type_, (rows, columns))


def expanded(stored: Stored) -> torch.Tensor:
    """Return what gguf's package makes of a matrix."""
    number = gguf.GGMLQuantizationType(stored.type.number)
    data = stored.data.numpy().reshape(stored.shape[0], -1)
    if stored.type.name == 'float16':
        data = data.view(np.float16)
    elif stored.type.name == 'float32':
        data = data.view(np.float32)
    with np.errstate(all='ignore'):
        return torch.from_numpy(gguf.dequantize(data, number).copy()).view(stored.shape)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of numbers; those of what is not a number are all the same."""
    return torch.where(tensor.isnan(), torch.nan, tensor).contiguous().view(torch.int32)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(bits(one), bits(other))


def widths(type_: StoredType) -> st.SearchStrategy[int]:
    """Return numbers of columns: whole blocks, and of plain numbers any."""
    return st.integers(1, 100) if type_.block == 1 else st.integers(1, 40 if type_.block < 256
                                                                    else 4).map(
        lambda blocks: blocks * type_.block)


@pytest.fixture
def lanes() -> Iterator[list[str]]:
    """Yield the kinds of lanes that this processor has; the best is used again afterwards."""
    library, found = kernels().library, []
    for number in range(4):
        if library.language_kernels_use(number):
            found.append(number)
    yield found
    library.language_kernels_use(found[0])


def test_the_types_are_those_of_gguf() -> None:
    for type_ in STORED_TYPES.values():
        number = gguf.GGMLQuantizationType(type_.number)
        assert gguf.GGML_QUANT_SIZES[number] == (type_.block, type_.block_bytes)
        assert type_.name == {'f16': 'float16', 'f32': 'float32', 'bf16': 'bfloat16'}.get(
            number.name.lower(), number.name.lower())


@each_type
@pytest.mark.parametrize('compute', [kernels(), PLAIN], ids=lambda each: each.name)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_floats_are_those_of_gguf_bit_for_bit(name, compute, data) -> None:
    type_ = STORED_TYPES[name]
    matrix = stored_as(type_, data.draw(st.integers(1, 5)), data.draw(widths(type_)),
                       data.draw(st.integers(0, 1000)), wild=data.draw(st.booleans()))
    wanted = expanded(matrix)
    assert same(compute.floats(matrix), wanted)
    ids = torch.tensor(data.draw(st.lists(st.integers(0, matrix.shape[0] - 1), max_size=4)),
                       dtype=torch.long)
    assert same(compute.rows(matrix, ids), wanted[ids])


@each_type
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_products_are_those_of_floats(name, data) -> None:
    type_ = STORED_TYPES[name]
    rows, tokens = data.draw(st.integers(1, 80)), data.draw(st.integers(1, 9))
    matrix = stored_as(type_, rows, data.draw(widths(type_)), data.draw(st.integers(0, 1000)))
    source = torch.Generator().manual_seed(rows)
    x = torch.randn(tokens, matrix.shape[1], generator=source)
    bias = Stored.of(torch.randn(rows, generator=source).to(
        data.draw(st.sampled_from((torch.float32, torch.bfloat16, torch.float16)))))
    wanted = x.double() @ expanded(matrix).double().T + bias.floats().double()
    size = x.double().abs() @ expanded(matrix).double().abs().T + bias.floats().double().abs()
    for compute in (kernels(), PLAIN):
        found = compute.product(x, matrix, bias)
        assert ((found - wanted).abs() <= 1e-6 * size).all()


@compiled
@each_type
def test_a_products_bits_do_not_depend_on_what_is_computed_with_it(name, lanes) -> None:
    library, compute, type_ = kernels().library, kernels(), STORED_TYPES[name]
    matrix = stored_as(type_, 77, 3 * 256 if type_.block > 1 else 203)
    floats = Stored.of(expanded(matrix))
    x = torch.randn(31, matrix.shape[1], generator=torch.Generator().manual_seed(1))
    wanted = compute.product(x, matrix)
    threads = torch.get_num_threads()
    try:
        for number in lanes:
            library.language_kernels_use(number)
            for count in (1, 2, 3):
                torch.set_num_threads(count)
                for tokens in range(1, 32):
                    begin = tokens % (32 - tokens)
                    found = compute.product(x[begin:begin + tokens], matrix)
                    assert torch.equal(found, wanted[begin:begin + tokens])
                assert torch.equal(compute.product(x, floats), wanted)
    finally:
        torch.set_num_threads(threads)
    for row in (0, 40, 76):
        assert torch.equal(compute.product(x, matrix.rows(row, row + 1))[:, 0], wanted[:, row])


@pytest.mark.parametrize('compute', [kernels(), PLAIN], ids=lambda each: each.name)
def test_norms_and_activations(compute) -> None:
    source = torch.Generator().manual_seed(2)
    for width in (1, 7, 16, 50):
        x = torch.randn(5, width, generator=source) * 3
        for dtype in (torch.float32, torch.bfloat16):
            weight = Stored.of(torch.randn(width, generator=source).to(dtype))
            for offset in (0.0, 1.0):
                wanted = F.rms_norm(x.double(), (width,), weight.floats().double() + offset, 1e-5)
                assert torch.allclose(compute.norm(x, weight, 1e-5, offset), wanted.float(),
                                      rtol=1e-6, atol=1e-6)
    x = torch.cat((torch.linspace(-100, 100, 4001), torch.linspace(-1, 1, 4001),
                   torch.tensor([0.0, -0.0, 1e-30, -1e30, 1e30])))
    for kind, wanted in ((0, F.silu(x.double())), (1, F.gelu(x.double(), approximate='tanh'))):
        assert torch.allclose(compute.activated(kind, x), wanted.float(), rtol=2e-6, atol=5e-7)
    assert torch.allclose(compute.capped(x, 30.0), (torch.tanh(x.double() / 30) * 30).float(),
                          rtol=2e-6, atol=0)


@compiled
def test_functions_of_numbers_have_the_same_bits_with_all_lanes(lanes) -> None:
    library, compute = kernels().library, kernels()
    x = torch.cat((torch.linspace(-90, 90, 999), torch.linspace(-1, 1, 1000))) * 1.1
    weight = Stored.of(torch.linspace(-1, 2, len(x)))
    found = []
    for number in lanes:
        library.language_kernels_use(number)
        found.append((compute.norm(x, weight, 1e-6, 1.0), compute.activated(0, x),
                      compute.activated(1, x), compute.capped(x, 20.0)))
        for k in (0, 1, 15, 16, 1000):
            assert torch.equal(compute.activated(0, x[k:k + 5]), found[-1][1][k:k + 5])
    assert len(found) > 1
    for others in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], others))


@pytest.fixture(scope='module')
def manifests(tmp_path_factory):
    return [tiny_model(tmp_path_factory.mktemp('blobs'), num_attention_heads=heads,
                       num_key_value_heads=groups, head_dim=dim, hidden_size=heads * dim)[0]
            for heads, groups, dim in ((6, 2, 8), (4, 1, 24), (5, 5, 40), (7, 1, 64), (8, 2, 80))]


def kept(manifest, seed: int) -> KvPages:
    """Return 40 pages of random keys and values."""
    pages = KvPages(manifest, (0,), 40)
    for each in pages.layers[0]:
        each.copy_(torch.randn(each.shape, generator=torch.Generator().manual_seed(seed)))
    return pages


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_attention_sees_its_own_requests_keys(manifests, data) -> None:
    manifest = data.draw(st.sampled_from(manifests))
    heads, dim = manifest.config['num_attention_heads'], manifest.head_dim
    numbers = data.draw(st.permutations(range(40)))
    parts, taken = [], 0
    for _ in range(data.draw(st.integers(1, 4))):
        start, count = data.draw(st.integers(0, 60)), data.draw(st.integers(1, 40))
        pages = -(-(start + count) // PAGE)
        parts.append(Part(start, count, tuple(numbers[taken:taken + pages])))
        taken += pages
    cache = kept(manifest, taken)
    lane = Lane(tuple(parts))
    queries = torch.randn(heads, lane.tokens, dim, generator=torch.Generator().manual_seed(taken))
    window = data.draw(st.sampled_from((None, 1, 5, 17, 50)))
    cap = data.draw(st.sampled_from((None, 2.0)))
    scaling = dim ** -0.5
    sinks = data.draw(st.sampled_from((None, 0.0, -30.0, 60.0)))
    sinks = None if sinks is None else Stored.of(
        (sinks + torch.arange(heads) / 2).to(data.draw(st.sampled_from(
            (torch.float32, torch.bfloat16)))))
    wanted, row = [], 0
    for part in parts:
        keys, values = (torch.cat([each[:, page * PAGE:page * PAGE + PAGE] for page in part.pages],
                                  1).double().repeat_interleave(heads // each.shape[0], 0)
                        for each in cache.layers[0])
        for position in range(part.start, part.stop):
            first = 0 if window is None else max(0, position - window + 1)
            scores = (keys[:, first:position + 1] @ queries[:, row].double().unsqueeze(-1)
                      ).squeeze(-1) * scaling
            if cap is not None:
                scores = torch.tanh(scores / cap) * cap
            if sinks is not None:
                scores = torch.cat([scores, sinks.floats().double().unsqueeze(-1)], -1)
            weights = torch.softmax(scores, -1)[:, :position + 1 - first].unsqueeze(1)
            wanted.append((weights @ values[:, first:position + 1]).squeeze(1))
            row += 1
    for compute in (kernels(), PLAIN):
        found = compute.attend(LaneRun(lane, cache), 0, queries, scaling, window, cap, sinks)
        assert torch.allclose(found, torch.stack(wanted).float(), atol=2e-6)
    if kernels().library:
        whole, row = kernels().attend(
            LaneRun(lane, cache), 0, queries, scaling, window, cap, sinks), 0
        for part in parts:  # token by token
            for position in range(part.start, part.stop):
                one = Lane((Part(position, 1, part.pages),))
                assert torch.equal(kernels().attend(
                    LaneRun(one, cache), 0, queries[:, row:row + 1], scaling, window, cap,
                    sinks)[0],
                    whole[row])
                row += 1


@compiled
def test_attention_has_the_same_bits_with_all_lanes_and_threads(manifests, lanes) -> None:
    threads = torch.get_num_threads()
    try:
        for manifest in manifests:
            cache = kept(manifest, 3)
            run = LaneRun(Lane((Part(90, 30, tuple(range(9, 17))),)), cache)
            queries = torch.randn(manifest.config['num_attention_heads'], 30, manifest.head_dim,
                                  generator=torch.Generator().manual_seed(5))
            found = []
            for number in lanes:
                kernels().library.language_kernels_use(number)
                for count in (1, 2, 3):
                    torch.set_num_threads(count)
                    found.append(kernels().attend(run, 0, queries, 0.2, 70, None, Stored.of(
                        torch.ones(len(queries)))))
            assert all(torch.equal(found[0], other) for other in found[1:])
    finally:
        torch.set_num_threads(threads)


@compiled
def test_a_vector_may_be_absent() -> None:
    assert VectorView.of(None).data is None
    assert ctypes.sizeof(VectorView) == 24
