// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

// The kernels, over sixteen lanes that the including file has chosen.
//
// A sum over elements k has sixteen partial sums, of the elements with k = lane (mod 16), each in
// the order of k by fused multiplications; then partial sums are added as a tree.  So a sum has the
// same bits with all kinds of lanes, however elements are stored, and whatever is computed
// with it: tokens and rows only share what is loaded.
#pragma once

#include "kernels.h"
#include "stored_types.h"

namespace
{

// ---- products ----------------------------------------------------------------------------------

/// Times that few tokens may decode a matrix; more take it expanded, panel by panel.
constexpr int kPasses = 2;
/// Rows that are fetched from memory while some are computed: so many times those.
constexpr int kAhead = 2;

/// Add sums of R rows and C tokens over `columns` elements to acc[r * C + c].
template<class T, int R, int C>
INLINE void sums(
  const uint8_t * rows, int64_t row_bytes, int64_t columns, const float * x, int64_t x_stride,
  V * acc)
{
  if constexpr (kIsPlain<T>) {
    int64_t k = 0;
    for (; k + 16 <= columns; k += 16) {
      V w[R];
      for (int r = 0; r < R; ++r) {
        w[r] = T::load16(rows + r * row_bytes + k * T::kBlockBytes);
        if (C <= kFusedTokens) {
          __builtin_prefetch(rows + (kAhead * R + r) * row_bytes + k * T::kBlockBytes);
        }
      }
      for (int c = 0; c < C; ++c) {
        const V at = load(x + c * x_stride + k);
        for (int r = 0; r < R; ++r) {
          acc[r * C + c] = fma(w[r], at, acc[r * C + c]);
        }
      }
    }
    if (const int left_ = static_cast<int>(columns - k)) {
      for (int c = 0; c < C; ++c) {
        const V at = load(x + c * x_stride + k, left_);
        for (int r = 0; r < R; ++r) {
          acc[r * C + c] = fma(
            T::load_some(rows + r * row_bytes + k * T::kBlockBytes, left_), at, acc[r * C + c]);
        }
      }
    }
  } else {
    constexpr int kSteps = T::kSpan / T::kStep, kPart = T::kStep / 16;
    constexpr int kSpanBytes = T::kSpan / T::kBlock * T::kBlockBytes;
    for (int64_t begin = 0; begin < columns; begin += T::kSpan) {
      const int64_t rest = (columns - begin) / T::kStep;
      const int steps = rest < kSteps ? static_cast<int>(rest) : kSteps;
      float scales[R][T::kScales];
      for (int r = 0; r < R; ++r) {
        T::scales(rows + r * row_bytes, steps, scales[r]);
      }
      for (int step = 0; step < steps; ++step) {
        for (int r = 0; r < R; ++r) {
          V w[kPart];
          T::decode(rows + r * row_bytes, step, scales[r], w);
          if (C <= kFusedTokens) {
            constexpr int kBytes = T::kStep * T::kBlockBytes / T::kBlock;
            for (int byte = 0; byte < kBytes; byte += 64) {
              __builtin_prefetch(rows + (kAhead * R + r) * row_bytes + step * kBytes + byte);
            }
          }
          for (int part = 0; part < kPart; ++part) {
            for (int c = 0; c < C; ++c) {
              acc[r * C + c] = fma(
                w[part], load(x + c * x_stride + step * T::kStep + 16 * part), acc[r * C + c]);
            }
          }
        }
      }
      rows += kSpanBytes;
      x += T::kSpan;
    }
  }
}

/// Where results go: out[token * stride + row], with `added` of the same places, and a bias.
struct Out
{
  float * out;
  int64_t stride;
  const float * added;
  const float * bias;

  void put(int64_t token, int64_t row, float value) const
  {
    if (bias) {
      value += bias[row];
    }
    if (added) {
      value = added[token * stride + row] + value;
    }
    out[token * stride + row] = value;
  }
};

template<class T, int R, int C>
static void tile(
  const uint8_t * rows, int64_t row_bytes, int64_t columns, const float * x, const Out & to,
  int64_t token, int64_t row)
{
  V acc[R * C];
  for (int k = 0; k < R * C; ++k) {
    acc[k] = zero();
  }
  sums<T, R, C>(rows, row_bytes, columns, x + token * columns, columns, acc);
  for (int c = 0; c < C; ++c) {
    float found[R];
    if constexpr (R == 4) {
      sums4(acc + c, C, found);
    } else {
      for (int r = 0; r < R; ++r) {
        found[r] = sum(acc[r * C + c]);
      }
    }
    for (int r = 0; r < R; ++r) {
      to.put(token + c, row + r, found[r]);
    }
  }
}

/// All of `count` rows for C tokens.
template<class T, int C>
static void rows_for(
  const uint8_t * rows, int64_t row_bytes, int64_t count, int64_t columns, const float * x,
  const Out & to, int64_t token, int64_t first)
{
  constexpr int kRows = rows_at_once(C);
  int64_t r = 0;
  for (; r + kRows <= count; r += kRows) {
    tile<T, kRows, C>(rows + r * row_bytes, row_bytes, columns, x, to, token, first + r);
  }
  for (; r < count; ++r) {
    tile<T, 1, C>(rows + r * row_bytes, row_bytes, columns, x, to, token, first + r);
  }
}

template<class T, int C>
static void rows_for_some(
  int64_t tokens, const uint8_t * rows, int64_t row_bytes, int64_t count, int64_t columns,
  const float * x, const Out & to, int64_t token, int64_t first)
{
  if (tokens == C) {
    rows_for<T, C>(rows, row_bytes, count, columns, x, to, token, first);
  } else if constexpr (C > 1) {
    rows_for_some<T, C - 1>(tokens, rows, row_bytes, count, columns, x, to, token, first);
  }
}

template<class T>
static void expand_as(const uint8_t * data, int64_t count, float * out)
{
  if constexpr (kIsPlain<T>) {
    int64_t k = 0;
    for (; k + 16 <= count; k += 16) {
      store(out + k, T::load16(data + k * T::kBlockBytes));
    }
    if (k < count) {
      const int rest = static_cast<int>(count - k);
      store(out + k, T::load_some(data + k * T::kBlockBytes, rest), rest);
    }
  } else {
    constexpr int kSteps = T::kSpan / T::kStep, kPart = T::kStep / 16;
    constexpr int kSpanBytes = T::kSpan / T::kBlock * T::kBlockBytes;
    for (int64_t begin = 0; begin < count; begin += T::kSpan) {
      const int64_t rest = (count - begin) / T::kStep;
      const int steps = rest < kSteps ? static_cast<int>(rest) : kSteps;
      float scales[T::kScales];
      T::scales(data, steps, scales);
      for (int step = 0; step < steps; ++step) {
        V w[kPart];
        T::decode(data, step, scales, w);
        for (int part = 0; part < kPart; ++part) {
          store(out + begin + step * T::kStep + 16 * part, w[part]);
        }
      }
      data += kSpanBytes;
    }
  }
}

template<class T>
static void product_as(
  const Matrix & matrix, int64_t first, int64_t count, const float * x, int64_t tokens,
  const Out & to, float * scratch)
{
  const int64_t columns = matrix.columns;
  const int64_t row_bytes = columns / T::kBlock * T::kBlockBytes;
  const uint8_t * rows = matrix.data + first * row_bytes;
  if (tokens <= kPasses * kFusedTokens) {
    // numbers are decoded anew for each pass
    const int64_t passes = (tokens + kFusedTokens - 1) / kFusedTokens;
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t token = pass * tokens / passes, stop = (pass + 1) * tokens / passes;
      rows_for_some<T, kFusedTokens>(
        stop - token, rows, row_bytes, count, columns, x, to, token, first);
    }
    return;
  }
  for (int64_t done = 0; done < count; done += kPanelRows) {
    const int64_t some = count - done < kPanelRows ? count - done : kPanelRows;
    const uint8_t * panel = rows + done * row_bytes;
    int64_t panel_bytes = row_bytes;
    if constexpr (!__is_same(T, F32)) {
      for (int64_t r = 0; r < some; ++r) {
        expand_as<T>(panel + r * row_bytes, columns, scratch + r * columns);
      }
      panel = reinterpret_cast<const uint8_t *>(scratch);
      panel_bytes = 4 * columns;
    }
    for (int64_t token = 0; token < tokens; token += kTokensAtOnce) {
      const int64_t left_ = tokens - token;
      rows_for_some<F32, kTokensAtOnce>(
        left_ < kTokensAtOnce ? left_ : kTokensAtOnce, panel, panel_bytes, some, columns, x, to,
        token, first + done);
    }
  }
}

void expand(int32_t type, const uint8_t * data, int64_t count, float * out)
{
  BY_TYPE(type, expand_as, data, count, out)
}

void product(
  const Matrix & matrix, int64_t first, int64_t count, const float * x, int64_t tokens,
  float * out, int64_t out_stride, const float * added, float * scratch)
{
  Out to = {out, out_stride, added, nullptr};
  float some[kPanelRows];
  for (int64_t done = 0; done < count; done += kPanelRows) {
    const int64_t rows = count - done < kPanelRows ? count - done : kPanelRows;
    if (const Vector & bias = matrix.bias; bias.data) {
      // whole blocks begin at multiples of 32 only where they are plain
      const int64_t each = bias.type == kF32 ? 4 : 2;
      expand(bias.type, bias.data + (first + done) * each, rows, some);
      to.bias = some - (first + done);
    }
    BY_TYPE(matrix.type, product_as, matrix, first + done, rows, x, tokens, to, scratch)
  }
}

// ---- functions of elements ---------------------------------------------------------------------

/// Return e^x to some 1e-7 of it.
INLINE V exponential(V x)
{
  const V most = set(88.3762626647949f), least = set(-87.3365478515625f);
  x = smaller(larger(x, least), most);
  const V n = nearest(mul(x, set(1.44269504088896341f)));
  const V r = fma(n, set(2.12194440e-4f), fma(n, set(-0.693359375f), x));
  V p = set(1.9875691500e-4f);
  p = fma(p, r, set(1.3981999507e-3f));
  p = fma(p, r, set(8.3334519073e-3f));
  p = fma(p, r, set(4.1665795894e-2f));
  p = fma(p, r, set(1.6666665459e-1f));
  p = fma(p, r, set(5.0000001201e-1f));
  p = fma(mul(r, r), p, add(r, set(1.0f)));
  return times_power(p, n);
}

INLINE V hyperbolic_tangent(V x)
{
  const V square = mul(x, x);  // of small ones by a polynomial: 1 - 2 / (e^2x + 1) would cancel
  V p = set(-5.70498872745e-3f);
  p = fma(p, square, set(2.06390887954e-2f));
  p = fma(p, square, set(-5.37397155531e-2f));
  p = fma(p, square, set(1.33314422036e-1f));
  p = fma(p, square, set(-3.33332819422e-1f));
  const V small_ = fma(mul(p, square), x, x);
  const V large = sub(set(1.0f), div(set(2.0f), add(exponential(add(x, x)), set(1.0f))));
  return where_less(absolute(x), set(0.625f), small_, large);
}

INLINE V activated(int32_t kind, V x)
{
  if (kind == 0) {
    return div(x, add(set(1.0f), exponential(sub(zero(), x))));
  }
  const V inner = mul(set(0.7978845608028654f), fma(mul(mul(x, x), x), set(0.044715f), x));
  return mul(mul(set(0.5f), x), add(set(1.0f), hyperbolic_tangent(inner)));
}

/// Write the activation of each number, times that of `up` where there is one.
void gate(int32_t kind, const float * gates, const float * up, int64_t count, float * out)
{
  for (int64_t k = 0; k < count; k += 16) {
    const int some = count - k < 16 ? static_cast<int>(count - k) : 16;
    const V found = activated(kind, load(gates + k, some));
    store(out + k, up ? mul(found, load(up + k, some)) : found, some);
  }
}

void cap(float * x, int64_t count, float most)
{
  for (int64_t k = 0; k < count; k += 16) {
    const int some = count - k < 16 ? static_cast<int>(count - k) : 16;
    store(x + k, mul(hyperbolic_tangent(div(load(x + k, some), set(most))), set(most)), some);
  }
}

float read_all(const float * x, int64_t count)
{
  constexpr int kAtOnce = 8;
  V parts[kAtOnce];
  for (int part = 0; part < kAtOnce; ++part) {
    parts[part] = zero();
  }
  for (int64_t k = 0; k + 16 * kAtOnce <= count; k += 16 * kAtOnce) {
    for (int part = 0; part < kAtOnce; ++part) {
      parts[part] = larger(parts[part], load(x + k + 16 * part));
    }
  }
  for (int part = 1; part < kAtOnce; ++part) {
    parts[0] = larger(parts[0], parts[part]);
  }
  return largest(parts[0]);
}

void add_rows(const float * x, const float * y, int64_t count, float * out)
{
  for (int64_t k = 0; k < count; k += 16) {
    const int some = count - k < 16 ? static_cast<int>(count - k) : 16;
    store(out + k, add(load(x + k, some), load(y + k, some)), some);
  }
}

void norm(const float * x, const float * weight, int64_t count, NormKind kind, float * out)
{
  V squares = zero();
  for (int64_t k = 0; k < count; k += 16) {
    const V at = count - k < 16 ? load(x + k, static_cast<int>(count - k)) : load(x + k);
    squares = fma(at, at, squares);
  }
  const float mean = sum(squares) / static_cast<float>(count);
  const V scale = set(1.0f / __builtin_sqrtf(mean + kind.eps)), offset = set(kind.offset);
  for (int64_t k = 0; k < count; k += 16) {
    if (count - k < 16) {
      const int some = static_cast<int>(count - k);
      const V by = kind.offset == 0.0f ? load(weight + k, some) :
        add(load(weight + k, some), offset);
      store(out + k, mul(mul(load(x + k, some), scale), by), some);
    } else {
      const V by = kind.offset == 0.0f ? load(weight + k) : add(load(weight + k), offset);
      store(out + k, mul(mul(load(x + k), scale), by));
    }
  }
}

/// Turn pairs (k, k + half) of a head by the angles of its position.
void rotate(float * x, const float * cosines, const float * sines, int32_t half_)
{
  for (int32_t k = 0; k < half_; k += 16) {
    const int some = half_ - k < 16 ? half_ - k : 16;
    const V one = load(x + k, some), other = load(x + half_ + k, some);
    const V c = load(cosines + k, some), s = load(sines + k, some);
    store(x + k, sub(mul(one, c), mul(other, s)), some);
    store(x + half_ + k, add(mul(other, c), mul(one, s)), some);
  }
}

// ---- attention ---------------------------------------------------------------------------------

constexpr int kPage = 16;

/// Write the products of K keys with the queries of H heads to out[h * kPage + key].
template<int H, int K>
INLINE void scores_of(const float * queries, const float * keys, int32_t dim, float * out)
{
  V acc[H * K];
  for (int k = 0; k < H * K; ++k) {
    acc[k] = zero();
  }
  int32_t k = 0;
  for (; k + 16 <= dim; k += 16) {
    V piece[K];
    for (int key = 0; key < K; ++key) {
      piece[key] = load(keys + key * dim + k);
    }
    for (int h = 0; h < H; ++h) {
      const V query = load(queries + h * dim + k);
      for (int key = 0; key < K; ++key) {
        acc[h * K + key] = fma(query, piece[key], acc[h * K + key]);
      }
    }
  }
  if (const int rest = dim - k) {
    for (int h = 0; h < H; ++h) {
      const V query = load(queries + h * dim + k, rest);
      for (int key = 0; key < K; ++key) {
        acc[h * K + key] = fma(query, load(keys + key * dim + k, rest), acc[h * K + key]);
      }
    }
  }
  for (int h = 0; h < H; ++h) {
    if constexpr (K == 4) {
      sums4(acc + h * K, 1, out + h * kPage);
    } else {
      for (int key = 0; key < K; ++key) {
        out[h * kPage + key] = sum(acc[h * K + key]);
      }
    }
  }
}

/// Attention of H heads of a group for one token, over the keys that it sees.
///
/// A piece is a page: scores of its keys in the lanes of one vector.  The sum of weights has a lane
/// for each place in a page; values are added in the order of positions.
template<int H>
static void attend_heads(
  const AttentionBlock & block, const LaneView & lane, int64_t token, int32_t group,
  const float * queries, const float * sinks, float * out, float * scratch)
{
  const int32_t dim = block.dim;
  const int64_t last = lane.positions[token];
  const int64_t first = block.window && last >= block.window ? last - block.window + 1 : 0;
  const int32_t * pages = lane.pages + lane.first_page[token];
  const Cache & cache = lane.caches[block.layer];
  const float * keys = cache.keys + group * cache.group_stride;
  const float * values = cache.values + group * cache.group_stride;
  const int64_t begin = first / kPage, end = last / kPage + 1, width = (end - begin) * kPage;

  const V unseen = set(-__builtin_inff());
  V highest[H];
  for (int h = 0; h < H; ++h) {
    highest[h] = unseen;
  }
  for (int64_t page = begin; page < end; ++page) {
    const float * at = keys + static_cast<int64_t>(pages[page]) * kPage * dim;
    const int from = page == begin ? static_cast<int>(first % kPage) : 0;
    const int to = page == end - 1 ? static_cast<int>(last % kPage) + 1 : kPage;
    float found[H * kPage];
    for (int h = 0; h < H; ++h) {
      store(found + h * kPage, unseen);
    }
    int key = from;
    for (; key + 4 <= to; key += 4) {
      scores_of<H, 4>(queries, at + key * dim, dim, found + key);
    }
    for (; key < to; ++key) {
      scores_of<H, 1>(queries, at + key * dim, dim, found + key);
    }
    for (int h = 0; h < H; ++h) {
      V scores = mul(load(found + h * kPage), set(block.scaling));
      if (block.cap != 0.0f) {
        const V capped = mul(hyperbolic_tangent(div(scores, set(block.cap))), set(block.cap));
        scores = where_less(unseen, scores, capped, scores);
      }
      store(scratch + h * width + (page - begin) * kPage, scores);
      highest[h] = larger(scores, highest[h]);
    }
  }

  float total[H];
  for (int h = 0; h < H; ++h) {
    V parts = zero();
    const V most = set(largest(sinks ? larger(highest[h], set(sinks[h])) : highest[h]));
    float * scores = scratch + h * width;
    for (int64_t k = 0; k < width; k += kPage) {
      const V given = load(scores + k);
      const V weights = where_less(unseen, given, exponential(sub(given, most)), zero());
      store(scores + k, weights);
      parts = add(parts, weights);
    }
    total[h] = sum(parts);
    if (sinks) {
      float all[16];
      store(all, exponential(sub(set(sinks[h]), most)));
      total[h] += all[0];
    }
  }

  for (int k = 0; k < dim; k += 64) {
    const int some = dim - k < 64 ? dim - k : 64;
    V acc[H][4];
    for (int h = 0; h < H; ++h) {
      for (int part = 0; part < 4; ++part) {
        acc[h][part] = zero();
      }
    }
    for (int64_t page = begin; page < end; ++page) {
      const float * at = values + static_cast<int64_t>(pages[page]) * kPage * dim + k;
      const int from = page == begin ? static_cast<int>(first % kPage) : 0;
      const int to = page == end - 1 ? static_cast<int>(last % kPage) + 1 : kPage;
      const float * weights = scratch + (page - begin) * kPage;
      if (some == 64) {
        for (int key = from; key < to; ++key) {
          for (int part = 0; part < 4; ++part) {
            const V piece = load(at + key * dim + 16 * part);
            for (int h = 0; h < H; ++h) {
              acc[h][part] = fma(set(weights[h * width + key]), piece, acc[h][part]);
            }
          }
        }
      } else {
        for (int key = from; key < to; ++key) {
          for (int part = 0; 16 * part < some; ++part) {
            const int few = some - 16 * part < 16 ? some - 16 * part : 16;
            const V piece = load(at + key * dim + 16 * part, few);
            for (int h = 0; h < H; ++h) {
              acc[h][part] = fma(set(weights[h * width + key]), piece, acc[h][part]);
            }
          }
        }
      }
    }
    for (int h = 0; h < H; ++h) {
      for (int part = 0; 16 * part < some; ++part) {
        const int few = some - 16 * part < 16 ? some - 16 * part : 16;
        store(out + h * dim + k + 16 * part, div(acc[h][part], set(total[h])), few);
      }
    }
  }
}

void attend(
  const AttentionBlock & block, const LaneView & lane, int64_t token, int32_t group,
  const float * queries, float * out, float * scratch)
{
  const int32_t heads = block.heads / block.groups;
  const float * sinks = reinterpret_cast<const float *>(block.sinks.data);
  for (int32_t h = 0; h < heads; h += 4) {
    const auto some = heads - h >= 4 ? attend_heads<4> : heads - h == 3 ? attend_heads<3> :
      heads - h == 2 ? attend_heads<2> : attend_heads<1>;
    some(
      block, lane, token, group, queries + h * block.dim,
      sinks ? sinks + group * heads + h : nullptr, out + h * block.dim, scratch);
  }
}

#define KERNELS(name) {name, expand, product, norm, gate, rotate, read_all, add_rows, cap, attend}

}  // namespace
