// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

// Halves of decoder layers, computed with weights as they are stored: what Python calls.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "kernels.h"
#include "threads.h"

namespace
{

/// Multiplications that are worth being given to a thread.
constexpr int64_t kWorthwhile = 1 << 13;

const Kernels * const kKinds[] = {
#if defined(__x86_64__)
  avx512_kernels(), avx2_kernels(),
#elif defined(__aarch64__)
  neon_kernels(),
#endif
  portable_kernels(),
};
constexpr int kKindCount = sizeof(kKinds) / sizeof(kKinds[0]);

bool runs_here(int kind)
{
#if defined(__x86_64__)
  switch (kind) {
    case 0:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case 1:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
  }
#endif
  return kind < kKindCount;
}

std::atomic<const Kernels *> chosen{nullptr};

const Kernels & kernels()
{
  const Kernels * found = chosen.load(std::memory_order_relaxed);
  if (!found) {
    int kind = 0;
    while (!runs_here(kind)) {
      ++kind;
    }
    chosen.store(found = kKinds[kind], std::memory_order_relaxed);
  }
  return *found;
}

/// Floats that begin at a multiple of 64 bytes; kept by each thread, and as large as ever needed.
class Floats
{
public:
  float * of(int64_t count)
  {
    if (count > count_) {
      data_.reset(static_cast<float *>(std::aligned_alloc(64, (count * 4 + 63) / 64 * 64)));
      if (!data_) {
        throw std::bad_alloc();
      }
      count_ = count;
    }
    return data_.get();
  }

private:
  struct Free
  {
    void operator()(float * data) const {std::free(data);}
  };
  std::unique_ptr<float, Free> data_;
  int64_t count_ = 0;
};

float * scratch(int64_t count)
{
  thread_local Floats kept;
  return kept.of(count);
}

/// Memory of the caller for one block; parts of it are given out one after another.
class Workplace
{
public:
  explicit Workplace(int64_t count)
  {
    thread_local Floats kept;
    at_ = kept.of(count);
  }
  float * take(int64_t count)
  {
    float * found = at_;
    at_ += rounded(count);
    return found;
  }
  static int64_t rounded(int64_t count) {return (count + 15) / 16 * 16;}

private:
  float * at_;
};

struct Product
{
  const Matrix * matrix;
  float * out;  // tokens x rows
};

/// Compute products of the same tokens with several matrices, all rows over all threads.
void products(
  const Product * each, int count, const float * x, int64_t tokens, const float * added,
  int threads)
{
  // few tokens: small parts, so that all threads end at once; others expand whole panels
  const int64_t rows = tokens <= kPanelRows / 4 ? kPanelRows / 4 : kPanelRows;
  int64_t parts = 0;
  for (int k = 0; k < count; ++k) {
    parts += (each[k].matrix->rows + rows - 1) / rows;
  }
  const int64_t columns = each[0].matrix->columns, work = rows * columns * tokens;
  const int64_t at_once = std::max<int64_t>(1, (kWorthwhile + work - 1) / work);
  const Kernels & use = kernels();
  parallel(
    parts, at_once, threads, [&](int64_t begin, int64_t end) {
      float * space = scratch(product_scratch(columns));
      for (const Product * one = each; end > 0; ++one) {
        const Matrix & matrix = *one->matrix;
        const int64_t its_parts = (matrix.rows + rows - 1) / rows;
        const int64_t first = std::max<int64_t>(begin, 0) * rows;
        const int64_t last = std::min(end * rows, matrix.rows);
        if (first < last) {
          use.product(
            matrix, first, last - first, x, tokens, one->out, matrix.rows, added, space);
        }
        begin -= its_parts;
        end -= its_parts;
      }
    });
}

/// Return a vector's floats: its own memory, or `space` where it is stored otherwise.
const float * floats(const Vector & vector, float * space)
{
  if (vector.type == kF32) {
    return reinterpret_cast<const float *>(vector.data);
  }
  kernels().expand(vector.type, vector.data, vector.count, space);
  return space;
}

void norm_rows(
  const float * x, const Vector & weight, int64_t tokens, NormKind kind, float * out,
  float * space)
{
  const float * by = floats(weight, space);
  for (int64_t t = 0; t < tokens; ++t) {
    kernels().norm(x + t * weight.count, by, weight.count, kind, out + t * weight.count);
  }
}

/// Write x + what a half of a layer found, with the norm after it where it has one.
///
/// `out` may be x; `made` (tokens x rows) is for what is normed.
void last_product(
  const Matrix & matrix, const Vector & after, NormKind kind, const float * found,
  const float * x, int64_t tokens, float * out, float * made, float * space, int threads)
{
  if (!after.data) {
    const Product one = {&matrix, out};
    products(&one, 1, found, tokens, x, threads);
    return;
  }
  const Product one = {&matrix, made};
  products(&one, 1, found, tokens, nullptr, threads);
  norm_rows(made, after, tokens, kind, made, space);
  kernels().add(x, made, tokens * matrix.rows, out);
}

}  // namespace

extern "C" {

/// Changes when a structure or the meaning of an argument does.
int32_t language_kernels_version() {return 3;}

const char * language_kernels_name() {return kernels().name;}

/// Compute with one kind of lanes, by its number; 0 if this processor does not have them.
int32_t language_kernels_use(int32_t kind)
{
  if (kind < 0 || kind >= kKindCount || !runs_here(kind)) {
    return 0;
  }
  chosen.store(kKinds[kind]);
  return 1;
}

void language_expand(
  int32_t type, const uint8_t * data, int64_t rows, int64_t columns, int64_t row_bytes,
  float * out, int32_t threads)
{
  parallel(
    rows, std::max<int64_t>(1, kWorthwhile / columns), threads, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        kernels().expand(type, data + r * row_bytes, columns, out + r * columns);
      }
    });
}

/// Read memory by all threads, as products do; what comes of it says nothing.
float language_read(const float * x, int64_t count, int32_t threads)
{
  std::atomic<float> most{0.0f};
  parallel(
    count, 1 << 16, threads, [&](int64_t begin, int64_t end) {
      most.store(std::max(most.load(), kernels().read(x + begin, end - begin)));
    });
  return most.load();
}

/// out (tokens x rows) = x (tokens x columns) times the matrix, and its bias.
void language_product(
  const Matrix * matrix, const float * x, int64_t tokens, float * out, int32_t threads)
{
  const Product one = {matrix, out};
  products(&one, 1, x, tokens, nullptr, threads);
}

void language_norm(
  const Vector * weight, float eps, float offset, const float * x, int64_t tokens, float * out)
{
  Workplace place(weight->count);
  norm_rows(x, *weight, tokens, {eps, offset}, out, place.take(weight->count));
}

void language_activate(int32_t kind, const float * x, int64_t count, float * out)
{
  kernels().gate(kind, x, nullptr, count, out);
}

void language_cap(float * x, int64_t count, float cap) {kernels().cap(x, count, cap);}

/// Attention of packed queries (tokens x heads x dim) over the keys and values of their pages.
void language_attend(
  const AttentionBlock * block, const LaneView * lane, const float * queries, float * out,
  int32_t threads)
{
  const int64_t heads = block->heads / block->groups, each = heads * block->dim;
  int64_t seen = 0;
  for (int64_t t = 0; t < lane->tokens; ++t) {
    const int64_t all = lane->positions[t] + 1;
    seen = std::max(seen, block->window ? std::min(all, block->window) : all);
  }
  const int64_t work = seen * each;
  thread_local Floats kept;
  AttentionBlock own = *block;
  if (own.sinks.data) {
    own.sinks.data = reinterpret_cast<const uint8_t *>(
      floats(block->sinks, kept.of(Workplace::rounded(block->heads))));
  }
  parallel(
    lane->tokens * block->groups, std::max<int64_t>(1, (kWorthwhile + work - 1) / work), threads,
    [&](int64_t begin, int64_t end) {
      float * space = scratch(4 * (seen + 32));
      for (int64_t k = begin; k < end; ++k) {
        const int64_t t = k / block->groups, group = k % block->groups;
        const int64_t at = (t * block->groups + group) * each;
        kernels().attend(
          own, *lane, t, static_cast<int32_t>(group), queries + at, out + at, space);
      }
    });
}

/// Put new keys and values (tokens x groups x dim) to their places.
static void store_tokens(const AttentionBlock & block, const LaneView & lane, const float * keys,
  const float * values)
{
  const int64_t dim = block.dim;
  const Cache & cache = lane.caches[block.layer];
  for (int64_t t = 0; t < lane.tokens; ++t) {
    const int64_t position = lane.positions[t];
    const int64_t place = lane.pages[lane.first_page[t] + position / 16] * int64_t{16} +
      position % 16;
    for (int64_t g = 0; g < block.groups; ++g) {
      const float * key = keys + (t * block.groups + g) * dim;
      const float * value = values + (t * block.groups + g) * dim;
      std::copy(key, key + dim, cache.keys + g * cache.group_stride + place * dim);
      std::copy(value, value + dim, cache.values + g * cache.group_stride + place * dim);
    }
  }
}

/// The attention half of a layer: hidden states (tokens x width) to the same; `out` may be x.
static void attention_half(
  const AttentionBlock * block, const LaneView * lane, const float * x, float * out,
  int32_t threads)
{
  const int64_t tokens = lane->tokens, width = block->query.columns, dim = block->dim;
  const int64_t of_queries = block->heads * dim, of_keys = block->groups * dim;
  const int64_t space = std::max({width, of_queries, int64_t{1}});
  Workplace place(
    Workplace::rounded(tokens * width) + 2 * Workplace::rounded(tokens * of_queries) +
    2 * Workplace::rounded(tokens * of_keys) + 2 * Workplace::rounded(space));
  float * normed = place.take(tokens * width), * queries = place.take(tokens * of_queries),
    * keys = place.take(tokens * of_keys), * values = place.take(tokens * of_keys),
    * found = place.take(tokens * of_queries), * vector = place.take(space);
  norm_rows(x, block->before, tokens, block->norm, normed, vector);
  const Product each[] = {{&block->query, queries}, {&block->key, keys}, {&block->value, values}};
  products(each, 3, normed, tokens, nullptr, threads);
  const Vector * norms[] = {&block->query_norm, &block->key_norm};
  float * parts[] = {queries, keys};
  const int64_t counts[] = {block->heads, block->groups};
  const Angles & angles = lane->angles[block->angles];
  for (int k = 0; k < 2; ++k) {
    if (norms[k]->data) {
      norm_rows(parts[k], *norms[k], tokens * counts[k], block->norm, parts[k], vector);
    }
    const int32_t half = block->rotated / 2;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < counts[k]; ++h) {
        kernels().rotate(
          parts[k] + (t * counts[k] + h) * dim, angles.cosines + t * half,
          angles.sines + t * half, half);
      }
    }
  }
  store_tokens(*block, *lane, keys, values);
  language_attend(block, lane, queries, found, threads);
  last_product(
    block->out, block->after, block->norm, found, x, tokens, out, normed, vector, threads);
}

/// The MLP half of a layer.
static void mlp_half(
  const MlpBlock * block, int64_t tokens, const float * x, float * out, int32_t threads)
{
  const int64_t width = block->gate.columns, inner = block->gate.rows;
  Workplace place(
    Workplace::rounded(tokens * width) + 2 * Workplace::rounded(tokens * inner) +
    Workplace::rounded(width));
  float * normed = place.take(tokens * width), * gates = place.take(tokens * inner),
    * up = place.take(tokens * inner), * vector = place.take(width);
  norm_rows(x, block->before, tokens, block->norm, normed, vector);
  const Product each[] = {{&block->gate, gates}, {&block->up, up}};
  products(each, 2, normed, tokens, nullptr, threads);
  kernels().gate(block->gate_kind, gates, up, tokens * inner, gates);
  last_product(
    block->down, block->after, block->norm, gates, x, tokens, out, normed, vector, threads);
}

/// Halves of layers one after another: hidden states (tokens x width) to the same.
void language_layers(
  const Half * halves, int64_t count, const LaneView * lane, const float * x, float * out,
  int32_t threads)
{
  for (int64_t k = 0; k < count; ++k) {
    const float * from = k ? out : x;
    if (halves[k].attention) {
      attention_half(halves[k].attention, lane, from, out, threads);
    } else {
      mlp_half(halves[k].mlp, lane->tokens, from, out, threads);
    }
  }
}

}  // extern "C"
