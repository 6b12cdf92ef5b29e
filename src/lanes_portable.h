// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

// Sixteen floats and sixteen integers at once, in plain C++: the meaning of all other lanes.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace
{

#define INLINE static inline __attribute__((always_inline))

constexpr int kTokensAtOnce = 2, kFusedTokens = 1;
/// Rows that are computed at once for so many tokens.
constexpr int rows_at_once(int) {return 4;}

struct V
{
  float lane[16];
};
struct I
{
  int32_t lane[16];
};

#define EACH(type, expression) \
  type out; \
  for (int k = 0; k < 16; ++k) {out.lane[k] = expression;} \
  return out

INLINE V zero() {EACH(V, 0.0f);}
INLINE V set(float x) {EACH(V, x);}
INLINE V load(const float * p) {EACH(V, p[k]);}
INLINE V load(const float * p, int count) {EACH(V, k < count ? p[k] : 0.0f);}
INLINE void store(float * p, V a) {std::memcpy(p, a.lane, sizeof(a.lane));}
INLINE void store(float * p, V a, int count) {std::memcpy(p, a.lane, 4 * count);}
INLINE V add(V a, V b) {EACH(V, a.lane[k] + b.lane[k]);}
INLINE V sub(V a, V b) {EACH(V, a.lane[k] - b.lane[k]);}
INLINE V mul(V a, V b) {EACH(V, a.lane[k] * b.lane[k]);}
INLINE V div(V a, V b) {EACH(V, a.lane[k] / b.lane[k]);}
INLINE V fma(V a, V b, V c) {EACH(V, __builtin_fmaf(a.lane[k], b.lane[k], c.lane[k]));}
INLINE V larger(V a, V b) {EACH(V, a.lane[k] > b.lane[k] ? a.lane[k] : b.lane[k]);}
INLINE V smaller(V a, V b) {EACH(V, a.lane[k] < b.lane[k] ? a.lane[k] : b.lane[k]);}
INLINE V absolute(V a) {EACH(V, std::fabs(a.lane[k]));}
INLINE V nearest(V a) {EACH(V, std::nearbyint(a.lane[k]));}
/// Return b where a < limit, c elsewhere.
INLINE V where_less(V a, V limit, V b, V c)
{
  EACH(V, a.lane[k] < limit.lane[k] ? b.lane[k] : c.lane[k]);
}
INLINE float from_bits(uint32_t x)
{
  float out;
  std::memcpy(&out, &x, 4);
  return out;
}
/// Return a * 2^n for whole n.
INLINE V times_power(V a, V n)
{
  EACH(V, a.lane[k] * from_bits(static_cast<uint32_t>(static_cast<int32_t>(n.lane[k]) + 127) << 23));
}

INLINE I load_u8(const uint8_t * p) {EACH(I, p[k]);}
INLINE I load_i8(const uint8_t * p) {EACH(I, static_cast<int8_t>(p[k]));}
INLINE I bits(I a, int mask) {EACH(I, a.lane[k] & mask);}
INLINE I either(I a, I b) {EACH(I, a.lane[k] | b.lane[k]);}
INLINE I right(I a, int count)
{
  EACH(I, static_cast<int32_t>(static_cast<uint32_t>(a.lane[k]) >> count));
}
INLINE I left(I a, int count)
{
  EACH(I, static_cast<int32_t>(static_cast<uint32_t>(a.lane[k]) << count));
}
INLINE I minus(I a, int b) {EACH(I, a.lane[k] - b);}
INLINE V to_float(I a) {EACH(V, static_cast<float>(a.lane[k]));}
/// Return `value` in lane k where bit k is set, 0 elsewhere.
INLINE I of_bits(uint32_t mask, int value) {EACH(I, mask >> k & 1 ? value : 0);}

INLINE uint16_t two_bytes(const uint8_t * p)
{
  uint16_t out;
  std::memcpy(&out, p, 2);
  return out;
}
INLINE V load_bf16(const uint8_t * p)
{
  EACH(V, from_bits(static_cast<uint32_t>(two_bytes(p + 2 * k)) << 16));
}
INLINE float half(const uint8_t * p)
{
  const uint32_t h = two_bytes(p), sign = (h & 0x8000) << 16, rest = (h & 0x7fff) << 13;
  if (rest >= 0x7c00 << 13) {
    return from_bits(sign | 0x70000000 | rest | (rest > 0x7c00 << 13 ? 0x400000 : 0));
  }
  const float size = from_bits(rest) * 0x1p112f;  // other bias; exact, of small ones too
  return sign ? -size : size;
}
INLINE V load_f16(const uint8_t * p) {EACH(V, half(p + 2 * k));}
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
  halves(p, stride, count, first);
  halves(p + 2, stride, count, second);
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
INLINE float sum(V a)
{
  for (int apart = 8; apart; apart /= 2) {
    for (int k = 0; k < apart; ++k) {
      a.lane[k] += a.lane[k + apart];
    }
  }
  return a.lane[0];
}
INLINE void sums4(const V * a, int step, float * out)
{
  for (int k = 0; k < 4; ++k) {
    out[k] = sum(a[k * step]);
  }
}
INLINE float largest(V a)
{
  float out = a.lane[0];
  for (int k = 1; k < 16; ++k) {
    out = a.lane[k] > out ? a.lane[k] : out;
  }
  return out;
}

#undef EACH

}  // namespace
