// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

// Sixteen floats and sixteen integers at once, by AVX2 with FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace
{

#define INLINE static inline __attribute__((always_inline))

constexpr int kTokensAtOnce = 3, kFusedTokens = 3;
/// Rows that are computed at once for so many tokens: sums stay in registers.
constexpr int rows_at_once(int tokens) {return tokens <= 1 ? 4 : 2;}

struct V
{
  __m256 low, high;
};
struct I
{
  __m256i low, high;
};

/// Return all bits in the first `count` of eight lanes that begin at `from`.
INLINE __m256i first_lanes(int count, int from)
{
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count - from),
           _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE V zero() {return {_mm256_setzero_ps(), _mm256_setzero_ps()};}
INLINE V set(float x) {return {_mm256_set1_ps(x), _mm256_set1_ps(x)};}
INLINE V load(const float * p) {return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};}
INLINE V load(const float * p, int count)
{
  return {_mm256_maskload_ps(p, first_lanes(count, 0)),
    _mm256_maskload_ps(p + 8, first_lanes(count, 8))};
}
INLINE void store(float * p, V a)
{
  _mm256_storeu_ps(p, a.low);
  _mm256_storeu_ps(p + 8, a.high);
}
INLINE void store(float * p, V a, int count)
{
  _mm256_maskstore_ps(p, first_lanes(count, 0), a.low);
  _mm256_maskstore_ps(p + 8, first_lanes(count, 8), a.high);
}
INLINE V add(V a, V b) {return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};}
INLINE V sub(V a, V b) {return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};}
INLINE V mul(V a, V b) {return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};}
INLINE V div(V a, V b) {return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};}
INLINE V fma(V a, V b, V c)
{
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
INLINE V larger(V a, V b) {return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};}
INLINE V smaller(V a, V b) {return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};}
INLINE V absolute(V a)
{
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
INLINE V nearest(V a)
{
  constexpr int how = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.low, how), _mm256_round_ps(a.high, how)};
}
/// Return b where a < limit, c elsewhere.
INLINE V where_less(V a, V limit, V b, V c)
{
  return {_mm256_blendv_ps(c.low, b.low, _mm256_cmp_ps(a.low, limit.low, _CMP_LT_OQ)),
    _mm256_blendv_ps(c.high, b.high, _mm256_cmp_ps(a.high, limit.high, _CMP_LT_OQ))};
}
/// Return a * 2^n for whole n.
INLINE V times_power(V a, V n)
{
  const __m256i bias = _mm256_set1_epi32(127);
  return mul(a, {_mm256_castsi256_ps(_mm256_slli_epi32(
          _mm256_add_epi32(_mm256_cvtps_epi32(n.low), bias), 23)),
      _mm256_castsi256_ps(_mm256_slli_epi32(
          _mm256_add_epi32(_mm256_cvtps_epi32(n.high), bias), 23))});
}

INLINE I load_u8(const uint8_t * p)
{
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))),
    _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p + 8)))};
}
INLINE I load_i8(const uint8_t * p)
{
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))),
    _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p + 8)))};
}
INLINE I bits(I a, int mask)
{
  const __m256i m = _mm256_set1_epi32(mask);
  return {_mm256_and_si256(a.low, m), _mm256_and_si256(a.high, m)};
}
INLINE I either(I a, I b)
{
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
INLINE I right(I a, int n) {return {_mm256_srli_epi32(a.low, n), _mm256_srli_epi32(a.high, n)};}
INLINE I left(I a, int n) {return {_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)};}
INLINE I minus(I a, int b)
{
  const __m256i m = _mm256_set1_epi32(b);
  return {_mm256_sub_epi32(a.low, m), _mm256_sub_epi32(a.high, m)};
}
INLINE V to_float(I a) {return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};}
/// Return `value` in lane k where bit k is set, 0 elsewhere.
INLINE I of_bits(uint32_t mask, int value)
{
  const __m256i all = _mm256_set1_epi32(static_cast<int>(mask));
  const __m256i first = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i second = _mm256_slli_epi32(first, 8), v = _mm256_set1_epi32(value);
  return {_mm256_and_si256(v, _mm256_cmpeq_epi32(_mm256_and_si256(all, first), first)),
    _mm256_and_si256(v, _mm256_cmpeq_epi32(_mm256_and_si256(all, second), second))};
}

INLINE V load_bf16(const uint8_t * p)
{
  const auto * at = reinterpret_cast<const __m128i *>(p);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at)), 16)),
    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at + 1)), 16))};
}
INLINE V load_f16(const uint8_t * p)
{
  const auto * at = reinterpret_cast<const __m128i *>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1))};
}
INLINE float half(const uint8_t * p)
{
  uint16_t h;
  __builtin_memcpy(&h, p, 2);
  return _cvtsh_ss(h);
}
/// Convert the float16 at the beginning of up to 16 blocks; `count` of them.
INLINE void halves(const uint8_t * p, int stride, int count, float * out)
{
  for (int k = 0; k < count; ++k) {
    out[k] = half(p + k * stride);
  }
}
/// The same for two of them, one after the other.
INLINE void pairs_of_halves(const uint8_t * p, int stride, int count, float * first, float * second)
{
  for (int k = 0; k < count; ++k) {
    first[k] = half(p + k * stride);
    second[k] = half(p + k * stride + 2);
  }
}

/// Sixteen values that four bits choose from.
struct Table
{
  float d, m;
  int centre;
  INLINE Table affine(float d, float m) {return {d, m, 0};}
  INLINE Table centred(float d) {return {d, 0.0f, 8};}
  /// By the lowest four bits of each lane; others do not count.
  V of(I a) const
  {
    const I q = bits(a, 15);
    return centre ? mul(to_float(minus(q, 8)), set(d)) : fma(to_float(q), set(d), set(m));
  }
};

// Sums and maxima of lanes, always as a tree: k with k + 8, k + 4, k + 2, k + 1.
INLINE __m128 quarter(V a)
{
  const __m256 half_ = _mm256_add_ps(a.low, a.high);
  return _mm_add_ps(_mm256_castps256_ps128(half_), _mm256_extractf128_ps(half_, 1));
}
INLINE float sum(V a)
{
  const __m128 four = quarter(a), two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
INLINE void sums4(const V * a, int step, float * out)
{
  const __m128 p = quarter(a[0]), q = quarter(a[step]), r = quarter(a[2 * step]),
    s = quarter(a[3 * step]);
  const __m128 pq = _mm_add_ps(_mm_unpacklo_ps(p, q), _mm_unpackhi_ps(p, q));
  const __m128 rs = _mm_add_ps(_mm_unpacklo_ps(r, s), _mm_unpackhi_ps(r, s));
  _mm_storeu_ps(out, _mm_add_ps(_mm_movelh_ps(pq, rs), _mm_movehl_ps(rs, pq)));
}
INLINE float largest(V a)
{
  const __m256 half_ = _mm256_max_ps(a.low, a.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(half_), _mm256_extractf128_ps(half_, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace
