// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

// Sixteen floats and sixteen integers at once, by NEON of 64-bit ARM.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace
{

#define INLINE static inline __attribute__((always_inline))

constexpr int kTokensAtOnce = 3, kFusedTokens = 3;
/// Rows that are computed at once for so many tokens: sums stay in registers.
constexpr int rows_at_once(int tokens) {return tokens <= 1 ? 4 : 2;}

struct V
{
  float32x4_t part[4];
};
struct I
{
  int32x4_t part[4];
};

#define EACH(type, expression) \
  type out; \
  for (int k = 0; k < 4; ++k) {out.part[k] = expression;} \
  return out

INLINE V zero() {EACH(V, vdupq_n_f32(0.0f));}
INLINE V set(float x) {EACH(V, vdupq_n_f32(x));}
INLINE V load(const float * p) {EACH(V, vld1q_f32(p + 4 * k));}
INLINE V load(const float * p, int count)
{
  float all[16] = {};
  __builtin_memcpy(all, p, 4 * count);
  return load(all);
}
INLINE void store(float * p, V a)
{
  for (int k = 0; k < 4; ++k) {
    vst1q_f32(p + 4 * k, a.part[k]);
  }
}
INLINE void store(float * p, V a, int count)
{
  float all[16];
  store(all, a);
  __builtin_memcpy(p, all, 4 * count);
}
INLINE V add(V a, V b) {EACH(V, vaddq_f32(a.part[k], b.part[k]));}
INLINE V sub(V a, V b) {EACH(V, vsubq_f32(a.part[k], b.part[k]));}
INLINE V mul(V a, V b) {EACH(V, vmulq_f32(a.part[k], b.part[k]));}
INLINE V div(V a, V b) {EACH(V, vdivq_f32(a.part[k], b.part[k]));}
INLINE V fma(V a, V b, V c) {EACH(V, vfmaq_f32(c.part[k], a.part[k], b.part[k]));}
INLINE V larger(V a, V b)
{
  EACH(V, vbslq_f32(vcgtq_f32(a.part[k], b.part[k]), a.part[k], b.part[k]));
}
INLINE V smaller(V a, V b)
{
  EACH(V, vbslq_f32(vcltq_f32(a.part[k], b.part[k]), a.part[k], b.part[k]));
}
INLINE V absolute(V a) {EACH(V, vabsq_f32(a.part[k]));}
INLINE V nearest(V a) {EACH(V, vrndnq_f32(a.part[k]));}
/// Return b where a < limit, c elsewhere.
INLINE V where_less(V a, V limit, V b, V c)
{
  EACH(V, vbslq_f32(vcltq_f32(a.part[k], limit.part[k]), b.part[k], c.part[k]));
}
/// Return a * 2^n for whole n.
INLINE V times_power(V a, V n)
{
  EACH(V, vmulq_f32(a.part[k], vreinterpretq_f32_s32(vshlq_n_s32(
    vaddq_s32(vcvtnq_s32_f32(n.part[k]), vdupq_n_s32(127)), 23))));
}

INLINE I load_u8(const uint8_t * p)
{
  const uint8x16_t all = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(all)), high = vmovl_u8(vget_high_u8(all));
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
    vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
    vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
    vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))}};
}
INLINE I load_i8(const uint8_t * p)
{
  const int8x16_t all = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(all)), high = vmovl_s8(vget_high_s8(all));
  return {{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)),
    vmovl_s16(vget_low_s16(high)), vmovl_s16(vget_high_s16(high))}};
}
INLINE I bits(I a, int mask) {EACH(I, vandq_s32(a.part[k], vdupq_n_s32(mask)));}
INLINE I either(I a, I b) {EACH(I, vorrq_s32(a.part[k], b.part[k]));}
INLINE I right(I a, int count)
{
  EACH(I, vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a.part[k]), vdupq_n_s32(-count))));
}
INLINE I left(I a, int count) {EACH(I, vshlq_s32(a.part[k], vdupq_n_s32(count)));}
INLINE I minus(I a, int b) {EACH(I, vsubq_s32(a.part[k], vdupq_n_s32(b)));}
INLINE V to_float(I a) {EACH(V, vcvtq_f32_s32(a.part[k]));}
/// Return `value` in lane k where bit k is set, 0 elsewhere.
INLINE I of_bits(uint32_t mask, int value)
{
  const int32_t ones[4] = {1, 2, 4, 8};
  const int32x4_t one = vld1q_s32(ones);
  EACH(I, vandq_s32(vdupq_n_s32(value), vreinterpretq_s32_u32(
    vtstq_s32(vdupq_n_s32(static_cast<int32_t>(mask >> 4 * k)), one))));
}

INLINE V load_bf16(const uint8_t * p)
{
  EACH(V, vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * k)), 16)));
}
INLINE V load_f16(const uint8_t * p)
{
  EACH(V, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * k))));
}
INLINE float half(const uint8_t * p)
{
  __fp16 h;
  __builtin_memcpy(&h, p, 2);
  return h;
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
INLINE float32x4_t quarter(V a)
{
  return vaddq_f32(vaddq_f32(a.part[0], a.part[2]), vaddq_f32(a.part[1], a.part[3]));
}
INLINE float sum(V a)
{
  const float32x4_t four = quarter(a);
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
INLINE void sums4(const V * a, int step, float * out)
{
  for (int k = 0; k < 4; ++k) {
    out[k] = sum(a[k * step]);
  }
}
INLINE float largest(V a)
{
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.part[0], a.part[1]),
      vmaxq_f32(a.part[2], a.part[3])));
}

#undef EACH

}  // namespace
