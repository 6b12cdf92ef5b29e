// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

// Sixteen floats and sixteen integers at once, by AVX-512.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace
{

#define INLINE static inline __attribute__((always_inline))

constexpr int kTokensAtOnce = 6, kFusedTokens = 8;
/// Rows that are computed at once for so many tokens: sums stay in registers.
constexpr int rows_at_once(int tokens) {return tokens <= 6 ? 4 : 2;}

using V = __m512;
using I = __m512i;

INLINE __mmask16 first_lanes(int count) {return static_cast<__mmask16>((1u << count) - 1);}

INLINE V zero() {return _mm512_setzero_ps();}
INLINE V set(float x) {return _mm512_set1_ps(x);}
INLINE V load(const float * p) {return _mm512_loadu_ps(p);}
INLINE V load(const float * p, int count) {return _mm512_maskz_loadu_ps(first_lanes(count), p);}
INLINE void store(float * p, V a) {_mm512_storeu_ps(p, a);}
INLINE void store(float * p, V a, int count) {_mm512_mask_storeu_ps(p, first_lanes(count), a);}
INLINE V add(V a, V b) {return _mm512_add_ps(a, b);}
INLINE V sub(V a, V b) {return _mm512_sub_ps(a, b);}
INLINE V mul(V a, V b) {return _mm512_mul_ps(a, b);}
INLINE V div(V a, V b) {return _mm512_div_ps(a, b);}
INLINE V fma(V a, V b, V c) {return _mm512_fmadd_ps(a, b, c);}
INLINE V larger(V a, V b) {return _mm512_max_ps(a, b);}
INLINE V smaller(V a, V b) {return _mm512_min_ps(a, b);}
INLINE V absolute(V a) {return _mm512_abs_ps(a);}
INLINE V nearest(V a)
{
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// Return b where a < limit, c elsewhere.
INLINE V where_less(V a, V limit, V b, V c)
{
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, limit, _CMP_LT_OQ), c, b);
}
/// Return a * 2^n for whole n.
INLINE V times_power(V a, V n)
{
  const I bits = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n),
      _mm512_set1_epi32(127)), 23);
  return mul(a, _mm512_castsi512_ps(bits));
}

INLINE I load_u8(const uint8_t * p)
{
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
}
INLINE I load_i8(const uint8_t * p)
{
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
}
INLINE I bits(I a, int mask) {return _mm512_and_si512(a, _mm512_set1_epi32(mask));}
INLINE I either(I a, I b) {return _mm512_or_si512(a, b);}
INLINE I right(I a, int count) {return _mm512_srli_epi32(a, count);}
INLINE I left(I a, int count) {return _mm512_slli_epi32(a, count);}
INLINE I minus(I a, int b) {return _mm512_sub_epi32(a, _mm512_set1_epi32(b));}
INLINE V to_float(I a) {return _mm512_cvtepi32_ps(a);}
/// Return `value` in lane k where bit k is set, 0 elsewhere.
INLINE I of_bits(uint32_t mask, int value)
{
  return _mm512_maskz_set1_epi32(static_cast<__mmask16>(mask), value);
}

INLINE V load_bf16(const uint8_t * p)
{
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(
      _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p))), 16));
}
INLINE V load_f16(const uint8_t * p)
{
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
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
  const I at = _mm512_mullo_epi32(_mm512_set1_epi32(stride), _mm512_setr_epi32(
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  const I both = _mm512_mask_i32gather_epi32(
    _mm512_setzero_si512(), first_lanes(count), at, p, 1);
  store(out, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both)));
}
/// The same for two of them, one after the other.
INLINE void pairs_of_halves(const uint8_t * p, int stride, int count, float * first, float * second)
{
  const I at = _mm512_mullo_epi32(_mm512_set1_epi32(stride), _mm512_setr_epi32(
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  const I both = _mm512_mask_i32gather_epi32(
    _mm512_setzero_si512(), first_lanes(count), at, p, 1);
  store(first, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both)));
  store(second, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16))));
}

/// Sixteen values that four bits choose from.
struct Table
{
  V values;
  INLINE Table affine(float d, float m) {return {fma(counting(), set(d), set(m))};}
  INLINE Table centred(float d) {return {mul(sub(counting(), set(8.0f)), set(d))};}
  /// By the lowest four bits of each lane; others do not count.
  V of(I a) const {return _mm512_permutexvar_ps(a, values);}
  INLINE V counting()
  {
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
};

// Sums and maxima of lanes, always as a tree: k with k + 8, k + 4, k + 2, k + 1.
INLINE __m128 quarter(V a)
{
  const __m256 half_ = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
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
INLINE float largest(V a) {return _mm512_reduce_max_ps(a);}

}  // namespace
