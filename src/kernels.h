// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

// What a decoder layer consists of.  All pointers are to memory that the caller keeps.
#pragma once

#include <cstdint>

extern "C" {

/// Elements of a matrix or vector as they are stored: the numbers of GGUF's types.
enum StoredType : int32_t
{
  kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ4_K = 12,
  kQ5_K = 13, kQ6_K = 14, kBF16 = 30, kMXFP4 = 39
};

struct Vector
{
  const uint8_t * data;  // null: there is none
  int64_t count;
  int32_t type;
};

/// `rows` x `columns`, row by row; `bias` of `rows`.
struct Matrix
{
  const uint8_t * data;
  int64_t rows, columns;
  int32_t type;
  Vector bias;
};

/// Root mean square norms: x / rms(x) * (weight + offset).
struct NormKind
{
  float eps, offset;
};

struct AttentionBlock
{
  Vector before, after, query_norm, key_norm;  // `after` before the sum with what came in
  Matrix query, key, value, out;
  NormKind norm;
  int32_t heads, groups, dim, rotated;
  float scaling, cap;  // cap 0: none
  int64_t window;  // 0: none
  int32_t layer, angles;  // which cache, and which of the lane's angles
  Vector sinks;  // of each head, what else takes part in its sum of weights
};

struct MlpBlock
{
  Vector before, after;
  Matrix gate, up, down;
  NormKind norm;
  int32_t gate_kind;  // 0: silu, 1: gelu by tanh
};

/// One half of a layer: the other pointer is null.
struct Half
{
  const AttentionBlock * attention;
  const MlpBlock * mlp;
};

/// Keys and values of a layer: groups x pages x 16 x dim.
struct Cache
{
  float * keys, * values;
  int64_t group_stride;  // in floats
};

struct Angles
{
  const float * cosines, * sines;  // tokens x rotated / 2
};

/// Tokens that are computed together.
struct LaneView
{
  int64_t tokens;
  const int32_t * positions;
  const int64_t * first_page;  // of each token: where its pages begin in `pages`
  const int32_t * pages;
  const Cache * caches;  // of each layer
  const Angles * angles;  // of each kind of layers
};

}  // extern "C"

/// The functions that are compiled once for each kind of lanes.
struct Kernels
{
  const char * name;
  /// Convert elements to float; `count` is of whole blocks, or of all that are left.
  void (* expand)(int32_t type, const uint8_t * data, int64_t count, float * out);
  /// Compute rows first .. first + count - 1 of a product: out[t][row] (+ added[t][row]).
  void (* product)(
    const Matrix & matrix, int64_t first, int64_t count, const float * x, int64_t tokens,
    float * out, int64_t out_stride, const float * added, float * scratch);
  void (* norm)(const float * x, const float * weight, int64_t count, NormKind kind, float * out);
  void (* gate)(int32_t kind, const float * gate, const float * up, int64_t count, float * out);
  void (* rotate)(float * x, const float * cosines, const float * sines, int32_t half);
  /// Read memory as fast as it comes; return something of all of it.
  float (* read)(const float * x, int64_t count);
  void (* add)(const float * x, const float * y, int64_t count, float * out);
  void (* cap)(float * x, int64_t count, float cap);
  /// Attention of the heads of one group for one token: out[heads of the group][dim].
  void (* attend)(
    const AttentionBlock & block, const LaneView & lane, int64_t token, int32_t group,
    const float * queries, float * out, float * scratch);
};

/// Rows of a product that belong together; floats of scratch for them and so many columns.
constexpr int64_t kPanelRows = 32;
inline int64_t product_scratch(int64_t columns) {return kPanelRows * (columns + 64);}

const Kernels * avx512_kernels();
const Kernels * avx2_kernels();
const Kernels * neon_kernels();
const Kernels * portable_kernels();
