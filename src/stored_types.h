// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

// How elements are stored, and how they become floats: exactly those that GGUF's own package
// makes of them.  Products of scale and whole number are exact in float, so that a sum with the
// least value is rounded once, by a fused multiplication.
//
// A type is decoded in steps of `kStep` elements.  Steps of a row are taken in spans, for which
// scales are made floats first.
#pragma once

namespace
{

template<int kBytes>
struct Plain
{
  static constexpr int kStep = 16, kBlock = 1, kBlockBytes = kBytes, kSpan = 1 << 30;
  static constexpr int kScales = 1;
  INLINE void scales(const uint8_t *, int, float *) {}
};

struct F32 : Plain<4>
{
  INLINE V load16(const uint8_t * p) {return load(reinterpret_cast<const float *>(p));}
  INLINE V load_some(const uint8_t * p, int n) {return load(reinterpret_cast<const float *>(p), n);}
};

template<V (* kLoad)(const uint8_t *)>
struct Half : Plain<2>
{
  INLINE V load16(const uint8_t * p) {return kLoad(p);}
  INLINE V load_some(const uint8_t * p, int n)
  {
    uint8_t all[32] = {};
    __builtin_memcpy(all, p, 2 * n);
    return kLoad(all);
  }
};
using F16 = Half<load_f16>;
using BF16 = Half<load_bf16>;

/// Blocks of 32 elements with a float16 scale; kSpan of them have 16 scales (and 16 least values).
template<int kBytes, bool kLeast>
struct Block32
{
  static constexpr int kStep = 32, kBlock = 32, kBlockBytes = kBytes, kSpan = 16 * 32;
  static constexpr int kScales = 32;
  INLINE void scales(const uint8_t * p, int steps, float * out)
  {
    if (kLeast) {
      pairs_of_halves(p, kBytes, steps, out, out + 16);
    } else {
      halves(p, kBytes, steps, out);
    }
  }
};

struct Q8_0 : Block32<34, false>
{
  INLINE void decode(const uint8_t * p, int step, const float * scales, V * w)
  {
    const uint8_t * block = p + 34 * step + 2;
    const V d = set(scales[step]);
    w[0] = mul(to_float(load_i8(block)), d);
    w[1] = mul(to_float(load_i8(block + 16)), d);
  }
};

struct Q4_0 : Block32<18, false>
{
  INLINE void decode(const uint8_t * p, int step, const float * scales, V * w)
  {
    const I both = load_u8(p + 18 * step + 2);
    const Table table = Table::centred(scales[step]);
    w[0] = table.of(both);
    w[1] = table.of(right(both, 4));
  }
};

struct Q4_1 : Block32<20, true>
{
  INLINE void decode(const uint8_t * p, int step, const float * scales, V * w)
  {
    const I both = load_u8(p + 20 * step + 4);
    const Table table = Table::affine(scales[step], scales[16 + step]);
    w[0] = table.of(both);
    w[1] = table.of(right(both, 4));
  }
};

/// Return the 32 numbers of five bits: the fifth ones first, then the others.
INLINE void five_bits(const uint8_t * p, I & first, I & second)
{
  uint32_t fifth;
  __builtin_memcpy(&fifth, p, 4);
  const I both = load_u8(p + 4);
  first = either(bits(both, 15), of_bits(fifth & 0xffff, 16));
  second = either(right(both, 4), of_bits(fifth >> 16, 16));
}

struct Q5_0 : Block32<22, false>
{
  INLINE void decode(const uint8_t * p, int step, const float * scales, V * w)
  {
    I first, second;
    five_bits(p + 22 * step + 2, first, second);
    const V d = set(scales[step]);
    w[0] = mul(to_float(minus(first, 16)), d);
    w[1] = mul(to_float(minus(second, 16)), d);
  }
};

struct Q5_1 : Block32<24, true>
{
  INLINE void decode(const uint8_t * p, int step, const float * scales, V * w)
  {
    I first, second;
    five_bits(p + 24 * step + 4, first, second);
    const V d = set(scales[step]), m = set(scales[16 + step]);
    w[0] = fma(to_float(first), d, m);
    w[1] = fma(to_float(second), d, m);
  }
};

/// Blocks of 256 elements: eight parts of 32, each with a scale and a least value of six bits.
template<int kBytes>
struct Parts
{
  static constexpr int kStep = 64, kBlock = 256, kBlockBytes = kBytes, kSpan = 256;
  static constexpr int kScales = 32;
  INLINE void scales(const uint8_t * p, int, float * out)
  {
    uint32_t word[3], each[4];
    __builtin_memcpy(word, p + 4, 12);
    each[0] = word[0] & 0x3f3f3f3f;
    each[1] = (word[2] & 0x0f0f0f0f) | (word[0] >> 2 & 0x30303030);
    each[2] = word[1] & 0x3f3f3f3f;
    each[3] = (word[2] >> 4 & 0x0f0f0f0f) | (word[1] >> 2 & 0x30303030);
    uint8_t bytes[16];
    __builtin_memcpy(bytes, each, 16);
    const V numbers = to_float(load_u8(bytes));
    store(out, mul(numbers, set(half(p))));
    store(out + 16, mul(numbers, set(-half(p + 2))));  // scales in 0..7, leasts in 24..31
  }
};

struct Q4_K : Parts<144>
{
  INLINE void decode(const uint8_t * p, int step, const float * scales, V * w)
  {
    const uint8_t * q = p + 16 + 32 * step;
    const Table first = Table::affine(scales[2 * step], scales[24 + 2 * step]);
    const Table second = Table::affine(scales[2 * step + 1], scales[25 + 2 * step]);
    const I low = load_u8(q), high = load_u8(q + 16);
    w[0] = first.of(low);
    w[1] = first.of(high);
    w[2] = second.of(right(low, 4));
    w[3] = second.of(right(high, 4));
  }
};

struct Q5_K : Parts<176>
{
  INLINE void decode(const uint8_t * p, int step, const float * scales, V * w)
  {
    const uint8_t * fifth = p + 16, * q = p + 48 + 32 * step;
    for (int k = 0; k < 2; ++k) {
      const I four = load_u8(q + 16 * k), one = right(load_u8(fifth + 16 * k), 2 * step);
      const I low = either(bits(four, 15), left(bits(one, 1), 4));
      const I high = either(right(four, 4), left(bits(one, 2), 3));
      w[k] = fma(to_float(low), set(scales[2 * step]), set(scales[24 + 2 * step]));
      w[2 + k] = fma(to_float(high), set(scales[2 * step + 1]), set(scales[25 + 2 * step]));
    }
  }
};

/// Blocks of 256 elements: sixteen parts of 16, each with a scale of eight bits.
struct Q6_K
{
  static constexpr int kStep = 128, kBlock = 256, kBlockBytes = 210, kSpan = 256, kScales = 16;
  INLINE void scales(const uint8_t * p, int, float * out)
  {
    store(out, mul(to_float(load_i8(p + 192)), set(half(p + 208))));
  }
  INLINE void decode(const uint8_t * p, int step, const float * scales, V * w)
  {
    const uint8_t * low = p + 64 * step, * high = p + 128 + 32 * step;
    for (int k = 0; k < 2; ++k) {
      const I one = load_u8(low + 16 * k), other = load_u8(low + 32 + 16 * k);
      const I two = load_u8(high + 16 * k);
      const I q[4] = {
        either(bits(one, 15), bits(left(two, 4), 48)),
        either(bits(other, 15), bits(left(two, 2), 48)),
        either(right(one, 4), bits(two, 48)), either(right(other, 4), bits(right(two, 2), 48))};
      for (int part = 0; part < 4; ++part) {
        const int at = 2 * part + k;
        w[at] = mul(to_float(minus(q[part], 32)), set(scales[8 * step + at]));
      }
    }
  }
};

/// Blocks of 32 elements of four bits: a sign, an exponent of two, one more; scales are powers of 2.
struct MXFP4
{
  static constexpr int kStep = 32, kBlock = 32, kBlockBytes = 17, kSpan = 16 * 32, kScales = 16;
  INLINE void scales(const uint8_t * p, int steps, float * out)
  {
    for (int k = 0; k < steps; ++k) {
      const uint32_t e = p[17 * k], half_of_it = e < 2 ? 0x00200000u << e : (e - 1) << 23;
      __builtin_memcpy(out + k, &half_of_it, 4);
    }
  }
  /// Twice the elements, 0 to 4, 6, 8, 12 by their lowest three bits.
  INLINE V doubled(I a)
  {
    const V m = to_float(bits(a, 7)), sign = to_float(bits(right(a, 3), 1));
    const V over = add(m, larger(sub(m, set(4.0f)), zero()));
    const V all = fma(larger(sub(m, set(6.0f)), zero()), set(2.0f), over);
    return fma(mul(sign, set(-2.0f)), all, all);
  }
  INLINE void decode(const uint8_t * p, int step, const float * scales, V * w)
  {
    const I both = load_u8(p + 17 * step + 1);
    w[0] = mul(doubled(both), set(scales[step]));
    w[1] = mul(doubled(right(both, 4)), set(scales[step]));
  }
};

/// Call `function<Type>` for a type.
#define BY_TYPE(type, function, ...) \
  switch (type) { \
    case kF32: function<F32>(__VA_ARGS__); break; \
    case kF16: function<F16>(__VA_ARGS__); break; \
    case kBF16: function<BF16>(__VA_ARGS__); break; \
    case kQ4_0: function<Q4_0>(__VA_ARGS__); break; \
    case kQ4_1: function<Q4_1>(__VA_ARGS__); break; \
    case kQ5_0: function<Q5_0>(__VA_ARGS__); break; \
    case kQ5_1: function<Q5_1>(__VA_ARGS__); break; \
    case kQ8_0: function<Q8_0>(__VA_ARGS__); break; \
    case kQ4_K: function<Q4_K>(__VA_ARGS__); break; \
    case kQ5_K: function<Q5_K>(__VA_ARGS__); break; \
    case kQ6_K: function<Q6_K>(__VA_ARGS__); break; \
    case kMXFP4: function<MXFP4>(__VA_ARGS__); break; \
  }

template<class T>
constexpr bool kIsPlain = T::kBlock == 1;

}  // namespace
